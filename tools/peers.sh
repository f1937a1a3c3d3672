#!/usr/bin/env bash
# Fetches foreign programs for comparisons into target/peers, once; installs nothing on the machine.
#
# `peers.sh python` fetches the limiter `limits` from PyPI, `peers.sh node` the limiter `rate-limiter-flexible` from
# npm, each with its client of Redis. `peers.sh messages` fetches from both the libraries of webhook receivers,
# `peers.sh mail-server` the mail server `aiosmtpd` from PyPI, `peers.sh zones` the zone data `tzdata` from PyPI,
# `peers.sh debian` Postfix and promtool, and `peers.sh syslog-ng` syslog-ng from Debian. Without an argument it fetches all of them.
set -euo pipefail
cd "$(dirname "$0")/.."

peers=target/peers
python=${PYTHON:-python3}

need() { # need HINT COMMAND...: the command works
  local hint=$1
  shift
  "$@" >/dev/null 2>&1 || {
    printf 'error: %s is needed to fetch the peers\nhint: %s\n' "$1" "$hint" >&2
    exit 1
  }
}

from_pypi() { # every version is named: another one may decide otherwise
  local folder=$peers/python
  [[ -e $folder/.complete ]] && return
  need 'apt-get install python3-pip' "$python" -m pip --version
  printf 'fetching limits and redis for Python\n' >&2
  rm -rf "$folder"
  "$python" -m pip install --quiet --root-user-action ignore --target "$folder" limits==5.8.0 redis==8.1.0 hiredis >&2
  touch "$folder/.complete"
}

from_npm() {
  local folder=$peers/node
  [[ -e $folder/.complete ]] && return
  need 'apt-get install npm' npm --version
  printf 'fetching rate-limiter-flexible and ioredis for Node\n' >&2
  rm -rf "$folder"
  mkdir -p "$folder"
  npm install --silent --no-audit --no-fund --prefix "$folder" rate-limiter-flexible@11.4.0 ioredis@6.0.0 >&2
  touch "$folder/.complete"
}

messages() {
  local folder=$peers/messages
  [[ -e $folder/.complete-dkim ]] && return
  need 'apt-get install python3-pip' "$python" -m pip --version
  need 'apt-get install npm' npm --version
  printf 'fetching standardwebhooks, svix and cloudevents for Python and Node, and dkimpy\n' >&2
  rm -rf "$folder"
  "$python" -m pip install --quiet --root-user-action ignore --target "$folder/python" \
    standardwebhooks==1.1.0 svix==2.9.1 cloudevents==2.2.0 dkimpy==1.1.8 >&2
  mkdir -p "$folder/node"
  npm install --silent --no-audit --no-fund --prefix "$folder/node" standardwebhooks@1.1.1 svix@2.5.0 cloudevents@10.0.0 >&2
  touch "$folder/.complete-dkim"
}

mail_server() {
  local folder=$peers/mail-server
  [[ -e $folder/.complete ]] && return
  need 'apt-get install python3-pip' "$python" -m pip --version
  printf 'fetching aiosmtpd\n' >&2
  rm -rf "$folder"
  "$python" -m pip install --quiet --root-user-action ignore --target "$folder" aiosmtpd==1.4.6 >&2
  touch "$folder/.complete"
}

zones() { # the newest: the test says when the bundled data are older
  local folder=$peers/zones
  [[ -e $folder/.complete ]] && return
  need 'apt-get install python3-pip' "$python" -m pip --version
  printf 'fetching tzdata\n' >&2
  rm -rf "$folder"
  "$python" -m pip install --quiet --root-user-action ignore --target "$folder" tzdata >&2
  touch "$folder/.complete"
}

# Unpacks packages of Debian, with those of their dependencies that are missing. Installs none and starts no service.
unpack() { # unpack FOLDER PACKAGE...
  local folder=$1
  shift
  need "${folder##*/} is taken from Debian" apt-get --version
  need 'apt-get install dpkg' dpkg-deb --version
  printf 'fetching %s from Debian\n' "$*" >&2
  rm -rf "$folder"
  mkdir -p "$folder/packages/partial"
  apt-get install --quiet=2 --yes --no-install-recommends --reinstall --download-only -o Debug::NoLocking=true \
    -o Dir::Cache::archives="$PWD/$folder/packages" "$@" >&2
  for package in "$folder"/packages/*.deb; do dpkg-deb -x "$package" "$folder"; done
  rm -rf "$folder/packages"
}

# Postfix, with Cyrus SASL for its passwords, and Prometheus without its dependencies, for promtool.
debian() {
  local folder=$peers/debian
  [[ -e $folder/.complete ]] && return
  unpack "$folder" postfix sasl2-bin libsasl2-2 libsasl2-modules libsasl2-modules-db
  printf 'fetching prometheus from Debian\n' >&2
  mkdir "$folder/packages"
  (cd "$folder/packages" && apt-get download --quiet=2 prometheus >&2)
  dpkg-deb -x "$folder"/packages/prometheus_*.deb "$folder"
  rm -rf "$folder/packages"
  touch "$folder/.complete"
}

syslog_ng() {
  local folder=$peers/syslog-ng
  [[ -e $folder/.complete ]] && return
  unpack "$folder" syslog-ng-core syslog-ng-mod-redis
  touch "$folder/.complete"
}

case ${1:-all} in
  python) from_pypi ;;
  node) from_npm ;;
  messages) messages ;;
  mail-server) mail_server ;;
  zones) zones ;;
  debian) debian ;;
  syslog-ng) syslog_ng ;;
  all) from_pypi && from_npm && messages && mail_server && zones && debian && syslog_ng ;;
  *) printf 'error: no peer named %s\nhint: python, node, messages, mail-server, zones, debian, syslog-ng, or none for all\n' "$1" >&2; exit 2 ;;
esac
