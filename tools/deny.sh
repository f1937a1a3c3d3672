#!/usr/bin/env bash
# Judges the dependencies by deny.toml: licences, bans, sources; and advisories where their database can be had.
#
# Installs cargo-deny once, into cargo's own folder for programs, if it is missing: about five minutes on two cores.
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

# The database is a git repository on GitHub, which not every machine reaches. That is said and is no failure; an
# advisory is one.
if timeout 120 "$cargo" deny fetch db >target/deny-fetch.log 2>&1; then
  "$cargo" deny --locked check advisories
else
  printf 'advisories were NOT checked: their database could not be fetched (target/deny-fetch.log says why)\n' >&2
fi
