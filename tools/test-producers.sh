#!/usr/bin/env bash
# Runs the files of packaging/producers with a Redis server and a daemon that counts: tests/producers/run.py says how.
#
# syslog-ng is unpacked from Debian's package into target/peers, and LiteLLM comes from PyPI into target/producers, both
# once; nothing is installed on the machine. Arguments are the producers to try: nginx, litellm; without them both.
set -euo pipefail
cd "$(dirname "$0")/.."

pypi=(litellm==1.110.2 redis==8.1.0)
python=${PYTHON:-python3}
venv=$PWD/target/producers

complete=$venv/.complete-$(printf '%s\n' "${pypi[@]}" | cksum | cut -d ' ' -f 1)
if [[ ! -e $complete ]]; then
  rm -rf "$venv"
  "$python" -m venv "$venv" || {
    printf 'error: python3 with venv is needed\nhint: apt-get install python3-venv\n' >&2
    exit 1
  }
  printf 'fetching LiteLLM\n' >&2
  "$venv/bin/pip" install --quiet "${pypi[@]}"
  touch "$complete"
fi
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
