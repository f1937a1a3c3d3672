//! Every Redis key of quotabell, spelled here and nowhere else.
//!
//! `{tag}` is the partition's stream name in braces, so that all keys of a partition are in the hash slot of the
//! stream. Braces in a subject do no harm, because Redis hashes only the text between the first pair.
//!
//! docs/redis-keys.md lists the content and the lifetime of each key.
//!
//! Metric, threshold, period, units and bucket hold no colon, so a subject with colons can't collide with another.

use std::sync::Arc;

use super::alert::AlertKey;
pub use super::bucket::{BUCKETS, bucket};
use super::text::glob_literal;
use super::{
    Channel, ContactId, Day, Destination, Metric, Month, PartitionNumber, Period, Separator, Subject, Threshold,
    UsageNoticeKind,
};

/// Default prefix of the keys of subjects (setting `subjects.prefix`).
pub const SUBJECT_PREFIX_DEFAULT: &str = "quota_subject:";

/// Prefix of all other keys.
pub const FAMILY_PREFIX: &str = "quota_";
/// Prefix of the keys of grants in all partitions, for client tracking.
pub const GRANTS_PREFIX: &str = "quota_grants:";

/// The running daemons of all streams in this Redis: `<daemon> <stream>`.
pub const DAEMONS: &str = "quota_daemons";

/// The consumer group that shows our progress to tools such as XINFO GROUPS and KEDA.
pub const GROUP: &str = "quotabell";

/// `80`, `used5000` or `remaining1000`: the text of a threshold without its colon, which separates the parts of a key.
fn threshold_in_key(threshold: Threshold) -> String {
    threshold.to_string().replace(':', "")
}

/// The subject of a key of [`Keys::grants`]; `None` for another key.
pub fn subject_with_grants(key: &[u8]) -> Option<&[u8]> {
    // A stream's name has no brace.
    let rest = key.strip_prefix(GRANTS_PREFIX.as_bytes())?;
    let end = rest.windows(2).position(|pair| pair == b"}:")?;
    Some(&rest[end + 2..])
}

/// The channel that stream readers subscribe to at the server process with this run id. Nobody publishes there;
/// `RawConnection::subscribe` and `commit.lua` explain it.
pub fn reader_channel(run_id: &str) -> String {
    format!("quota_reader:{run_id}")
}

/// The keys of one partition and of its subjects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    stream: String,
    /// The stream in braces, which all keys of a partition contain.
    pub(super) tag: String,
    subject_prefix: Arc<str>,
    /// Name of the stream without the number of the partition.
    name: Arc<str>,
    partition: PartitionNumber,
    separator: Separator,
}

impl Keys {
    /// The keys of the only partition of the stream with this name, with the default prefix of subjects. The name
    /// contains no brace.
    pub fn new(stream: &str) -> Self {
        Self::of_partition(stream, PartitionNumber::first(1))
    }

    /// The keys of one partition of the streams with this name, with the default prefix of subjects.
    pub fn of_partition(name: &str, partition: PartitionNumber) -> Self {
        let stream = partition.stream(name);
        let tag = format!("{{{stream}}}");
        let (subject_prefix, separator) = (SUBJECT_PREFIX_DEFAULT.into(), Separator::NONE);
        Self { stream, tag, subject_prefix, name: name.into(), partition, separator }
    }

    /// The keys of another partition.
    pub fn of_sibling(&self, partition: PartitionNumber) -> Self {
        let (subject_prefix, separator) = (Arc::clone(&self.subject_prefix), self.separator);
        Self { subject_prefix, separator, ..Self::of_partition(&self.name, partition) }
    }

    /// The same keys with another prefix of subjects.
    #[must_use]
    pub fn with_subject_prefix(self, prefix: &str) -> Self {
        Self { subject_prefix: prefix.into(), ..self }
    }

    /// The same keys for subjects with this separator.
    #[must_use]
    pub fn with_separator(self, separator: Separator) -> Self {
        Self { separator, ..self }
    }

    /// The separator of subjects.
    pub const fn separator(&self) -> Separator {
        self.separator
    }

    /// The partition of a subject.
    pub fn partition_of(&self, subject: &[u8]) -> PartitionNumber {
        PartitionNumber::of_subject(subject, self.separator, self.partition.count())
    }

    /// The partition.
    pub const fn partition(&self) -> PartitionNumber {
        self.partition
    }

    /// Name of the streams without the number of a partition: `stream.key`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The usage stream.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Prefix of the keys of subjects: `quota_subject:` by default.
    pub fn subject_prefix(&self) -> &str {
        &self.subject_prefix
    }

    /// Keys for a dry run in the same slot and with the same patterns, distinguished by `nonce`.
    pub fn dry_run(&self, nonce: &str) -> Self {
        let tag = format!("{}.probe.{nonce}", self.tag);
        Self { stream: format!("quota_probe:{tag}"), tag, ..self.clone() }
    }

    /// `<prefix><subject>`: a subject's plan, zone, limits and contacts.
    pub fn subject(&self, subject: &Subject) -> String {
        format!("{}{subject}", self.subject_prefix)
    }

    /// `quota_grants:{tag}:<subject>`, with the tag of the subject's partition, whatever partition these keys are of.
    pub fn grants(&self, subject: &Subject) -> String {
        let stream = self.partition_of(subject.as_str().as_bytes()).stream(&self.name);
        format!("{GRANTS_PREFIX}{{{stream}}}:{subject}")
    }

    /// The same with the tag of this partition, for a subject that was in it under another separator.
    pub fn grants_here(&self, subject: &Subject) -> String {
        format!("{GRANTS_PREFIX}{}:{subject}", self.tag)
    }

    /// `quota_usage:{tag}:<metric>:<period>:<bucket>`.
    pub fn usage(&self, metric: &Metric, period: impl Into<Period>, bucket: u8) -> String {
        format!("quota_usage:{}:{metric}:{}:{bucket:02x}", self.tag, period.into())
    }

    /// `quota_raised:{tag}:<metric>:<period>:<bucket>`.
    pub fn raised(&self, metric: &Metric, period: impl Into<Period>, bucket: u8) -> String {
        format!("quota_raised:{}:{metric}:{}:{bucket:02x}", self.tag, period.into())
    }

    /// The field of [`Keys::raised`] that holds one subject's alert: `<threshold>:<subject>`.
    pub fn raised_field(threshold: Threshold, subject: &Subject) -> String {
        format!("{}:{subject}", threshold_in_key(threshold))
    }

    /// The field of [`Keys::raised`] that holds the ends of one subject's alerts: `ends:<subject>`.
    pub fn ends_field(subject: &Subject) -> String {
        format!("ends:{subject}")
    }

    /// `quota_metrics:{tag}:<period>`.
    pub fn metrics(&self, period: impl Into<Period>) -> String {
        format!("quota_metrics:{}:{}", self.tag, period.into())
    }

    /// `quota_alert:{tag}:<subject>:<metric>:<threshold>:<period>:<units>`: the flag.
    pub fn flag(&self, alert: &AlertKey<'_>) -> String {
        let AlertKey { subject, metric, period, threshold, units } = alert;
        let [before, between] = self.flag_parts(subject, metric, *period);
        format!("{before}{}{between}{units}", threshold_in_key(*threshold))
    }

    /// `quota_alert:{tag}:<subject>:<metric>:<kind>:<period>:0`: the flag of notices of usage, which holds their ids.
    pub fn notice_flag(&self, kind: UsageNoticeKind, subject: &Subject, metric: &Metric, period: Period) -> String {
        let [before, between] = self.flag_parts(subject, metric, period);
        format!("{before}{kind}{between}0")
    }

    /// The parts of a flag before the threshold, and between the threshold and the units, for scripts that read these
    /// two from Redis.
    pub fn flag_parts(&self, subject: &Subject, metric: &Metric, period: Period) -> [String; 2] {
        [format!("quota_alert:{}:{subject}:{metric}:", self.tag), format!(":{period}:")]
    }

    /// `quota_alert_log:{tag}:<month>`.
    pub fn alert_log(&self, month: Month) -> String {
        format!("{}{month}", self.alert_log_prefix())
    }

    /// `quota_due:{tag}:<destination>`.
    pub fn due(&self, destination: &Destination) -> String {
        format!("{}{destination}", self.due_prefix())
    }

    /// `quota_delivery:{tag}:<delivery id>`.
    pub fn delivery(&self, id: &super::DeliveryId) -> String {
        format!("{}{id}", self.delivery_prefix())
    }

    /// `quota_cap:{tag}:<channel>`, or `quota_cap:{tag}:<channel>:<destination>` if each destination has its own cap,
    /// such as `https://example.com`.
    pub fn cap(&self, channel: Channel, destination: Option<&str>) -> String {
        let channel = channel.as_str();
        match destination {
            None => format!("quota_cap:{}:{channel}", self.tag),
            Some(destination) => format!("quota_cap:{}:{channel}:{destination}", self.tag),
        }
    }

    /// The subject of a key of settings, deliveries, failing contacts, children, or a limiter's window.
    pub fn subject_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        let prefixes = [self.subject_deliveries_prefix(), self.failing_prefix(), self.children_prefix()];
        let prefixes = prefixes.iter().map(String::as_str).chain([self.subject_prefix()]);
        let windows = self.window_prefix();
        // Behind an algorithm and a metric, which have no colon.
        let in_window = || key.strip_prefix(windows.as_str())?.splitn(3, ':').nth(2);
        prefixes.into_iter().find_map(|prefix| key.strip_prefix(prefix)).or_else(in_window)
    }

    /// A pattern of SCAN that the key of every subject matches.
    pub fn subject_pattern(&self) -> String {
        format!("{}*", glob_literal(&self.subject_prefix))
    }
}

/// Defines keys of a partition, and prefixes of keys. `{}` is the tag.
macro_rules! keys_of_partition {
    ($($(#[$doc:meta])* $name:ident$(($($part:ident: $type:ty),+))? = $format:literal;)+) => {
        impl Keys {
            $(
                #[doc = concat!("`", $format, "`, with the tag of the partition.")]
                $(#[$doc])*
                pub fn $name(&self $($(, $part: $type)+)?) -> String {
                    format!($format, self.tag)
                }
            )+
        }
    };
}

keys_of_partition! {
    /// In the first partition only.
    actions = "quota_actions:{}";
    checkpoint = "quota_checkpoint:{}";
    /// A month follows, such as `2026-11`.
    alert_log_prefix = "quota_alert_log:{}:";
    /// The parent's name follows.
    children_prefix = "quota_children:{}:";
    /// Subjects with grants, by when something of them is due.
    grants_due = "quota_grants_due:{}";
    history_metrics = "quota_history_metrics:{}";
    outbox = "quota_outbox:{}";
    refused = "quota_refused:{}";
    /// A destination follows. Scripts that read the destination from Redis need this prefix and the following ones.
    due_prefix = "quota_due:{}:";
    /// A destination follows.
    leased_prefix = "quota_leased:{}:";
    /// A destination follows.
    destination_prefix = "quota_destination:{}:";
    /// A subject follows.
    failing_prefix = "quota_failing:{}:";
    /// Healthy destinations: those that answered the last attempt.
    destinations = "quota_destinations:{}";
    circuits = "quota_circuits:{}";
    /// The other destinations.
    destinations_unhealthy = "quota_destinations_unhealthy:{}";
    paused = "quota_paused:{}";
    pending = "quota_pending:{}";
    waiting = "quota_waiting:{}";
    /// Pending deliveries that leave in one message with others, by group.
    grouped = "quota_grouped:{}";
    /// A delivery's id follows.
    delivery_prefix = "quota_delivery:{}:";
    deliveries = "quota_deliveries:{}";
    /// A subject follows, or nothing for deliveries without a subject, such as digests.
    subject_deliveries_prefix = "quota_subject_deliveries:{}:";
    dead = "quota_dead:{}";
    lease = "quota_lease:{}";
    unverified = "quota_unverified:{}";
    digest = "quota_digest:{}";
    unsubscribe_key = "quota_unsubscribe_key:{}";
    console_key = "quota_console_key:{}";
    portal_key = "quota_portal_key:{}";
    portal_revoked = "quota_portal_revoked:{}";
    /// `login` is a digest of the login's secret.
    console_link(login: &str) = "quota_console_link:{}:{login}";
    /// `form` is a digest of what the form sent.
    console_form(form: &str) = "quota_console_form:{}:{form}";
    totals = "quota_totals:{}";
    history(metric: &Metric, bucket: u8) = "quota_history:{}:{metric}:{bucket:02x}";
    profiles(metric: &Metric, bucket: u8) = "quota_profile:{}:{metric}:{bucket:02x}";
    history_progress(day: Day) = "quota_history_progress:{}:{day}";
    event_ids(window: u64) = "quota_seen:{}:{window}";
    /// The id is derived from channel and address.
    send_test_cooldown(contact: &ContactId) = "quota_cooldown:{}:send-test:{contact}";
    /// An algorithm, a metric and a subject follow.
    window_prefix = "quota_window:{}:";
    /// Before long keys are shortened. Each algorithm reads only its own keys.
    limiter(algorithm: &str, metric: &Metric, subject: &Subject) = "quota_window:{}:{algorithm}:{metric}:{subject}";
    /// `address` is a digest of the address.
    verify_requests(address: &str) = "quota_verify_requests:{}:{address}";
    /// `subject` is a digest, because a subject may be longer than a limiter's key.
    verify_open(subject: &str) = "quota_verify_open:{}:{subject}";
    /// `contact` is a digest of subject, endpoint and the contact's nonce.
    verify_code(contact: &str) = "quota_verify_code:{}:{contact}";
    /// `code` is the code's nonce.
    verify_guesses(code: &str) = "quota_verify_guesses:{}:{code}";
    /// `token` is a digest of the token.
    verify_link(token: &str) = "quota_verify_link:{}:{token}";
    /// `subject` is a digest of the subject, so the key identifies nobody.
    verify_sent(subject: &str) = "quota_verify_sent:{}:{subject}";
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Keys are part of the contract.
    #[test]
    fn keys_are_spelled_as_documented() {
        let keys = Keys::new("usage");
        let alice = Subject::parse(b"alice").expect("legal");
        let period = Period::parse("2026-11-21T14Z").expect("legal");
        let metric = Metric::default();
        assert_eq!(keys.usage(&metric, period, 10), "quota_usage:{usage}:requests:2026-11-21T14Z:0a");
        for (threshold, in_key) in [("80", "80"), ("used:480", "used480"), ("remaining:120", "remaining120")] {
            let threshold = threshold.parse().expect("legal");
            let alert = AlertKey { subject: &alice, metric: &metric, period, threshold, units: 480 };
            assert_eq!(keys.flag(&alert), format!("quota_alert:{{usage}}:alice:requests:{in_key}:2026-11-21T14Z:480"));
            assert_eq!(Keys::raised_field(threshold, &alice), format!("{in_key}:alice"));
        }
        assert_eq!(keys.cap(Channel::Email, None), "quota_cap:{usage}:email");
        assert_eq!(
            keys.cap(Channel::Webhook, Some("https://b.test:8443")),
            "quota_cap:{usage}:webhook:https://b.test:8443"
        );
        assert_eq!(keys.dry_run("x").outbox(), "quota_outbox:{usage}.probe.x");
        assert_eq!(keys.subject(&alice), "quota_subject:alice");
        assert_eq!(keys.grants(&alice), "quota_grants:{usage}:alice");
        let odd = Subject::parse(b"a}:b").expect("legal");
        for keys in [Keys::new("usage"), Keys::of_partition("usage", PartitionNumber::first(8))] {
            assert_eq!(subject_with_grants(keys.grants(&odd).as_bytes()), Some(b"a}:b".as_slice()));
        }
        let third = PartitionNumber::all(4).nth(3).expect("there are four");
        let other = Keys::of_partition("usage", third).dry_run("x");
        assert_eq!(
            (other.stream(), other.outbox().as_str()),
            ("quota_probe:{usage:3}.probe.x", "quota_outbox:{usage:3}.probe.x")
        );
        assert_eq!(keys.of_sibling(third).stream(), "usage:3");
        assert_eq!(keys.with_subject_prefix("eu:subject:").subject(&alice), "eu:subject:alice");
    }

    proptest! {
        /// Two different flags never share a key, whatever colons and braces a subject contains.
        #[test]
        fn flags_of_different_subjects_differ(a in "[a:{}*0-9-]{1,12}", b in "[a:{}*0-9-]{1,12}", m in "[a-z0-9_.-]{1,4}", n in "[a-z0-9_.-]{1,4}") {
            prop_assume!((&a, &m) != (&b, &n));
            let keys = Keys::new("usage");
            let period = Period::parse("2026-11-21").expect("legal");
            let threshold = "used:480".parse().expect("legal");
            let flag = |subject: &str, metric: &str| {
                let subject = Subject::parse(subject.as_bytes()).expect("legal");
                let metric = Metric::parse(metric.as_bytes()).expect("legal");
                keys.flag(&AlertKey { subject: &subject, metric: &metric, period, threshold, units: 480 })
            };
            prop_assert_ne!(flag(&a, &m), flag(&b, &n));
        }
    }
}
