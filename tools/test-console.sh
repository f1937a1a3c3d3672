#!/usr/bin/env bash
# Runs tests/console in Debian's Chromium against daemons with sample data. Screenshots are in target/console.
#
# playwright-core and axe come from npm once, in the versions of tests/console/package-lock.json, into
# target/console/npm. With QUOTABELL_DOCS=docs it also writes the pictures of docs/.
set -euo pipefail
cd "$(dirname "$0")/.."

shots=$PWD/target/console
npm=$shots/npm
[[ -z ${QUOTABELL_DOCS:-} ]] || QUOTABELL_DOCS=$PWD/$QUOTABELL_DOCS
if ! node --version >/dev/null 2>&1 || ! npm --version >/dev/null 2>&1; then
  printf 'error: Node 20 or later with npm is needed\nhint: apt-get install nodejs npm\n' >&2
  exit 1
fi
if ! cmp -s tests/console/package-lock.json "$npm/.complete"; then
  printf 'fetching playwright-core and axe-core from npm\n' >&2
  rm -rf "$npm"
  mkdir -p "$npm"
  cp tests/console/package.json tests/console/package-lock.json "$npm"
  npm ci --silent --no-audit --no-fund --prefix "$npm" >&2
  cp tests/console/package-lock.json "$npm/.complete"
fi
cp tests/console/*.mjs "$npm"

"${CARGO:-cargo}" build --locked
target=${CARGO_TARGET_DIR:-$PWD/target}
export QUOTABELL_BINARY=$target/debug/quotabell QUOTABELL_SHOTS=$shots
CHROMIUM=$(command -v chromium)
export CHROMIUM
node --test --test-reporter spec ${QUOTABELL_TESTS:+--test-name-pattern "$QUOTABELL_TESTS"} "$npm"/*.test.mjs
