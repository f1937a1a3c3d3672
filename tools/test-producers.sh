#!/usr/bin/env bash
# Sends usage to a daemon with programs that others wrote: the CloudEvents SDKs for Python and JavaScript in their three
# modes, the SDK of OpenMeter, of which only the address is changed, and LiteLLM with its callback for OpenMeter and with
# that of packaging/producers. Then compares what was counted.
#
# The programs come from PyPI and npm once, into target/producers; nothing is installed on the machine.
set -euo pipefail
cd "$(dirname "$0")/.."

producers=$PWD/target/producers
source tools/api-daemon.sh

install() { # install NAME PACKAGE ...: a virtual environment of its own, because the SDKs need other versions of each other
  local complete=$producers/$1/.complete-${2##*=}
  [[ -e $complete ]] && return
  rm -rf "${producers:?}/$1"
  "$python" -m venv "$producers/$1" || {
    printf 'error: python3 with venv is needed\nhint: apt-get install python3-venv\n' >&2
    exit 1
  }
  "$producers/$1/bin/pip" install --quiet "${@:2}"
  touch "$complete"
}

install_node() { # install_node PACKAGE@VERSION
  local complete=$producers/node/.complete-${1##*@}
  [[ -e $complete ]] && return
  npm --version >/dev/null 2>&1 || { printf 'error: npm is needed\nhint: apt-get install npm\n' >&2; exit 1; }
  rm -rf "$producers/node"
  mkdir -p "$producers/node"
  npm install --silent --no-audit --no-fund --prefix "$producers/node" "$1" >&2
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

install cloudevents cloudevents==2.2.0
install openmeter openmeter==1.0.0b236
install litellm litellm==1.110.2 redis==8.1.0
install_node cloudevents@10.0.0
redis_port=$(free_port)
start QUOTABELL__HTTP__TOKEN="$token" QUOTABELL__REDIS__EMBEDDED_PORT="$redis_port" QUOTABELL__EVENTS__TYPES='{
  "tokens": {"metrics": {"tokens.in":"data.prompt_tokens","tokens.out":"data.completion_tokens","requests":1}},
  "litellm_tokens": {"metrics": {"tokens.in":"data.prompt_tokens","tokens.out":"data.completion_tokens","requests":1}}}'
url=http://127.0.0.1:$http

printf '\n== CloudEvents for Python\n'
"$producers/cloudevents/bin/python" tests/producers/cloudevents_modes.py "$url" "$token"
counts kunde-%C3%A9%207 sdk.calls=1044

printf '\n== CloudEvents for JavaScript\n'
(cd "$producers/node" && node "$OLDPWD/tests/producers/cloudevents_modes.mjs" "$url" "$token")
counts kunde-%C3%A9%207 js.calls=1044 sdk.calls=1044

printf '\n== OpenMeter\n'
"$producers/openmeter/bin/python" tests/producers/openmeter_sdk.py "$url" "$token"
counts customer-1 requests=3 tokens.in=107 tokens.out=21

export LITELLM_LOCAL_MODEL_COST_MAP=True OPENMETER_API_ENDPOINT="$url" OPENMETER_API_KEY="$token"
export QUOTABELL_REDIS_URL="redis://:$(<"$folder/data/redis-password")@127.0.0.1:$redis_port" PYTHONPATH=packaging/producers
for callback in openmeter litellm_redis; do
  printf '\n== LiteLLM with the callback %s\n' "$callback"
  sent=$("$producers/litellm/bin/python" tests/producers/litellm_callbacks.py "$callback" | tail -n 1)
  # shellcheck disable=SC2086 # Several words.
  counts "$callback" $sent
done
