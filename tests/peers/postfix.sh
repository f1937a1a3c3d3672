#!/usr/bin/env bash
# Runs Postfix as a plain process for a test: postfix.sh ROOT FOLDER PORT CERTIFICATE KEY. ROOT is the folder in which
# tools/peers.sh has unpacked Debian's packages; all written files are in FOLDER. Postfix requires STARTTLS and the user
# `alerts` with the password `p:a/s%s word`, and puts each email for example.com into FOLDER/mail/new. It ends with the
# process that started it, when stdin closes.
#
# Root has to start Postfix, which then drops its rights to users that every Debian has.
set -euo pipefail
root=$(realpath "$1") folder=$(realpath "$2") port=$3 certificate=$(realpath "$4") key=$(realpath "$5")
sbin=$root/usr/lib/postfix/sbin
libraries=$(dirname "$root"/usr/lib/*/libsasl2.so.2)
export LD_LIBRARY_PATH=$root/usr/lib/postfix:$libraries SASL_PATH=$libraries/sasl2

conf=$folder/conf queue=$folder/queue
mkdir -p "$conf/sasl" "$queue" "$folder/data" "$folder/mail" "$folder/log"
chmod 755 "$folder"
for part in active bounce corrupt defer deferred flush hold incoming private saved trace; do
  install -d -o mail -m 700 "$queue/$part"
done
install -d -o mail -g daemon -m 730 "$queue/maildrop"
install -d -o mail -g daemon -m 710 "$queue/public"
install -d -m 755 "$queue/pid"
chown mail "$folder/data"
chown mail:mail "$folder/mail"

cat >"$conf/sasl/smtpd.conf" <<END
pwcheck_method: auxprop
auxprop_plugin: sasldb
sasldb_path: $folder/data/users
mech_list: PLAIN LOGIN
END
printf 'p:a/s%%s word' | "$root/usr/sbin/saslpasswd2" -p -c -u mail.test -f "$folder/data/users" alerts
chown mail "$folder/data/users"

cat >"$conf/main.cf" <<END
compatibility_level = 3.6
queue_directory = $queue
daemon_directory = $sbin
command_directory = $root/usr/sbin
shlib_directory = $root/usr/lib/postfix
meta_directory = $root/etc/postfix
data_directory = $folder/data
mail_owner = mail
setgid_group = daemon
import_environment = MAIL_CONFIG POSTLOG_SERVICE POSTLOG_HOSTNAME LD_LIBRARY_PATH=$LD_LIBRARY_PATH SASL_PATH=$SASL_PATH
export_environment = MAIL_CONFIG POSTLOG_SERVICE POSTLOG_HOSTNAME LD_LIBRARY_PATH=$LD_LIBRARY_PATH
maillog_file = $folder/log/mail.log
maillog_file_prefixes = $folder
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = mail.test
mydestination =
alias_maps =
mynetworks =
virtual_mailbox_domains = example.com
virtual_mailbox_base = $folder
virtual_mailbox_maps = static:mail/
virtual_uid_maps = static:8
virtual_gid_maps = static:8
virtual_minimum_uid = 8
smtpd_tls_security_level = may
smtpd_tls_auth_only = yes
smtpd_tls_cert_file = $certificate
smtpd_tls_key_file = $key
smtpd_sasl_auth_enable = yes
smtpd_sasl_type = cyrus
smtpd_sasl_path = smtpd
smtpd_sasl_local_domain = mail.test
cyrus_sasl_config_path = $conf/sasl
smtpd_relay_restrictions = permit_sasl_authenticated, reject
smtpd_recipient_restrictions = permit_sasl_authenticated, reject
END
cat >"$conf/master.cf" <<END
127.0.0.1:$port inet n - n - - smtpd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
proxymap unix - - n - - proxymap
error unix - - n - - error
virtual unix - n n - - virtual
anvil unix - - n - 1 anvil
tlsmgr unix - - n - 1 tlsmgr
postlog unix-dgram n - n - 1 postlogd
END
"$sbin/master" -c "$conf" -d &
master=$!
trap 'kill "$master" 2>/dev/null' EXIT
# Nobody writes to stdin; it closes when the test ends.
cat >/dev/null
