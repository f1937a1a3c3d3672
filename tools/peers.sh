#!/usr/bin/env bash
# Fetches programs of others that ours are compared with, once, into target/peers; nothing is installed on the machine.
#
# `peers.sh python` fetches the limiter `limits` from PyPI, `peers.sh node` the limiter `rate-limiter-flexible` from npm, each with the
# client of Redis that it needs. `peers.sh messages` fetches from both the libraries with which others receive what we send. Without an
# argument all of them.
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

messages() {
  local folder=$peers/messages
  [[ -e $folder/.complete ]] && return
  need 'apt-get install python3-pip' "$python" -m pip --version
  need 'apt-get install npm' npm --version
  printf 'fetching standardwebhooks, svix and cloudevents for Python and Node\n' >&2
  rm -rf "$folder"
  "$python" -m pip install --quiet --root-user-action ignore --target "$folder/python" \
    standardwebhooks==1.1.0 svix==2.9.1 cloudevents==2.2.0 >&2
  mkdir -p "$folder/node"
  npm install --silent --no-audit --no-fund --prefix "$folder/node" standardwebhooks@1.1.1 svix@2.5.0 cloudevents@10.0.0 >&2
  touch "$folder/.complete"
}

case ${1:-all} in
  python) from_pypi ;;
  node) from_npm ;;
  messages) messages ;;
  all) from_pypi && from_npm && messages ;;
  *) printf 'error: no peer named %s\nhint: python, node, messages, or none for all\n' "$1" >&2; exit 2 ;;
esac
