#!/usr/bin/env bash
# Checks the dependencies against deny.toml: licenses, bans, sources; and advisories if their database is available.
#
# Installs cargo-deny into cargo's own folder if it is missing: about five minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p target

cargo=${CARGO:-cargo}
version=0.20.2

if ! "$cargo" deny --version >/dev/null 2>&1; then
  printf 'cargo-deny is missing; installing it with: cargo install --locked cargo-deny --version %s\n' "$version" >&2
  "$cargo" install --locked --quiet cargo-deny --version "$version"
fi

"$cargo" deny --locked check licenses bans sources

# The database is a git repository on GitHub, which some machines can't reach. That is reported and not a failure; an
# advisory is a failure.
if timeout 120 "$cargo" deny fetch db >target/deny-fetch.log 2>&1; then
  "$cargo" deny --locked check advisories
else
  printf 'advisories were NOT checked: their database could not be fetched (target/deny-fetch.log says why)\n' >&2
fi
