#!/usr/bin/env bash
# Runs schemathesis (PyPI) against the OpenAPI document and a daemon: thousands of valid and invalid requests. Each
# response must be documented, and none may be a server error. It takes ten minutes.
#
# schemathesis is installed once, into target/openapi. Arguments go to `st run`.
set -euo pipefail
cd "$(dirname "$0")/.."

version=4.32.5
venv=$PWD/target/openapi
source tools/api-daemon.sh
source tools/python-env.sh

python_env "$venv" "schemathesis==$version"

failed=0
# The daemon refuses some requests that JSON Schema allows: an invented `next`, a subject with more bytes than
# characters, a language that does not exist, a first day after the last one. So the run does not check that valid
# requests are accepted; it checks that refusals are as documented.
checks=(--checks all --exclude-checks positive_data_acceptance)

run() { # run TITLE [ARGUMENT ...]
  printf '\n== %s\n' "$1"
  shift
  # The document with one URL for all webhooks, which is never called, because invented URLs would be resolved and
  # called.
  "$python" - "http://127.0.0.1:$http/openapi.json" "$folder/openapi.json" <<'PYTHON'
import json, sys, urllib.request
document = json.load(urllib.request.urlopen(sys.argv[1]))
document["components"]["schemas"]["NewWebhookContact"]["properties"]["url"] = {"const": "https://127.0.0.1/hook"}
json.dump(document, open(sys.argv[2], "w"))
PYTHON
  # Gateways ask with the method of their client, so these two routes take methods that the document does not list.
  cat >"$folder/schemathesis.toml" <<'TOML'
[[operations]]
include-path-regex = "^/v1/authorize"
phases.coverage.unexpected-methods = []
TOML
  # In the folder, because schemathesis leaves files where it runs.
  (cd "$folder" && "$venv/bin/st" run openapi.json --url "http://127.0.0.1:$http" "${checks[@]}" "$@") || failed=1
  # A run without requests is a failure.
  "$python" - "http://127.0.0.1:$http/metrics" <<'PYTHON' || failed=1
import sys, urllib.request
lines = urllib.request.urlopen(sys.argv[1]).read().decode().splitlines()
checks = [line.rsplit(" ", 1) for line in lines if line.startswith("quotabell_checks_total{")]
print("checks:", ", ".join(f"{name.split(chr(34))[1]} {count}" for name, count in checks if count != "0"))
sys.exit(all(count == "0" for _, count in checks))
PYTHON
}

start QUOTABELL__HTTP__TOKEN="$token"
# The default of 100 cases per operation covers too little.
run 'with the token' --max-examples 300 --header "Authorization: Bearer $token" "$@"
stop
start
# The check `missing_required_header` expects 401 for a request without a token. While no token is set, no token is
# valid, and the routes that need one answer 403.
run 'no token is set' --max-examples 30 --exclude-checks positive_data_acceptance,missing_required_header "$@"
stop

# Deliveries to the invented webhooks become dead, which is logged.
if grep -E ' (ERROR|panicked)|panicked at' "$folder/log" | grep -v 'settlement_log: delivery is dead'; then
  printf 'error: the daemon logged errors\n' >&2
  failed=1
fi
exit "$failed"
