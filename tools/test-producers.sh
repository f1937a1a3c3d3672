#!/usr/bin/env bash
# Sends usage to a daemon with programs that others wrote: the CloudEvents SDK for Python in its three modes, and the
# SDK of OpenMeter, of which only the address is changed. Then compares what was counted.
#
# The SDKs come from PyPI once, into target/producers; nothing is installed on the machine.
set -euo pipefail
cd "$(dirname "$0")/.."

producers=$PWD/target/producers
source tools/api-daemon.sh

install() { # install NAME PACKAGE: a virtual environment of its own, because the SDKs need other versions of each other
  local complete=$producers/$1/.complete-${2##*=}
  [[ -e $complete ]] && return
  rm -rf "${producers:?}/$1"
  "$python" -m venv "$producers/$1" || {
    printf 'error: python3 with venv is needed\nhint: apt-get install python3-venv\n' >&2
    exit 1
  }
  "$producers/$1/bin/pip" install --quiet "$2"
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
start QUOTABELL__HTTP__TOKEN="$token" QUOTABELL__EVENTS__TYPES='{"tokens":{"metrics":
  {"tokens.in":"data.prompt_tokens","tokens.out":"data.completion_tokens","requests":1}}}'

printf '\n== CloudEvents\n'
"$producers/cloudevents/bin/python" tests/producers/cloudevents_modes.py "http://127.0.0.1:$http" "$token"
counts kunde-%C3%A9%207 sdk.calls=1044

printf '\n== OpenMeter\n'
"$producers/openmeter/bin/python" tests/producers/openmeter_sdk.py "http://127.0.0.1:$http" "$token"
counts customer-1 requests=3 tokens.in=107 tokens.out=21
