#!/usr/bin/env bash
# Runs each query of the dashboard and of the alert rules on a real Prometheus: tools/test-grafana.py says how.
#
# The parser of queries comes from PyPI once, into target/grafana, and Prometheus from Debian's package, which
# tools/peers.sh unpacks into target/peers; nothing is installed on the machine. The test needs redis-server and builds
# the daemon.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$PWD/target/grafana/venv
pypi=(promql-parser==0.12.0 PyYAML==6.0.4)

source tools/python-env.sh
python_env "$venv" "${pypi[@]}"
bash tools/peers.sh debian
export PROMETHEUS=$PWD/target/peers/debian/usr/bin/prometheus

command -v redis-server >/dev/null && command -v redis-cli >/dev/null || {
  printf 'error: redis-server and redis-cli are needed\nhint: make setup\n' >&2
  exit 1
}
# QUOTABELL names a binary that is built already.
if [[ -z ${QUOTABELL:-} ]]; then
  "${CARGO:-cargo}" build --locked
  target=${CARGO_TARGET_DIR:-target}
  export QUOTABELL=$target/debug/quotabell
fi
exec "$venv/bin/python" tools/test-grafana.py
