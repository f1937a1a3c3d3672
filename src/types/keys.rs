//! Every Redis key of quotabell, spelled here and nowhere else.
//!
//! `{tag}` is the partition's stream name in braces, so that all keys of a partition lie in the stream's own hash slot;
//! braces in a subject change nothing, because Redis hashes only what stands between the first pair.
//!
//! What each holds, and how long it lives, is the table of docs/redis-keys.md.
//!
//! Metric, percent, period, units and bucket hold no colon, so a subject with colons can't collide with another.

use std::sync::Arc;

use super::alert::AlertKey;
pub use super::bucket::{BUCKETS, bucket};
use super::text::glob_literal;
use super::{Channel, ContactId, Day, Destination, Metric, PartitionNumber, Percent, Period, Subject};

/// What the keys of subjects begin with, unless the setting `subjects.prefix` says otherwise.
pub const SUBJECT_PREFIX_DEFAULT: &str = "quota_subject:";

/// What every other key begins with.
pub const FAMILY_PREFIX: &str = "quota_";

/// The daemons that live, of every stream of this Redis: `<daemon> <stream>`.
pub const DAEMONS: &str = "quota_daemons";

/// The group that shows our progress to tools that know consumer groups (XINFO GROUPS, KEDA).
pub const GROUP: &str = "quotabell";

/// The channel that readers of streams subscribe to at the server process with this run id; nobody publishes there.
/// What it is for: `RawConnection::subscribe` and `commit.lua`.
pub fn reader_channel(run_id: &str) -> String {
    format!("quota_reader:{run_id}")
}

/// The keys of one partition and of its subjects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    stream: String,
    /// The stream in braces, which the keys of a partition have in common.
    pub(super) tag: String,
    subject_prefix: Arc<str>,
    /// What the stream is called without the number of the partition.
    name: Arc<str>,
    partition: PartitionNumber,
}

impl Keys {
    /// The keys of the only partition: those that belong to the stream of this name, with the default prefix of
    /// subjects. The name holds no brace.
    pub fn new(stream: &str) -> Self {
        Self::of_partition(stream, PartitionNumber::first(1))
    }

    /// The keys of one partition of the streams of this name, with the default prefix of subjects.
    pub fn of_partition(name: &str, partition: PartitionNumber) -> Self {
        let stream = partition.stream(name);
        let tag = format!("{{{stream}}}");
        Self { stream, tag, subject_prefix: SUBJECT_PREFIX_DEFAULT.into(), name: name.into(), partition }
    }

    /// The keys of another partition.
    pub fn of_sibling(&self, partition: PartitionNumber) -> Self {
        let subject_prefix = Arc::clone(&self.subject_prefix);
        Self { subject_prefix, ..Self::of_partition(&self.name, partition) }
    }

    /// The same keys with another prefix of subjects.
    #[must_use]
    pub fn with_subject_prefix(self, prefix: &str) -> Self {
        Self { subject_prefix: prefix.into(), ..self }
    }

    /// Which partition it is.
    pub const fn partition(&self) -> PartitionNumber {
        self.partition
    }

    /// What the streams are called, without the number of a partition: `stream.key`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The usage stream.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// What the keys of subjects begin with: `quota_subject:` by default.
    pub fn subject_prefix(&self) -> &str {
        &self.subject_prefix
    }

    /// Keys for a dry run in the same slot and under the same name patterns, told apart by `nonce`.
    pub fn dry_run(&self, nonce: &str) -> Self {
        let tag = format!("{}.probe.{nonce}", self.tag);
        Self { stream: format!("quota_probe:{tag}"), tag, ..self.clone() }
    }

    /// `<prefix><subject>`: a subject's plan, zone, limits and contacts.
    pub fn subject(&self, subject: &Subject) -> String {
        format!("{}{subject}", self.subject_prefix)
    }

    /// `quota_usage:{tag}:<metric>:<period>:<bucket>`.
    pub fn usage(&self, metric: &Metric, period: impl Into<Period>, bucket: u8) -> String {
        format!("quota_usage:{}:{metric}:{}:{bucket:02x}", self.tag, period.into())
    }

    /// `quota_raised:{tag}:<metric>:<period>:<bucket>`.
    pub fn raised(&self, metric: &Metric, period: impl Into<Period>, bucket: u8) -> String {
        format!("quota_raised:{}:{metric}:{}:{bucket:02x}", self.tag, period.into())
    }

    /// The field of [`Keys::raised`] that holds one subject's alert: `<percent>:<subject>`.
    pub fn raised_field(percent: Percent, subject: &Subject) -> String {
        format!("{percent}:{subject}")
    }

    /// `quota_history:{tag}:<metric>:<bucket>`.
    pub fn history(&self, metric: &Metric, bucket: u8) -> String {
        format!("quota_history:{}:{metric}:{bucket:02x}", self.tag)
    }

    /// `quota_history_progress:{tag}:<day>`.
    pub fn history_progress(&self, day: Day) -> String {
        format!("quota_history_progress:{}:{day}", self.tag)
    }

    /// `quota_metrics:{tag}:<period>`.
    pub fn metrics(&self, period: impl Into<Period>) -> String {
        format!("quota_metrics:{}:{}", self.tag, period.into())
    }

    /// `quota_alert:{tag}:<subject>:<metric>:<percent>:<period>:<units>`: the flag.
    pub fn flag(&self, alert: &AlertKey<'_>) -> String {
        let AlertKey { subject, metric, period, percent, units } = alert;
        let [before, between] = self.flag_parts(subject, metric, *period);
        format!("{before}{percent}{between}{units}")
    }

    /// What stands in a flag before the percentage, and between that and the units; scripts that learn these from Redis
    /// need both.
    pub fn flag_parts(&self, subject: &Subject, metric: &Metric, period: Period) -> [String; 2] {
        [format!("quota_alert:{}:{subject}:{metric}:", self.tag), format!(":{period}:")]
    }

    /// `quota_seen:{tag}:<window>`.
    pub fn event_ids(&self, window: u64) -> String {
        format!("quota_seen:{}:{window}", self.tag)
    }

    /// `quota_due:{tag}:<destination>`.
    pub fn due(&self, destination: &Destination) -> String {
        format!("{}{destination}", self.due_prefix())
    }

    /// `quota_delivery:{tag}:<delivery id>`.
    pub fn delivery(&self, id: &super::DeliveryId) -> String {
        format!("{}{id}", self.delivery_prefix())
    }

    /// `quota_cap:{tag}:<channel>`, or `quota_cap:{tag}:<channel>:<destination>` where each destination has a cap of
    /// its own, as `https://example.com`.
    pub fn cap(&self, channel: Channel, destination: Option<&str>) -> String {
        let channel = channel.as_str();
        match destination {
            None => format!("quota_cap:{}:{channel}", self.tag),
            Some(destination) => format!("quota_cap:{}:{channel}:{destination}", self.tag),
        }
    }

    /// `quota_cooldown:{tag}:send-test:<contact id>`; the id that follows from channel and address.
    pub fn send_test_cooldown(&self, contact: &ContactId) -> String {
        format!("quota_cooldown:{}:send-test:{contact}", self.tag)
    }

    /// `quota_window:{tag}:<algorithm>:<metric>:<subject>`, before a long one is shortened: each limiter reads only its
    /// own.
    pub fn limiter(&self, algorithm: &str, metric: &Metric, subject: &Subject) -> String {
        format!("quota_window:{}:{algorithm}:{metric}:{subject}", self.tag)
    }

    /// `quota_verify_requests:{tag}:<address>`; `address` is a digest of it.
    pub fn verify_requests(&self, address: &str) -> String {
        format!("quota_verify_requests:{}:{address}", self.tag)
    }

    /// `quota_verify_open:{tag}:<subject>`; `subject` is a digest of it, since a subject may be longer than a limiter's
    /// key.
    pub fn verify_open(&self, subject: &str) -> String {
        format!("quota_verify_open:{}:{subject}", self.tag)
    }

    /// `quota_verify_code:{tag}:<contact>`; `contact` is a digest of subject, endpoint and the nonce of the contact.
    pub fn verify_code(&self, contact: &str) -> String {
        format!("quota_verify_code:{}:{contact}", self.tag)
    }

    /// `quota_verify_guesses:{tag}:<code>`; `code` is its nonce.
    pub fn verify_guesses(&self, code: &str) -> String {
        format!("quota_verify_guesses:{}:{code}", self.tag)
    }

    /// `quota_verify_link:{tag}:<token>`; `token` is its digest.
    pub fn verify_link(&self, token: &str) -> String {
        format!("quota_verify_link:{}:{token}", self.tag)
    }

    /// `quota_verify_sent:{tag}:<subject>`; `subject` is a digest of it, so the key names nobody.
    pub fn verify_sent(&self, subject: &str) -> String {
        format!("quota_verify_sent:{}:{subject}", self.tag)
    }

    /// A pattern of SCAN that the key of every subject matches.
    pub fn subject_pattern(&self) -> String {
        format!("{}*", glob_literal(&self.subject_prefix))
    }
}

/// Defines the keys of which a partition has one, and what those begin with that it has several of: `{}` stands for the
/// tag.
macro_rules! keys_of_partition {
    ($($(#[$doc:meta])* $name:ident = $format:literal;)+) => {
        impl Keys {
            $(
                #[doc = concat!("`", $format, "`, with the tag of the partition.")]
                $(#[$doc])*
                pub fn $name(&self) -> String {
                    format!($format, self.tag)
                }
            )+
        }
    };
}

keys_of_partition! {
    checkpoint = "quota_checkpoint:{}";
    history_metrics = "quota_history_metrics:{}";
    outbox = "quota_outbox:{}";
    refused = "quota_refused:{}";
    /// A destination follows. Scripts that learn it from Redis need the prefix, as the next ones.
    due_prefix = "quota_due:{}:";
    /// A destination follows.
    leased_prefix = "quota_leased:{}:";
    /// A destination follows.
    destination_prefix = "quota_destination:{}:";
    /// A subject follows.
    failing_prefix = "quota_failing:{}:";
    /// Destinations whose last attempt was answered.
    destinations = "quota_destinations:{}";
    circuits = "quota_circuits:{}";
    /// The other destinations.
    destinations_unhealthy = "quota_destinations_unhealthy:{}";
    paused = "quota_paused:{}";
    pending = "quota_pending:{}";
    waiting = "quota_waiting:{}";
    /// A delivery's id follows.
    delivery_prefix = "quota_delivery:{}:";
    deliveries = "quota_deliveries:{}";
    /// A subject follows; nothing does for those of nobody, which are digests.
    subject_deliveries_prefix = "quota_subject_deliveries:{}:";
    dead = "quota_dead:{}";
    lease = "quota_lease:{}";
    unverified = "quota_unverified:{}";
    digest = "quota_digest:{}";
    unsubscribe_key = "quota_unsubscribe_key:{}";
    totals = "quota_totals:{}";
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
        let percent = Percent::new(80).expect("legal");
        let alert = AlertKey { subject: &alice, metric: &metric, period, percent, units: 480 };
        assert_eq!(keys.flag(&alert), "quota_alert:{usage}:alice:requests:80:2026-11-21T14Z:480");
        assert_eq!(keys.cap(Channel::Email, None), "quota_cap:{usage}:email");
        assert_eq!(
            keys.cap(Channel::Webhook, Some("https://b.test:8443")),
            "quota_cap:{usage}:webhook:https://b.test:8443"
        );
        assert_eq!(keys.dry_run("x").outbox(), "quota_outbox:{usage}.probe.x");
        assert_eq!(keys.subject(&alice), "quota_subject:alice");
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
        /// Two different flags never share a key, however many colons and braces a subject holds.
        #[test]
        fn flags_of_different_subjects_differ(a in "[a:{}*0-9-]{1,12}", b in "[a:{}*0-9-]{1,12}", m in "[a-z0-9_.-]{1,4}", n in "[a-z0-9_.-]{1,4}") {
            prop_assume!((&a, &m) != (&b, &n));
            let keys = Keys::new("usage");
            let period = Period::parse("2026-11-21").expect("legal");
            let percent = Percent::new(80).expect("legal");
            let flag = |subject: &str, metric: &str| {
                let subject = Subject::parse(subject.as_bytes()).expect("legal");
                let metric = Metric::parse(metric.as_bytes()).expect("legal");
                keys.flag(&AlertKey { subject: &subject, metric: &metric, period, percent, units: 480 })
            };
            prop_assert_ne!(flag(&a, &m), flag(&b, &n));
        }
    }
}
