#!/usr/bin/env bash
# Sends usage to a daemon with programs that others wrote: the CloudEvents SDKs for Python and JavaScript in their three
# modes, the SDK of OpenMeter with another address, and LiteLLM with its callback for OpenMeter. Then compares what was
# counted.
#
# The programs come from PyPI and npm once, into target/sdks; nothing is installed on the machine.
set -euo pipefail
cd "$(dirname "$0")/.."

sdks=$PWD/target/sdks
source tools/api-daemon.sh
source tools/python-env.sh

install_node() { # install_node PACKAGE@VERSION
  local complete=$sdks/node/.complete-${1##*@}
  [[ -e $complete ]] && return
  npm --version >/dev/null 2>&1 || { printf 'error: npm is needed\nhint: apt-get install npm\n' >&2; exit 1; }
  rm -rf "$sdks/node"
  mkdir -p "$sdks/node"
  npm install --silent --no-audit --no-fund --prefix "$sdks/node" "$1" >&2
  touch "$complete"
}

counts() { # counts SUBJECT METRIC=UNITS ...: until the daemon has counted exactly these
  local subject=$1
  shift
  "$python" - "http://127.0.0.1:$http/v1/subjects/$subject/usage" "$token" "$@" <<'PYTHON'
import json, sys, time, urllib.request
url, token, *expected = sys.argv[1:]
request = urllib.request.Request(url, headers={"authorization": f"Bearer {token}"})
for _ in range(100):
    metrics = json.load(urllib.request.urlopen(request))["metrics"]
    days = [(of["metric"], one["used"]) for of in metrics for one in of["windows"] if one["window"] == "day"]
    found = sorted(f"{metric}={used}" for metric, used in days if used)
    if found == sorted(expected):
        print("counted:", *found)
        sys.exit()
    time.sleep(0.1)
sys.exit(f"counted are {found}, not {expected}")
PYTHON
}

# An environment each, because they need other versions of each other.
python_env "$sdks/cloudevents" cloudevents==2.2.0
python_env "$sdks/openmeter" openmeter==1.0.0b236
python_env "$sdks/litellm" litellm==1.110.2
install_node cloudevents@10.0.0
start QUOTABELL__HTTP__TOKEN="$token" QUOTABELL__EVENTS__TYPES='{
  "tokens": {"metrics": {"tokens.in":"data.prompt_tokens","tokens.out":"data.completion_tokens","requests":1}},
  "litellm_tokens": {"metrics": {"tokens.in":"data.prompt_tokens?","tokens.out":"data.completion_tokens?","requests":1}}}'
url=http://127.0.0.1:$http

printf '\n== CloudEvents for Python\n'
"$sdks/cloudevents/bin/python" tests/sdks/cloudevents_modes.py "$url" "$token"
counts kunde-%C3%A9%207 sdk.calls=1044

printf '\n== CloudEvents for JavaScript\n'
(cd "$sdks/node" && node "$OLDPWD/tests/sdks/cloudevents_modes.mjs" "$url" "$token")
counts kunde-%C3%A9%207 js.calls=1044 sdk.calls=1044

printf '\n== OpenMeter\n'
"$sdks/openmeter/bin/python" tests/sdks/openmeter_sdk.py "$url" "$token"
counts customer-1 requests=3 tokens.in=107 tokens.out=21

export LITELLM_LOCAL_MODEL_COST_MAP=True OPENMETER_API_ENDPOINT="$url" OPENMETER_API_KEY="$token"
printf '\n== LiteLLM with its callback for OpenMeter\n'
sent=$("$sdks/litellm/bin/python" tests/sdks/litellm_openmeter.py customer-2 | tail -n 1)
# shellcheck disable=SC2086 # Several words.
counts customer-2 $sent
