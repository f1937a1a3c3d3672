#!/usr/bin/env bash
# Installs the missing requirements of quotabell's build, demo and tests: a Redis server (7.0 or later, or Valkey 7.2 or
# later), the system's certificate authorities, a C compiler (one dependency contains C). Does nothing if all of them
# exist.
#
# `setup.sh tests` also installs libfaketime, with which tests give daemons another clock, `setup.sh gateways` nginx with
# njs and HAProxy, `setup.sh producers` nginx, `setup.sh console` the browser Chromium.
#
# Works only on Debian and its derivatives, through apt-get; elsewhere it prints what is missing and exits with 1.
set -euo pipefail

missing=() # packages of Debian
why=()

lacks() { # lacks PACKAGE REASON
  missing+=("$1")
  why+=("  $1: $2")
}

command -v redis-server >/dev/null || command -v valkey-server >/dev/null \
  || lacks redis-server "the demo, the tests and the embedded server start one"
[[ -s /etc/ssl/certs/ca-certificates.crt || -s /etc/pki/tls/certs/ca-bundle.crt || -s /etc/ssl/cert.pem ]] \
  || lacks ca-certificates "HTTPS and TLS to mail servers need authorities to trust"
command -v cc >/dev/null || lacks gcc "one dependency is partly written in C"
command -v cc >/dev/null || [[ -e /usr/include/stdio.h ]] || lacks libc6-dev "its headers"

[[ ${1:-} != tests ]] || compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null \
  || lacks libfaketime "some tests give daemons another clock"

if [[ ${1:-} == console ]]; then
  command -v chromium >/dev/null || lacks chromium "make test-console looks at the console with it"
fi
if [[ ${1:-} == gateways || ${1:-} == producers ]]; then
  PATH=$PATH:/usr/sbin # where Debian has servers
  why_foreign="make test-$1 runs it with files of packaging/$1"
  command -v nginx >/dev/null || lacks nginx "$why_foreign"
fi
if [[ ${1:-} == gateways ]]; then
  [[ -e /usr/lib/nginx/modules/ngx_http_js_module.so ]] || lacks libnginx-mod-http-js "$why_foreign"
  command -v haproxy >/dev/null || lacks haproxy "$why_foreign"
fi

if ! command -v "${CARGO:-cargo}" >/dev/null; then
  printf 'error: cargo was not found\nhint: install Rust 1.88 or later with rustup, see https://rustup.rs\n' >&2
  exit 1
fi
((${#missing[@]})) || exit 0

printf 'This machine lacks:\n' >&2
printf '%s\n' "${why[@]}" >&2

if ! command -v apt-get >/dev/null; then
  printf 'error: there is no apt-get to install them with\nhint: install the packages of that kind of this system, then run make again\n' >&2
  exit 1
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    printf 'error: installing needs root\nhint: as root, apt-get install %s\n' "${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
  # Without a terminal nobody can type a password: fail instead of waiting for one.
  [[ -t 0 ]] || as_root=(sudo -n)
fi

printf 'Installing with: %sapt-get install --no-install-recommends %s\n' "${as_root[*]:+${as_root[*]} }" "${missing[*]}" >&2
"${as_root[@]}" apt-get update -q >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >&2

if [[ " ${missing[*]} " == *" redis-server "* && -d /run/systemd/system ]]; then
  printf '%s\n' 'Debian starts its own service of that package, on port 6379. quotabell leaves it alone and does not use it.' >&2
fi
if [[ " ${missing[*]} " == *" nginx "* && -d /run/systemd/system ]]; then
  printf '%s\n' 'Debian starts its own service of that package, on port 80. The tests leave it alone and do not use it.' >&2
fi
