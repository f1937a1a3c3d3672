#!/usr/bin/env bash
# Runs the files of packaging/producers with a Redis server and a daemon that counts: tests/producers/run.py says how.
#
# syslog-ng is unpacked from Debian's package into target/peers, and LiteLLM comes from PyPI into target/producers, both
# once; nothing is installed on the machine. FLUENT_BIT, VECTOR and REDPANDA_CONNECT name these programs; a producer
# without its program is left out. Arguments are the producers to try: nginx, fluent-bit, vector, litellm,
# redpanda-connect; without them all.
set -euo pipefail
cd "$(dirname "$0")/.."

pypi=(litellm==1.110.2 redis==8.1.0)
venv=$PWD/target/producers

source tools/python-env.sh
python_env "$venv" "${pypi[@]}"
bash tools/peers.sh syslog-ng
export PATH=$venv/bin:$PATH:/usr/sbin
for program in nginx redis-server; do
  command -v "$program" >/dev/null || {
    printf 'error: %s is needed\nhint: bash tools/setup.sh producers\n' "$program" >&2
    exit 1
  }
done

# QUOTABELL names a binary that is built already.
if [[ -z ${QUOTABELL:-} ]]; then
  "${CARGO:-cargo}" build --locked
  QUOTABELL=${CARGO_TARGET_DIR:-target}/debug/quotabell
fi
PYTHONDONTWRITEBYTECODE=1 exec python tests/producers/run.py "$QUOTABELL" "$@"
