# A daemon for the tools that call its HTTP API. They source this file in the root of the repository. The daemon has an
# embedded Redis on free ports and a temporary folder ($folder, with the log), and is stopped by its process id.

python=${PYTHON:-python3}
binary=$PWD/${CARGO_TARGET_DIR:-target}/debug/quotabell
[[ ${CARGO_TARGET_DIR:-} == /* ]] && binary=$CARGO_TARGET_DIR/debug/quotabell
token=a-token-for-one-run-0123456789

"${CARGO:-cargo}" build --locked

folder=$(mktemp -d)
daemon=
stop() {
  if [[ $daemon ]]; then
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" || true
    daemon=
  fi
}
trap 'stop; rm -rf "$folder"' EXIT

free_port() {
  "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start() { # start [NAME=VALUE ...]: a daemon with these variables, ready at http://127.0.0.1:$http
  http=$(free_port)
  env QUOTABELL__HTTP__LISTEN="127.0.0.1:$http" QUOTABELL__CONSOLE__LISTEN=off \
    QUOTABELL__REDIS__EMBEDDED_PORT="$(free_port)" \
    QUOTABELL__REDIS__DATA_DIR="$folder/data" QUOTABELL__PLANS__FREE__RATE='{"algorithm":"gcra","requests":"60/1m"}' \
    "$@" "$binary" run 2>>"$folder/log" &
  daemon=$!
  for _ in $(seq 300); do
    "$python" -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$http/readyz')" 2>/dev/null && return
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.1
  done
  printf 'error: the daemon did not become ready\n' >&2
  cat "$folder/log" >&2
  exit 1
}
