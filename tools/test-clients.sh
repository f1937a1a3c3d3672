#!/usr/bin/env bash
# Checks the OpenAPI document with its users' tools: Redocly and Spectral lint it, openapi-python-client and
# openapi-typescript generate clients, mypy and tsc compile them, and tests/clients/ calls a daemon with them.
#
# The programs come from PyPI and npm once, into target/clients; nothing is installed on the machine.
set -euo pipefail
cd "$(dirname "$0")/.."

clients=$PWD/target/clients
pypi=(openapi-python-client==0.29.1 mypy==2.4.1)
npm=(@redocly/cli@2.77.0 @stoplight/spectral-cli@6.16.3 openapi-typescript@7.13.0 openapi-fetch@0.17.0
  typescript@5.9.3 @types/node@20.19.43)
source tools/api-daemon.sh

complete=$clients/.complete-$(printf '%s\n' "${pypi[@]}" "${npm[@]}" | cksum | cut -d ' ' -f 1)
if [[ ! -e $complete ]]; then
  npm --version >/dev/null 2>&1 || { printf 'error: npm is needed\nhint: apt-get install npm\n' >&2; exit 1; }
  rm -rf "$clients"
  "$python" -m venv "$clients/python" || {
    printf 'error: python3 with venv is needed\nhint: apt-get install python3-venv\n' >&2
    exit 1
  }
  "$clients/python/bin/pip" install --quiet "${pypi[@]}"
  mkdir -p "$clients/node"
  npm install --silent --no-audit --no-fund --prefix "$clients/node" "${npm[@]}" >&2
  touch "$complete"
fi
PATH=$clients/python/bin:$clients/node/node_modules/.bin:$PATH

start QUOTABELL__HTTP__TOKEN="$token"
url=http://127.0.0.1:$http
generated=$clients/generated
rm -rf "$generated"
mkdir -p "$generated"
"$python" - "$url/openapi.json" "$generated/openapi.json" <<'PYTHON'
import sys, urllib.request
urllib.request.urlretrieve(sys.argv[1], sys.argv[2])
PYTHON
cp tests/clients/call.{py,ts} "$generated"
cd "$generated"

printf '\n== lint\n'
export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true
redocly lint --extends recommended --format summary openapi.json
printf 'extends: ["spectral:oas"]\n' >ruleset.yaml
spectral lint --ruleset ruleset.yaml openapi.json

printf '\n== Python\n'
# A schema that the generator can't read causes only a warning, and the client lacks it.
printf '%s\n' 'project_name_override: quotabell-client' 'post_hooks: []' 'content_type_overrides:' \
  '  application/x-ndjson: application/octet-stream' '  application/jsonl: application/octet-stream' >config.yaml
openapi-python-client generate --path openapi.json --config config.yaml --meta none --output-path quotabell_client --fail-on-warning
python -m compileall -q quotabell_client
mypy --strict call.py
python call.py "$url" "$token"

printf '\n== TypeScript\n'
openapi-typescript openapi.json --output quotabell.d.ts
ln -s "$clients/node/node_modules" node_modules
printf '{"type": "module"}\n' >package.json
tsc --strict --noUncheckedIndexedAccess --target es2022 --module nodenext call.ts
node call.js "$url" "$token"
