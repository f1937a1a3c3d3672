#!/usr/bin/env bash
# Runs schemathesis (PyPI) against the OpenAPI document and a daemon of its own: thousands of requests, legal and
# illegal, none of which may be answered otherwise than the document says, and none with a server error.
#
# The daemon runs with an embedded Redis on free ports and a temporary folder, and is stopped by its process id.
# schemathesis is installed once, into target/openapi. Arguments go to `st run`.
set -euo pipefail
cd "$(dirname "$0")/.."

version=4.32.5
python=${PYTHON:-python3}
venv=$PWD/target/openapi
binary=$PWD/${CARGO_TARGET_DIR:-target}/debug/quotabell
[[ ${CARGO_TARGET_DIR:-} == /* ]] && binary=$CARGO_TARGET_DIR/debug/quotabell
token=a-token-for-one-run-0123456789

"${CARGO:-cargo}" build --locked
if [[ ! -e $venv/.complete-$version ]]; then
  "$python" -m venv "$venv" || {
    printf 'error: python3 with venv is needed to install schemathesis\nhint: apt-get install python3-venv\n' >&2
    exit 1
  }
  "$venv/bin/pip" install --quiet "schemathesis==$version"
  touch "$venv/.complete-$version"
fi

folder=$(mktemp -d)
daemon=
stop() {
  if [[ $daemon ]]; then
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" || true
    daemon=
  fi
}
trap 'stop; rm -rf "$folder"' EXIT

free_port() {
  "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start() { # start [NAME=VALUE ...]: a daemon with these variables, ready
  http=$(free_port)
  env QUOTABELL__HTTP__LISTEN="127.0.0.1:$http" QUOTABELL__REDIS__EMBEDDED_PORT="$(free_port)" \
    QUOTABELL__REDIS__DATA_DIR="$folder/data" QUOTABELL__PLANS__FREE__RATE='{"algorithm":"gcra","requests":"60/1m"}' \
    "$@" "$binary" run 2>>"$folder/log" &
  daemon=$!
  for _ in $(seq 300); do
    "$python" -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$http/readyz')" 2>/dev/null && return
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.1
  done
  printf 'error: the daemon did not become ready\n' >&2
  cat "$folder/log" >&2
  exit 1
}

failed=0
# A subject has at most 256 bytes, which JSON Schema can only say in characters: so what it calls legal may be refused.
# A thousand cases of each operation: the default of a hundred is over before it has tried much.
checks=(--max-examples 1000 --checks all --exclude-checks positive_data_acceptance)

run() { # run TITLE [ARGUMENT ...]
  printf '\n== %s\n' "$1"
  shift
  # The document, but with one URL for all webhooks, which is never called: made-up ones would be looked up and called
  # for real.
  "$python" - "http://127.0.0.1:$http/openapi.json" "$folder/openapi.json" <<'PYTHON'
import json, sys, urllib.request
document = json.load(urllib.request.urlopen(sys.argv[1]))
for kind in document["components"]["schemas"]["NewContact"]["oneOf"]:
    if "url" in kind["properties"]:
        kind["properties"]["url"] = {"const": "https://127.0.0.1/hook"}
json.dump(document, open(sys.argv[2], "w"))
PYTHON
  # In the folder, because schemathesis leaves files where it runs.
  (cd "$folder" && "$venv/bin/st" run openapi.json --url "http://127.0.0.1:$http" "${checks[@]}" "$@") || failed=1
  # A run that asked nothing is no success.
  "$python" - "http://127.0.0.1:$http/metrics" <<'PYTHON' || failed=1
import sys, urllib.request
lines = urllib.request.urlopen(sys.argv[1]).read().decode().splitlines()
checks = [line.rsplit(" ", 1) for line in lines if line.startswith("quotabell_checks_total{")]
print("checks:", ", ".join(f"{name.split(chr(34))[1]} {count}" for name, count in checks if count != "0"))
sys.exit(all(count == "0" for _, count in checks))
PYTHON
}

start QUOTABELL__HTTP__TOKEN="$token"
run 'with the token' --header "Authorization: Bearer $token" "$@"
stop
start
run 'no token is set' "$@"
stop

# What is sent to the made-up webhooks ends dead, and is told.
if grep -E ' (ERROR|panicked)|panicked at' "$folder/log" | grep -v 'settlement_log: delivery is dead'; then
  printf 'error: the daemon logged errors\n' >&2
  failed=1
fi
exit "$failed"
