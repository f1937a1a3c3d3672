#!/bin/bash
# What tools/test-packages.sh runs in a container: with systemd booted, and without. It writes /srv/results.
set -uo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
cd /srv || exit
unit=quotabell.service
config=/etc/quotabell/quotabell.toml

check() { # check NAME COMMAND...
  local name=$1
  shift
  if "$@" >log 2>&1; then
    printf 'ok: %s\n' "$name" >>results
  else
    { printf 'FAILED: %s\n' "$name"; tail --lines=20 log | sed 's/^/    /'; } >>results
  fi
}

soon() { # soon COMMAND...: succeeds within 10 s; otherwise the output of the last attempt is shown
  for _ in $(seq 100); do
    "$@" >attempt 2>&1 && return
    sleep 0.1
  done
  cat attempt
  return 1
}

no() { ! "$@"; }
# Nothing is fetched: the container has no network, and it has what the package depends on and recommends.
install() { apt-get install --yes "./$1"; }
answers() { exec 3<>/dev/tcp/127.0.0.1/9464 && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && grep -q '200 OK' <&3; }
status_of() { # status_of HEADER: the status of a request that needs a token
  exec 3<>/dev/tcp/127.0.0.1/9464 && printf 'GET /v1/subjects/alice/usage HTTP/1.0\r\n%s\r\n\r\n' "$1" >&3 && head -1 <&3 | cut -d ' ' -f 2
}
counted() { [[ $(quotabell usage alice --json) == *"\"used\":$1,"* ]]; }
alerted() { [[ $(quotabell alerts) == *"$1"* ]]; }
# systemd takes the users of DynamicUser from this range.
has_dynamic_user() {
  local uid
  uid=$(stat --format=%u "/proc/$(property MainPID)")
  printf 'user %s\n' "$uid"
  ((uid >= 61184 && uid <= 65519))
}
property() { systemctl show --property="$1" --value $unit; }
is() { printf '%s is %s, expected %s\n' "$1" "$2" "$3"; [[ $2 == "$3" ]]; }
installed() { dpkg-query --show --showformat='${Version}' quotabell; }
leftovers() {
  local found
  found=$(find / -xdev -name '*quotabell*' -not -path '/srv/*' -not -path '/proc/*' -not -path '/var/lib/dpkg/*' \
    -not -path '/var/log/*' -not -path '/var/cache/apt/*')
  printf '%s\n' "$found"
  [[ -z $found ]]
}

without_systemd() {
  check 'without systemd: installs' install first.deb
  check 'the configuration is valid' quotabell check-config --offline
  check 'without systemd: upgrades' install later.deb
  check 'without systemd: removes' apt-get remove --yes quotabell
  check 'a removal keeps the configuration' test -e $config
  check 'without systemd: installs again' install first.deb
  check 'without systemd: purges' apt-get purge --yes quotabell
  check 'a purge leaves nothing' leftovers
}

booted() {
  # From the packages that debootstrap left in apt's cache.
  apt-get purge --yes redis-server redis-tools >/dev/null 2>&1
  check 'installs, with Redis' install first.deb
  check 'Redis runs' soon redis-cli ping
  # Redis may be configured last.
  check 'the service runs' soon systemctl is-active $unit
  check 'the service is enabled' systemctl is-enabled $unit
  check 'it is ready' soon answers
  check 'it has a user of its own' has_dynamic_user
  redis-cli XADD usage '*' subject alice units 4001 >/dev/null
  check 'it counts an event' soon counted 4001
  check 'it records its deployment' soon test -s /var/lib/quotabell/quotabell-deployments.json
  check 'it raises an alert' soon alerted alice
  check 'systemd rates the exposure below 2.0' exposure
  cat exposure >>results

  printf 'a-token-of-the-test\n' >/etc/quotabell/http_token
  chmod 600 /etc/quotabell/http_token
  mkdir -p /etc/systemd/system/$unit.d
  { printf '[Service]\n'; sed -n '/http_token/s/^#//p' /usr/lib/systemd/system/$unit; } >/etc/systemd/system/$unit.d/override.conf
  systemctl daemon-reload
  check 'starts with a secret' systemctl restart $unit
  check 'a secret of root reaches the service' is status "$(status_of 'Authorization: Bearer a-token-of-the-test')" 200
  check 'others are refused' is status "$(status_of 'Authorization: Bearer another')" 401
  rm -r /etc/systemd/system/$unit.d /etc/quotabell/http_token
  systemctl daemon-reload

  local before
  before=$(property MainPID)
  printf '\n# a change of the administrator\n' >>$config
  check 'upgrades' install later.deb
  check 'the later version is installed' is version "$(installed)" "$(dpkg-deb --field later.deb Version)"
  check 'an upgrade keeps the configuration' grep -q 'a change of the administrator' $config
  check 'an upgrade restarts the service' no is MainPID "$(property MainPID)" "$before"
  check 'it is ready after the upgrade' soon answers
  check 'counts survive the upgrade' counted 4001
  check 'it reloads' systemctl reload $unit

  systemctl disable --now --quiet $unit
  check 'downgrades' apt-get install --yes --allow-downgrades ./first.deb
  check 'an upgrade leaves a disabled service disabled' no systemctl is-enabled --quiet $unit
  check 'an upgrade leaves a stopped, disabled service stopped' no systemctl is-active --quiet $unit
  systemctl enable --quiet $unit

  systemctl stop redis-server
  check 'upgrades without Redis' install later.deb
  cp log without-redis.log
  check 'and says what the service waits for' grep -q 'quotabell is not ready yet' without-redis.log
  systemctl start redis-server
  check 'it is ready when Redis is' soon systemctl is-active --quiet $unit

  sed -i 's/^default_plan = .*/default_plan = "missing"/' $config
  check 'upgrades with a mistake in the configuration' apt-get install --yes --reinstall ./later.deb
  check 'a mistake ends the service with 78' is ExecMainStatus "$(property ExecMainStatus)" 78
  sed -i 's/^default_plan = .*/default_plan = "free"/' $config
  check 'starts after the correction' systemctl restart $unit

  check 'removes' apt-get remove --yes quotabell
  check 'a removal stops the service' no systemctl is-active --quiet $unit
  check 'a removal removes the program' test ! -e /usr/bin/quotabell
  check 'a removal keeps the configuration' test -e $config
  check 'installs after a removal' install first.deb
  check 'the service runs again' systemctl is-active $unit
  check 'purges' apt-get purge --yes quotabell
  check 'a purge stops the service' no systemctl is-active --quiet $unit
  check 'a purge leaves nothing' leftovers
  check 'no unit has failed' no_failed_unit
}

exposure() {
  systemd-analyze security --no-pager $unit | tail -1 | tee exposure
  local tenths
  tenths=$(grep -o '[0-9]*\.[0-9]' exposure | tr -d .)
  ((10#$tenths < 20))
}

no_failed_unit() { systemctl --failed --no-legend; [[ -z $(systemctl --failed --no-legend) ]]; }

run() {
  rm -f results
  "$1"
  printf 'done\n' >>results
}

case $(cat mode) in
  without-systemd) run without_systemd ;;
  booted) run booted ;;
esac
