#!/usr/bin/env bash
# Runs every test and sums the counts up in the last line. Arguments go to `cargo test`.
#
# The tests start the servers that they need by themselves, on free ports and in temporary folders.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
log=target/test.log
mkdir -p target
[[ -t 1 ]] && export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-always}

# What must never ask: a snapshot that differs is a failure, in a terminal too.
export INSTA_UPDATE=no

failed=0
# --no-fail-fast: one run shows everything that is broken.
"$cargo" test --locked --no-fail-fast "$@" 2>&1 | tee "$log" || failed=1

awk '
  match($0, /[0-9]+ passed; [0-9]+ failed; [0-9]+ ignored/) {
    split(substr($0, RSTART, RLENGTH), words, " ")
    passed += words[1]; broken += words[3]; ignored += words[5]
  }
  END {
    line = sprintf("%d passed, %d failed", passed, broken)
    if (ignored) line = line sprintf(", %d skipped", ignored)
    print line
    # A run that tested nothing is no success.
    exit passed == 0
  }
' "$log" || failed=1
exit "$failed"
