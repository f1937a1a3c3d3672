#!/usr/bin/env bash
# Runs the same schedules of calls through our limiters and through the Python package `limits`, on one Redis server, and compares
# every decision; and has what we send judged by the libraries with which others receive it. Needs PyPI and npm once, so it is no part
# of `make test`. Arguments go to the test binary.
set -euo pipefail
cd "$(dirname "$0")/.."

bash tools/peers.sh python
bash tools/peers.sh messages
export QUOTABELL_PEERS=$PWD/target/peers
"${CARGO:-cargo}" test --locked --test peers -- "$@"
