//! The ends of alerts on a real server: what is stored and raised once, and what is true when an end is sent.

use std::collections::BTreeSet;

use crate::support::outbox::{alert, in_period, subject};
use crate::support::recorded_usage::RecordedUsage;
use quotabell::evaluation::StoredNoticeJudge;
use quotabell::ledger::alert_ends::{self, AlertGroup, EndsReply};
use quotabell::ledger::alert_judge::{EndsVerdict, KnownLimit, QuotaState};
use quotabell::ledger::batch::MetricPeriod;
use quotabell::outbox::{AlertVerdict, NoticeJudge as _, ResolvedVerdict};
use quotabell::redis_client::{Partition, Partitions};
use quotabell::subjects::Plans;
use quotabell::subjects::config::PlanConfig;
use quotabell::types::resolved_notice::QuotaNow;
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{
    Alert, AlertEnd, AlertId, ContactId, Day, DeliveryId, EndReason, Metric, Month, ResolvedNotice, ResolvedScope,
    Threshold, UnixMs,
};

fn thresholds() -> BTreeSet<Threshold> {
    ["80", "100"].map(|text| text.parse().expect("legal")).into()
}

struct Ends {
    usage: RecordedUsage,
    partition: Partition,
    plans: Plans,
    of: MetricPeriod,
    now: UnixMs,
}

impl Ends {
    /// A subject `alice` that has used 4,000 of 5,000 a day: its alert at 80 % is raised.
    async fn start() -> (Self, Alert) {
        let usage = RecordedUsage::start();
        let partition = Partition { client: usage.server.client().into(), keys: usage.keys.clone() };
        let plan: PlanConfig = toml::from_str("limits = { requests = \"5000/day\" }").expect("a plan");
        let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("there");
        let now = partition.client.server_time().await.expect("it tells the time");
        let of = MetricPeriod { metric: Metric::default(), period: Day::in_utc(now).expect("a day").into() };
        let ends = Self { usage, partition, plans, of, now };
        ends.run(&["HSET", &ends.partition.keys.checkpoint(), "id", "1-1", "instance", "i"]).await;
        let raised = ends.raise(80).await;
        ends.usage.count("alice", "requests", ends.of.period, 4_000).await;
        (ends, raised)
    }

    async fn run(&self, words: &[&str]) -> redis::Value {
        let command = words.iter().fold(redis::Cmd::new(), |mut command, word| command.arg(*word).to_owned());
        self.partition.client.query(&command).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    async fn raise(&self, percent: u16) -> Alert {
        let raised = in_period(alert(&subject("alice"), percent), self.of.period);
        self.usage.raise(&raised, &[]).await;
        raised
    }

    async fn group(&self) -> AlertGroup {
        let (of, thresholds) = (std::slice::from_ref(&self.of), thresholds());
        let mut group = alert_ends::read_each(&self.partition, &subject("alice"), &thresholds, of).await.expect("read");
        alert_ends::read_counts(&self.partition, &mut group).await.expect("read");
        group.pop().expect("it has an alert")
    }

    /// The group as it is under a limit of 10,000.
    fn judged<'a>(&self, group: &'a AlertGroup) -> EndsVerdict<'a> {
        let limit = KnownLimit::Units(quotabell::types::Units::new(10_000).expect("legal").into());
        let state = QuotaState { used: group.used, limit, ends_at: None, now: self.now };
        state.judge(&group.ends(), &group.records)
    }

    async fn write(&self, group: &AlertGroup, erasures: u64) -> EndsReply {
        let judged = self.judged(group);
        let notice = self.notice(ResolvedScope::Quota, &judged.resolved);
        let withdrawn = judged.ends.withdrawn(ResolvedScope::Quota, &notice.alerts);
        let notice = notice.instead_of(&withdrawn);
        let known = thresholds();
        let told = (&known, &[notice][..]);
        alert_ends::write(&self.partition, erasures, group, &judged, told, self.now).await.expect("answered")
    }

    fn notice(&self, scope: ResolvedScope, alerts: &[&Alert]) -> ResolvedNotice {
        let (end, now) = (AlertEnd { reason: EndReason::LimitRaised, at: Rfc3339(self.now) }, Rfc3339(self.now));
        let quota = QuotaNow { used: 4_000, limit: Some(10_000), plan: "free", timezone: "UTC", resets_at: None, now };
        ResolvedNotice::new(scope, alerts, end, quota).expect("it has alerts")
    }

    async fn outbox(&self) -> u64 {
        let key = self.partition.keys.outbox();
        self.partition.client.query(redis::cmd("XLEN").arg(key)).await.expect("answered")
    }

    fn judge(&self) -> StoredNoticeJudge {
        let partitions = Partitions::new(&self.partition.client, &self.partition.keys);
        StoredNoticeJudge { partitions, plans: self.plans.clone() }
    }

    async fn verdict(&self, notice: &ResolvedNotice, contact: &str) -> ResolvedVerdict {
        self.verdict_with(notice, contact, &[]).await
    }

    /// The verdict of an end that leaves together with these alerts.
    async fn verdict_with(
        &self,
        notice: &ResolvedNotice,
        contact: &str,
        sent_together: &[&AlertId],
    ) -> ResolvedVerdict {
        self.judge().resolved(notice, &ContactId::from_stored(contact), sent_together, self.now).await.expect("judged")
    }

    /// The end in the outbox that was raised last.
    async fn raised(&self) -> ResolvedNotice {
        let mut command = redis::cmd("XREVRANGE");
        command.arg(self.partition.keys.outbox()).arg("+").arg("-").arg("COUNT").arg(1);
        let newest: Vec<(String, [String; 2])> = self.partition.client.query(&command).await.expect("answered");
        serde_json::from_str(&newest[0].1[1]).expect("JSON")
    }

    /// Sets the state of an end's delivery to a contact.
    async fn deliver_end(&self, end: &ResolvedNotice, contact: &str, state: &str) {
        let id = DeliveryId::of_notification(&end.id, &ContactId::from_stored(contact));
        self.run(&["HSET", &self.partition.keys.delivery(&id), "state", state]).await;
    }

    /// Sets the state of an alert's delivery to a contact.
    async fn deliver(&self, alert: &Alert, contact: &str, state: &str) {
        let id = DeliveryId::derive(&alert.id, &ContactId::from_stored(contact));
        self.run(&["HSET", &self.partition.keys.delivery(&id), "state", state]).await;
    }
}

/// Two daemons that look at once, or a call whose reply was lost, would tell an end twice; and an end that was judged
/// before a crossing would be told after it.
#[tokio::test]
async fn an_end_is_stored_once_and_only_if_nothing_has_changed() {
    let (ends, _) = Ends::start().await;
    let (one, other) = (ends.group().await, ends.group().await);
    assert_eq!(ends.write(&one, 0).await, EndsReply::Written);
    assert_eq!(ends.write(&other, 0).await, EndsReply::Changed, "another daemon was faster");
    assert_eq!(ends.write(&one, 0).await, EndsReply::Changed, "the reply was lost");
    assert_eq!(ends.outbox().await, 1);
    let stored = ends.group().await;
    assert!(!ends.judged(&stored).has_changes());

    let (ends, _) = Ends::start().await;
    let before = ends.group().await;
    ends.usage.count("alice", "requests", ends.of.period, 8_000).await;
    assert_eq!(ends.write(&before, 0).await, EndsReply::Changed, "the count is 80 % of 10,000");
    ends.usage.count("alice", "requests", ends.of.period, 4_001).await;
    let before = ends.group().await;
    let higher = ends.raise(100).await;
    assert_eq!(ends.write(&before, 0).await, EndsReply::Changed, "an alert of another threshold");
    let before = ends.group().await;
    let again = Alert { threshold_units: 10_000, limit: 10_000, ..higher.clone() };
    ends.usage.raise(&again, &[&higher]).await;
    assert_eq!(ends.write(&before, 0).await, EndsReply::Changed, "a further alert of a threshold");
    let before = ends.group().await;
    assert_eq!(ends.write(&before, 1).await, EndsReply::Changed, "an erasure");
    assert_eq!(ends.outbox().await, 0);
}

/// A contact must not hear the end of an alert that it never got, nor before it, nor while an alert is open.
#[tokio::test]
async fn an_end_is_true_for_contacts_that_got_the_alert_once_nothing_is_open() {
    let (ends, first) = Ends::start().await;
    let notice = ends.notice(ResolvedScope::Quota, &[&first]);
    for (contact, state) in [("got", "delivered"), ("waits", "pending"), ("lost", "dead")] {
        ends.deliver(&first, contact, state).await;
    }
    ends.usage.set("alice", &[("limit:requests", "6000/day")]).await;
    let ResolvedVerdict::True(told) = ends.verdict(&notice, "got").await else { panic!("it is true") };
    assert_eq!((told.id.as_str(), told.reason, told.used), (notice.id.as_str(), EndReason::LimitRaised, 4_000));
    assert_eq!(ends.verdict(&notice, "waits").await, ResolvedVerdict::Later, "its alert comes first");
    let together = ends.verdict_with(&notice, "waits", &[&first.id]).await;
    assert_eq!(together, ResolvedVerdict::True(told.clone()), "or with it");
    assert_eq!(ends.verdict(&notice, "lost").await, ResolvedVerdict::Never);
    assert_eq!(ends.verdict(&notice, "new").await, ResolvedVerdict::Never);
    // An older entry of the outbox may be the alert.
    ends.run(&["XADD", &ends.partition.keys.outbox(), "1-1", "alert", "{}"]).await;
    assert_eq!(ends.verdict(&notice, "new").await, ResolvedVerdict::Later);
    ends.run(&["DEL", &ends.partition.keys.outbox()]).await;

    // A later alert is told by a later end, which is the only one that the contact gets.
    let second = ends.raise(100).await;
    let of_first = ends.notice(ResolvedScope::Alert, &[&first]);
    ends.usage.count("alice", "requests", ends.of.period, 5_000).await;
    ends.usage.set("alice", &[("limit:requests", "6300/day")]).await;
    assert_eq!(
        ends.verdict(&notice, "got").await,
        ResolvedVerdict::True(ResolvedNotice { used: 5_000, ..*told }.into())
    );
    ends.deliver(&second, "got", "pending").await;
    assert_eq!(ends.verdict(&notice, "got").await, ResolvedVerdict::Later, "if it arrives, its end tells of both");
    let of_both = ends.notice(ResolvedScope::Quota, &[&first, &second]);
    assert_eq!(ends.verdict(&of_both, "got").await, ResolvedVerdict::Later, "the alert at 100 % comes first");
    assert_eq!(ends.verdict_with(&notice, "got", &[&second.id]).await, ResolvedVerdict::Never);
    ends.deliver(&second, "got", "dead").await;
    assert!(matches!(ends.verdict(&notice, "got").await, ResolvedVerdict::True(_)), "it never arrived");
    let ResolvedVerdict::True(told) = ends.verdict(&of_both, "got").await else { panic!("it is true") };
    assert_eq!(told.thresholds, [first.threshold], "100 % was never told");
    ends.deliver(&second, "got", "delivered").await;
    assert_eq!(ends.verdict(&notice, "got").await, ResolvedVerdict::Never);
    assert!(matches!(ends.verdict(&of_first, "got").await, ResolvedVerdict::True(_)), "each incident is closed");
}

/// An alert that is given up while somebody corrects a limit is never told.
#[tokio::test]
async fn an_alert_is_given_up_only_for_an_end_that_is_stored_and_lasts() {
    let (ends, alert) = Ends::start().await;
    let verdict_after = async |ms| ends.judge().alert(&alert, None, ends.now.plus(ms)).await.expect("judged");
    assert_eq!(verdict_after(9_000).await, AlertVerdict::True);
    ends.usage.set("alice", &[("limit:requests", "10000/day")]).await;
    assert_eq!(verdict_after(9_000).await, AlertVerdict::Later, "nobody has noticed the end");
    assert_eq!(ends.write(&ends.group().await, 0).await, EndsReply::Written);
    assert_eq!([verdict_after(2_999).await, verdict_after(3_000).await], [AlertVerdict::Later, AlertVerdict::Never]);
    ends.usage.set("alice", &[("limit:requests", "5000/day")]).await;
    assert_eq!(verdict_after(3_000).await, AlertVerdict::True);
}

/// The end of an alert that is open again would wait for ever, or the contact would never hear that it has ended.
#[tokio::test]
async fn an_end_that_is_open_again_is_withdrawn_and_the_next_one_is_told() {
    let (ends, alert) = Ends::start().await;
    for contact in ["got", "heard"] {
        ends.deliver(&alert, contact, "delivered").await;
    }
    assert_eq!(ends.write(&ends.group().await, 0).await, EndsReply::Written);
    let notice = ends.raised().await;
    ends.deliver_end(&notice, "heard", "delivered").await;
    assert_eq!(ends.verdict(&notice, "got").await, ResolvedVerdict::Never, "4,000 of 5,000 is open");
    let group = ends.group().await;
    assert_eq!(ends.judged(&group).resolved, [&alert], "it can be told again");
    assert_eq!(ends.write(&group, 0).await, EndsReply::Written);
    ends.usage.set("alice", &[("limit:requests", "6000/day")]).await;
    assert_eq!(ends.verdict(&notice, "got").await, ResolvedVerdict::Never, "the next one tells it");
    let next = ends.raised().await;
    assert!(matches!(ends.verdict(&next, "got").await, ResolvedVerdict::True(_)));
    assert_eq!(ends.verdict(&next, "heard").await, ResolvedVerdict::Never, "it heard of the first end");
}

/// A contact that heard an end before it was withdrawn would hear it once more, if the next end has another alert too.
#[tokio::test]
async fn a_withdrawn_end_that_a_contact_heard_is_not_told_with_another_alert() {
    let (mut ends, first) = Ends::start().await;
    for contact in ["got", "heard", "both", "flight", "later"] {
        ends.deliver(&first, contact, "delivered").await;
    }
    assert_eq!(ends.write(&ends.group().await, 0).await, EndsReply::Written);
    let withdrawn = ends.raised().await;
    let states = [("heard", "delivered"), ("both", "delivered"), ("flight", "pending"), ("later", "pending")];
    for (contact, state) in states {
        ends.deliver_end(&withdrawn, contact, state).await;
    }
    let flight = DeliveryId::of_notification(&withdrawn.id, &ContactId::from_stored("flight"));
    ends.run(&["HSET", &ends.partition.keys.delivery(&flight), "lease_token", "t"]).await;
    assert_eq!(ends.verdict(&withdrawn, "got").await, ResolvedVerdict::Never, "4,000 of 5,000 is open");
    let second = ends.raise(100).await;
    for contact in ["got", "both", "flight", "later"] {
        ends.deliver(&second, contact, "delivered").await;
    }
    assert_eq!(ends.write(&ends.group().await, 0).await, EndsReply::Written);
    ends.usage.set("alice", &[("limit:requests", "6000/day")]).await;
    let next = ends.raised().await;
    assert_eq!(next.alerts.len(), 2);
    // What is in the outbox may be an alert.
    ends.run(&["DEL", &ends.partition.keys.outbox()]).await;
    let told = async |contact| match ends.verdict(&next, contact).await {
        ResolvedVerdict::True(told) => told.thresholds,
        other => panic!("{contact}: {other:?}"),
    };
    assert_eq!(told("got").await, [first.threshold, second.threshold]);
    assert_eq!(told("both").await, [second.threshold], "it heard of the end at 80 %");
    assert_eq!(ends.verdict(&next, "heard").await, ResolvedVerdict::Never, "it never got the alert at 100 %");
    assert_eq!(ends.verdict(&next, "flight").await, ResolvedVerdict::Later, "the withdrawn end may just arrive");
    assert_eq!(told("later").await, [first.threshold, second.threshold], "it waits, and is not sent any more");
    // A worker that lost Redis records its outcome late; one that died never does, and nobody may take its lease.
    ends.now = ends.now.plus(2 * 3_600_000);
    assert_eq!(ends.verdict(&next, "flight").await, ResolvedVerdict::Later, "its outcome may just be recorded");
    ends.now = ends.now.plus(1);
    assert!(matches!(ends.verdict(&next, "flight").await, ResolvedVerdict::True(_)), "it never will");
    ends.now = ends.now.plus(-1);
    ends.deliver_end(&withdrawn, "flight", "expired").await;
    assert!(matches!(ends.verdict(&next, "flight").await, ResolvedVerdict::True(_)), "it has not heard the other");
}

/// Records expire two days after their period: then nobody knows whether an end was withdrawn, and it would be told
/// beside the next one. An incident must not stay open.
#[tokio::test]
async fn an_end_of_a_period_long_over_closes_incidents_alone() {
    let (ends, alert) = Ends::start().await;
    ends.deliver(&alert, "got", "delivered").await;
    let raised = ends.partition.keys.raised(&ends.of.metric, ends.of.period, quotabell::types::keys::bucket("alice"));
    ends.run(&["DEL", &raised]).await;
    let [quota, incident] = [ResolvedScope::Quota, ResolvedScope::Alert].map(|scope| ends.notice(scope, &[&alert]));
    assert_eq!(ends.verdict(&quota, "got").await, ResolvedVerdict::Never);
    assert_eq!(ends.verdict(&incident, "got").await, ResolvedVerdict::True(incident.clone().into()));
    assert_eq!(ends.verdict(&incident, "new").await, ResolvedVerdict::Never);
}

/// The end of a month would reach nobody whose alert was delivered more than 14 days before.
#[tokio::test]
async fn the_log_knows_a_delivery_that_has_expired() {
    let (mut ends, alert) = Ends::start().await;
    let log = ends.partition.keys.alert_log(Month::containing(ends.now).expect("a month"));
    ends.now = ends.now.max(alert.raised_at_ms.plus(15 * 86_400_000));
    ends.usage.set("alice", &[("limit:requests", "6000/day")]).await;
    let notice = ends.notice(ResolvedScope::Quota, &[&alert]);
    for (contact, state) in [("got", "delivered"), ("lost", "dead")] {
        let id = DeliveryId::derive(&alert.id, &ContactId::from_stored(contact));
        ends.run(&["XADD", &log, "*", "delivery", id.as_str(), "state", state]).await;
    }
    assert!(matches!(ends.verdict(&notice, "got").await, ResolvedVerdict::True(_)));
    for contact in ["lost", "new"] {
        assert_eq!(ends.verdict(&notice, contact).await, ResolvedVerdict::Never);
    }
}
