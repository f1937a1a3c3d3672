#!/usr/bin/env bash
# Compares what we do with what programs of others do, and has them judge what we send:
# - the same schedules of calls through our limiters and through the Python package `limits`, on one Redis server: every
#   decision;
# - webhooks through the libraries with which others receive them;
# - alert mails through `aiosmtpd` and Postfix with STARTTLS and AUTH, read by Python's `email` and verified by
#   `dkimpy`;
# - all time zones against the PyPI package `tzdata`, with the bundled data and with the files of the package;
# - the rules of packaging/alerts.yaml through `promtool`.
# Needs PyPI, npm and Debian's packages once, which tools/peers.sh unpacks into target/peers and does not install, and
# root for Postfix. So it is no part of `make test`. Arguments go to the test binary.
set -euo pipefail
cd "$(dirname "$0")/.."

for peer in python messages mail-server zones debian; do bash tools/peers.sh "$peer"; done
promtool=target/peers/debian/usr/bin/promtool
"$promtool" check rules packaging/alerts.yaml
"$promtool" test rules packaging/alerts_test.yaml
export QUOTABELL_PEERS=$PWD/target/peers
# A folder that does not exist: the bundled zone data are used.
TZDIR=/nonexistent "${CARGO:-cargo}" test --locked --test peers -- "$@"
TZDIR=$QUOTABELL_PEERS/zones/tzdata/zoneinfo "${CARGO:-cargo}" test --locked --test peers -- zones
