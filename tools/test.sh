#!/usr/bin/env bash
# Runs all tests and prints the sums of the counts in the last line. Arguments go to `cargo test`.
#
# The tests start the servers that they need, on free ports and in temporary folders.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
log=target/test.log
log_of_kill=target/test.kill.log
mkdir -p target
rm -f "$log" "$log_of_kill"
[[ -t 1 ]] && export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-always}

# Never ask: a snapshot that differs is a failure, in a terminal too.
export INSTA_UPDATE=no
# Most tests mainly wait for a server, so twice as many as there are cores run at once.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))}

failed=0
beside=
# --no-fail-fast: one run shows all failures.
if (($#)); then
  "$cargo" test --locked --no-fail-fast "$@" 2>&1 | tee "$log" || failed=1
else
  "$cargo" test --locked --no-run 2>&1 | tee "$log"
  # The two long tests that kill daemons run in parallel with the others; their output comes at the end.
  set -m
  "$cargo" test --locked --no-fail-fast --test kill >"$log_of_kill" 2>&1 &
  beside=$!
  set +m
  trap 'kill -- "-$beside" 2>/dev/null || true' EXIT
  "$cargo" test --locked --no-fail-fast -- --skip kill:: 2>&1 | tee -a "$log" || failed=1
  wait "$beside" || failed=1
  trap - EXIT
  tee -a "$log" <"$log_of_kill"
fi

# What failed, once more at the end, where a reader of a long or cut log looks.
if ((failed)); then
  sed -n '/^failures:$/,/^test result:/p' "$log" | tail -n 300
fi
awk '
  match($0, /[0-9]+ passed; [0-9]+ failed; [0-9]+ ignored/) {
    split(substr($0, RSTART, RLENGTH), words, " ")
    passed += words[1]; broken += words[3]; ignored += words[5]
  }
  END {
    line = sprintf("%d passed, %d failed", passed, broken)
    if (ignored) line = line sprintf(", %d skipped", ignored)
    print line
    # A run without tests is a failure.
    exit passed == 0
  }
' "$log" || failed=1
exit "$failed"
