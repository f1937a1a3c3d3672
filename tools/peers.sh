#!/usr/bin/env bash
# Fetches the limiters of others that ours are compared with, once, into target/peers; nothing is installed on the machine.
#
# `peers.sh python` fetches the package `limits` from PyPI, `peers.sh node` the package `rate-limiter-flexible` from npm, each with the
# client of Redis that it needs. Without an argument both.
set -euo pipefail
cd "$(dirname "$0")/.."

peers=target/peers
python=${PYTHON:-python3}

need() { # need HINT COMMAND...: the command works
  local hint=$1
  shift
  "$@" >/dev/null 2>&1 || {
    printf 'error: %s is needed to fetch the peers\nhint: %s\n' "$1" "$hint" >&2
    exit 1
  }
}

from_pypi() { # every version is named: another one may decide otherwise
  local folder=$peers/python
  [[ -e $folder/.complete ]] && return
  need 'apt-get install python3-pip' "$python" -m pip --version
  printf 'fetching limits and redis for Python\n' >&2
  rm -rf "$folder"
  "$python" -m pip install --quiet --root-user-action ignore --target "$folder" limits==5.8.0 redis==8.1.0 hiredis >&2
  touch "$folder/.complete"
}

from_npm() {
  local folder=$peers/node
  [[ -e $folder/.complete ]] && return
  need 'apt-get install npm' npm --version
  printf 'fetching rate-limiter-flexible and ioredis for Node\n' >&2
  rm -rf "$folder"
  mkdir -p "$folder"
  npm install --silent --no-audit --no-fund --prefix "$folder" rate-limiter-flexible@11.4.0 ioredis@6.0.0 >&2
  touch "$folder/.complete"
}

case ${1:-all} in
  python) from_pypi ;;
  node) from_npm ;;
  all) from_pypi && from_npm ;;
  *) printf 'error: no peer named %s\nhint: python, node, or none for both\n' "$1" >&2; exit 2 ;;
esac
