#!/usr/bin/env bash
# Compares our behavior with that of foreign programs, and verifies our messages with them:
# - the same schedules of calls through our limiters and through the Python package `limits`, on one Redis server: every
#   decision;
# - webhooks with the libraries of receivers;
# - alert emails through `aiosmtpd` and Postfix with STARTTLS and AUTH, parsed by Python's `email` and verified by
#   `dkimpy`;
# - all time zones against the PyPI package `tzdata`, with the bundled data and with the files of the package;
# - the rules of packaging/alerts.yaml with `promtool`.
# It needs PyPI, npm and Debian's packages once, which tools/peers.sh unpacks into target/peers and does not install,
# and root for Postfix. So it is not a part of `make test`. Arguments go to the test binary.
set -euo pipefail
cd "$(dirname "$0")/.."

for peer in python messages mail-server zones debian; do bash tools/peers.sh "$peer"; done
promtool=target/peers/debian/usr/bin/promtool
"$promtool" check rules packaging/alerts.yaml
"$promtool" test rules packaging/alerts_test.yaml
export QUOTABELL_PEERS=$PWD/target/peers
# A folder that does not exist, so that the bundled zone data are used.
TZDIR=/nonexistent "${CARGO:-cargo}" test --locked --test peers -- "$@"
TZDIR=$QUOTABELL_PEERS/zones/tzdata/zoneinfo "${CARGO:-cargo}" test --locked --test peers -- zones
