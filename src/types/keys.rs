//! Every Redis key of quotabell, spelled here and nowhere else.
//!
//! `{tag}` is the partition's stream name in braces, so that all keys of a partition lie in the stream's own hash slot; braces
//! in a subject change nothing, because Redis hashes only what stands between the first pair.
//!
//! | key | type | content | TTL |
//! |---|---|---|---|
//! | `usage` | stream | usage events, written by producers | trimmed |
//! | `quota_checkpoint:{tag}` | hash | `id`, `entries_read`, `entries_added`, `entries_gone`, `audited`, `generation`, `instance`, `format`, `partitions`, `fingerprint` of plans and windows; `moved_to`, `migration`, `copied:<stream>` of migrations | none |
//! | `quota_usage:{tag}:<metric>:<period>:<bucket>` | hash | subject -> units used in that period | 14 d from the last write and 48 h after the period's end everywhere, then 48 h once it is over everywhere |
//! | `quota_raised:{tag}:<metric>:<period>:<bucket>` | hash | `<percent>:<subject>` -> the newest alert of that percentage, JSON, with those before it in the period | as its counter |
//! | `quota_history:{tag}:<metric>:<bucket>` | hash | subject -> units of each day, MessagePack | `history.days` after the last |
//! | `quota_history_metrics:{tag}` | zset | metrics by the newest day of their history, as days since 1970-01-01 | as the history |
//! | `quota_history_progress:{tag}:<day>` | hash | metric -> how far the counters of that day are archived | 17 d |
//! | `quota_metrics:{tag}:<period>` | set | metrics used in that period | as the counters |
//! | `quota_alert:{tag}:<subject>:<metric>:<percent>:<period>:<units>` | string | alert id: the flag | the window's longest length and 6 h; a day: 30 h |
//! | `quota_outbox:{tag}` | stream | alerts not fanned out yet | consumed |
//! | `quota_refused:{tag}` | stream | `entry`, `reason`, `detail`, original fields | `MAXLEN ~ 100000` |
//! | `quota_seen:{tag}:<window>` | list | ids of counted events: a commit's as one value, 16 bytes of SHA-256 over subject, metric and id each | 14 d; removed two windows later |
//! | `quota_due:{tag}:<destination>` | zset | pending deliveries by due time; leased ones by the end of their lease, ms | while pending |
//! | `quota_leased:{tag}:<destination>` | zset | deliveries that are leased, by the end of the lease, ms | while leased |
//! | `quota_destinations:{tag}` | zset | destinations whose last attempt was answered, by when something may leave, ms | while pending |
//! | `quota_destinations_unhealthy:{tag}` | zset | the same of those whose last attempt failed, or that were never tried | while pending |
//! | `quota_destination:{tag}:<destination>` | hash | `bound` on attempts in flight, `failures` in a row; while its circuit is open `probe_at_ms`, `probes` | 14 d after the last attempt |
//! | `quota_failing:{tag}:<subject>` | hash | contact id -> when attempts began to fail and when the newest one did, ms | `delivery.disable_after` |
//! | `quota_circuits:{tag}` | zset | destinations whose circuit is open, by when the next attempt may be made, ms | while pending |
//! | `quota_paused:{tag}` | hash | while sending is paused: `since_ms`, `reason` | until it is resumed |
//! | `quota_pending:{tag}` | zset | pending deliveries by creation, ms | |
//! | `quota_waiting:{tag}` | zset | `<subject>` NUL `<delivery id>` of deliveries without a contact, score 0 | |
//! | `quota_delivery:{tag}:<delivery id>` | hash | the delivery and its attempts | 14 d after its end |
//! | `quota_deliveries:{tag}`, `quota_dead:{tag}` | zset | delivery ids by creation; dead ones by time | trimmed 14 d after the end |
//! | `quota_totals:{tag}` | hash | `counted`, `refused`, `duplicates`, `raised`, `made`, and a count per final state | none |
//! | `quota_lease:{tag}` | string | the daemon that reads this partition: `<host>/<address>/<number>` | 5 s |
//! | `quota_cap:{tag}:email` | string | attempts to send mail in this minute, while `email.per_minute` is set | 1 min |
//! | `quota_cap:{tag}:webhook:<origin>` | zset | attempts at this destination in the last window, while `webhook.per_destination` is set | the window |
//! | `quota_cooldown:{tag}:send-test:<contact id>` | string | the test message that this contact got | 10 s |
//! | `quota_window:{tag}:<algorithm>:<metric>:<subject>` | string, or zset (`sliding`) | what the check API's limiter of the plan has let through | the window |
//! | `quota_verify_requests:{tag}:<address>` | zset | requests for a verification of one address, by when they are forgotten | `verification.requests` |
//! | `quota_verify_open:{tag}:<subject>` | zset | deliveries that ask contacts of one subject, by when they are forgotten | `verification.lifetime` |
//! | `quota_unverified:{tag}` | zset | `<subject>` NUL `<consent>` of contacts that nobody has confirmed yet, by when they are removed, ms | a member: until then |
//! | `quota_verify_code:{tag}:<contact>` | string | nonce and digest of the code that was sent last | `verification.lifetime` |
//! | `quota_verify_guesses:{tag}:<code>` | zset | guesses at one code | `verification.lifetime` |
//! | `quota_verify_link:{tag}:<token>` | string | subject and contact of a confirm link, JSON | `verification.lifetime` |
//! | `quota_unsubscribe_key:{tag}` | string | what signs the unsubscribe links of mails | none; there is one |
//! | `quota_digest:{tag}` | string | when the newest digest of the operator was due, ms: where the next begins | none; there is one |
//! | `quota_probe:{tag}` | stream | one entry, for the probe at start | 60 s |
//! | `quota_daemons` | zset | `<host>/<address>/<number> <stream>` of each live daemon, `no-send-<number>` of one that sends nothing, by its last heartbeat, ms | 3 s after the last heartbeat |
//! | `quota_subject:<subject>` | hash | with another beginning where `subjects.prefix` says so: `plan`, `timezone`, `billing_day`, `limit:<metric>`, `thresholds`, `muted`, `muted:<metric>`, `contacts` | none |
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

/// The channel that readers of streams subscribe to at the server process with this run id; nobody publishes there. What it is for:
/// `RawConnection::subscribe` and `commit.lua`.
#[must_use]
pub fn reader_channel(run_id: &str) -> String {
    format!("quota_reader:{run_id}")
}

/// The keys of one partition and of its subjects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    pub(super) stream: String,
    /// The stream in braces, which the keys of a partition have in common.
    pub(super) tag: String,
    pub(super) subject_prefix: Arc<str>,
    /// What the stream is called without the number of the partition.
    pub(super) name: Arc<str>,
    pub(super) partition: PartitionNumber,
}

impl Keys {
    /// The keys of the only partition: those that belong to the stream of this name, with the default prefix of subjects. The name
    /// holds no brace.
    #[must_use]
    pub fn new(stream: &str) -> Self {
        Self::of_partition(stream, PartitionNumber::first(1))
    }

    /// The keys of one partition of the streams of this name, with the default prefix of subjects.
    #[must_use]
    pub fn of_partition(name: &str, partition: PartitionNumber) -> Self {
        let stream = partition.stream(name);
        let tag = format!("{{{stream}}}");
        Self { stream, tag, subject_prefix: SUBJECT_PREFIX_DEFAULT.into(), name: name.into(), partition }
    }

    /// The keys of another partition.
    #[must_use]
    pub fn of_sibling(&self, partition: PartitionNumber) -> Self {
        let subject_prefix = Arc::clone(&self.subject_prefix);
        Self { subject_prefix, ..Self::of_partition(&self.name, partition) }
    }

    /// Keys for a dry run in the same slot and under the same name patterns, told apart by `nonce`.
    #[must_use]
    pub fn probe(&self, nonce: &str) -> Self {
        let tag = format!("{}.probe.{nonce}", self.tag);
        Self { stream: format!("quota_probe:{tag}"), tag, ..self.clone() }
    }

    /// `<prefix><subject>`: a subject's plan, zone, limits and contacts.
    #[must_use]
    pub fn subject(&self, subject: &Subject) -> String {
        format!("{}{subject}", self.subject_prefix)
    }

    /// `quota_checkpoint:{tag}`.
    #[must_use]
    pub fn checkpoint(&self) -> String {
        format!("quota_checkpoint:{}", self.tag)
    }

    /// `quota_usage:{tag}:<metric>:<period>:<bucket>`.
    #[must_use]
    pub fn usage(&self, metric: &Metric, period: impl Into<Period>, bucket: u8) -> String {
        format!("quota_usage:{}:{metric}:{}:{bucket:02x}", self.tag, period.into())
    }

    /// `quota_raised:{tag}:<metric>:<period>:<bucket>`.
    #[must_use]
    pub fn raised(&self, metric: &Metric, period: impl Into<Period>, bucket: u8) -> String {
        format!("quota_raised:{}:{metric}:{}:{bucket:02x}", self.tag, period.into())
    }

    /// The field of [`Keys::raised`] that holds one subject's alert: `<percent>:<subject>`.
    #[must_use]
    pub fn raised_field(percent: Percent, subject: &Subject) -> String {
        format!("{percent}:{subject}")
    }

    /// `quota_history:{tag}:<metric>:<bucket>`.
    #[must_use]
    pub fn history(&self, metric: &Metric, bucket: u8) -> String {
        format!("quota_history:{}:{metric}:{bucket:02x}", self.tag)
    }

    /// `quota_history_metrics:{tag}`.
    #[must_use]
    pub fn history_metrics(&self) -> String {
        format!("quota_history_metrics:{}", self.tag)
    }

    /// `quota_history_progress:{tag}:<day>`.
    #[must_use]
    pub fn history_progress(&self, day: Day) -> String {
        format!("quota_history_progress:{}:{day}", self.tag)
    }

    /// `quota_metrics:{tag}:<period>`.
    #[must_use]
    pub fn metrics(&self, period: impl Into<Period>) -> String {
        format!("quota_metrics:{}:{}", self.tag, period.into())
    }

    /// `quota_alert:{tag}:<subject>:<metric>:<percent>:<period>:<units>`: the flag.
    #[must_use]
    pub fn flag(&self, alert: &AlertKey<'_>) -> String {
        let AlertKey { subject, metric, period, percent, units } = alert;
        let [before, between] = self.flag_parts(subject, metric, *period);
        format!("{before}{percent}{between}{units}")
    }

    /// What stands in a flag before the percentage, and between that and the units; scripts that learn these from Redis need both.
    #[must_use]
    pub fn flag_parts(&self, subject: &Subject, metric: &Metric, period: Period) -> [String; 2] {
        [format!("quota_alert:{}:{subject}:{metric}:", self.tag), format!(":{period}:")]
    }

    /// `quota_outbox:{tag}`.
    #[must_use]
    pub fn outbox(&self) -> String {
        format!("quota_outbox:{}", self.tag)
    }

    /// `quota_refused:{tag}`.
    #[must_use]
    pub fn refused(&self) -> String {
        format!("quota_refused:{}", self.tag)
    }

    /// `quota_seen:{tag}:<window>`.
    #[must_use]
    pub fn seen(&self, window: u64) -> String {
        format!("quota_seen:{}:{window}", self.tag)
    }

    /// `quota_due:{tag}:<destination>`.
    #[must_use]
    pub fn due(&self, destination: &Destination) -> String {
        format!("{}{destination}", self.due_prefix())
    }

    /// `quota_due:{tag}:`, to which a destination is appended; scripts that learn it from Redis need the prefix, as the next two.
    #[must_use]
    pub fn due_prefix(&self) -> String {
        format!("quota_due:{}:", self.tag)
    }

    /// `quota_leased:{tag}:`.
    #[must_use]
    pub fn leased_prefix(&self) -> String {
        format!("quota_leased:{}:", self.tag)
    }

    /// `quota_destination:{tag}:`.
    #[must_use]
    pub fn destination_prefix(&self) -> String {
        format!("quota_destination:{}:", self.tag)
    }

    /// `quota_failing:{tag}:`, to which a subject is appended; scripts that learn it from Redis need the prefix.
    #[must_use]
    pub fn failing_prefix(&self) -> String {
        format!("quota_failing:{}:", self.tag)
    }

    /// `quota_destinations:{tag}`: destinations whose last attempt was answered.
    #[must_use]
    pub fn destinations(&self) -> String {
        format!("quota_destinations:{}", self.tag)
    }

    /// `quota_circuits:{tag}`.
    #[must_use]
    pub fn circuits(&self) -> String {
        format!("quota_circuits:{}", self.tag)
    }

    /// `quota_destinations_unhealthy:{tag}`: the others.
    #[must_use]
    pub fn destinations_unhealthy(&self) -> String {
        format!("quota_destinations_unhealthy:{}", self.tag)
    }

    /// `quota_paused:{tag}`.
    #[must_use]
    pub fn paused(&self) -> String {
        format!("quota_paused:{}", self.tag)
    }

    /// `quota_pending:{tag}`.
    #[must_use]
    pub fn pending(&self) -> String {
        format!("quota_pending:{}", self.tag)
    }

    /// `quota_waiting:{tag}`.
    #[must_use]
    pub fn waiting(&self) -> String {
        format!("quota_waiting:{}", self.tag)
    }

    /// `quota_delivery:{tag}:`, to which a delivery id is appended; scripts that learn the id from Redis need the prefix.
    #[must_use]
    pub fn delivery_prefix(&self) -> String {
        format!("quota_delivery:{}:", self.tag)
    }

    /// `quota_delivery:{tag}:<delivery id>`.
    #[must_use]
    pub fn delivery(&self, id: &super::DeliveryId) -> String {
        format!("{}{id}", self.delivery_prefix())
    }

    /// `quota_deliveries:{tag}`.
    #[must_use]
    pub fn deliveries(&self) -> String {
        format!("quota_deliveries:{}", self.tag)
    }

    /// `quota_dead:{tag}`.
    #[must_use]
    pub fn dead(&self) -> String {
        format!("quota_dead:{}", self.tag)
    }

    /// `quota_cap:{tag}:<channel>`, or `quota_cap:{tag}:<channel>:<destination>` where each destination has a cap of its own, as
    /// `https://example.com`.
    #[must_use]
    pub fn cap(&self, channel: Channel, destination: Option<&str>) -> String {
        let channel = channel.as_str();
        match destination {
            None => format!("quota_cap:{}:{channel}", self.tag),
            Some(destination) => format!("quota_cap:{}:{channel}:{destination}", self.tag),
        }
    }

    /// `quota_cooldown:{tag}:send-test:<contact id>`; the id that follows from channel and address.
    #[must_use]
    pub fn send_test_cooldown(&self, contact: &ContactId) -> String {
        format!("quota_cooldown:{}:send-test:{contact}", self.tag)
    }

    /// `quota_lease:{tag}`.
    #[must_use]
    pub fn lease(&self) -> String {
        format!("quota_lease:{}", self.tag)
    }

    /// `quota_window:{tag}:<algorithm>:<metric>:<subject>`, before a long one is shortened: each limiter reads only its own.
    #[must_use]
    pub fn window(&self, algorithm: &str, metric: &Metric, subject: &Subject) -> String {
        format!("quota_window:{}:{algorithm}:{metric}:{subject}", self.tag)
    }

    /// `quota_verify_requests:{tag}:<address>`; `address` is a digest of it.
    #[must_use]
    pub fn verify_requests(&self, address: &str) -> String {
        format!("quota_verify_requests:{}:{address}", self.tag)
    }

    /// `quota_verify_open:{tag}:<subject>`; `subject` is a digest of it, since a subject may be longer than a limiter's key.
    #[must_use]
    pub fn verify_open(&self, subject: &str) -> String {
        format!("quota_verify_open:{}:{subject}", self.tag)
    }

    /// `quota_unverified:{tag}`.
    #[must_use]
    pub fn unverified(&self) -> String {
        format!("quota_unverified:{}", self.tag)
    }

    /// `quota_verify_code:{tag}:<contact>`; `contact` is a digest of subject, endpoint and the nonce of the contact.
    #[must_use]
    pub fn verify_code(&self, contact: &str) -> String {
        format!("quota_verify_code:{}:{contact}", self.tag)
    }

    /// `quota_verify_guesses:{tag}:<code>`; `code` is its nonce.
    #[must_use]
    pub fn verify_guesses(&self, code: &str) -> String {
        format!("quota_verify_guesses:{}:{code}", self.tag)
    }

    /// `quota_verify_link:{tag}:<token>`; `token` is its digest.
    #[must_use]
    pub fn verify_link(&self, token: &str) -> String {
        format!("quota_verify_link:{}:{token}", self.tag)
    }

    /// `quota_digest:{tag}`.
    #[must_use]
    pub fn digest(&self) -> String {
        format!("quota_digest:{}", self.tag)
    }

    /// `quota_unsubscribe_key:{tag}`.
    #[must_use]
    pub fn unsubscribe_key(&self) -> String {
        format!("quota_unsubscribe_key:{}", self.tag)
    }

    /// `quota_totals:{tag}`.
    #[must_use]
    pub fn totals(&self) -> String {
        format!("quota_totals:{}", self.tag)
    }

    /// A pattern of SCAN that the key of every subject matches.
    #[must_use]
    pub fn subject_pattern(&self) -> String {
        format!("{}*", glob_literal(&self.subject_prefix))
    }
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
        assert_eq!(keys.probe("x").outbox(), "quota_outbox:{usage}.probe.x");
        assert_eq!(keys.subject(&alice), "quota_subject:alice");
        let third = PartitionNumber::all(4).nth(3).expect("there are four");
        let other = Keys::of_partition("usage", third).probe("x");
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
