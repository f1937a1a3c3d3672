//! Which deliveries leave together in one message. Pure.
//!
//! A contact with a digest has one group, whose first delivery waits. If people read a contact's messages, the alerts
//! that one commit raises for it are a group that does not wait, and so are the notices of one hourly pass and the ends
//! that are noticed together. A group is a name that deliveries share: `fan_out.lua` stores it, and `lease.lua` leases
//! its pending deliveries together.

use std::collections::HashMap;
use std::time::Duration;

use super::recipients::Recipients;
use crate::contacts::Contact;
use crate::contacts::resolver::ContactsSource;
use crate::types::alert::digest_of;
use crate::types::{ContactId, QuotaNotification};

/// Maximum number of alerts and notices in a message, as in `lease.lua`.
pub const ALERTS_MAX: usize = 30;

/// Deliveries that leave together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageGroup {
    /// The same for all of them: `group_` and 32 hex digits.
    pub name: String,
    /// How long the first one waits for others.
    pub wait: Duration,
}

/// The groups of the contacts of all recipients, in their order. `None` for a delivery that leaves alone.
pub(super) fn groups_of_each<'a>(
    all: impl Iterator<Item = (QuotaNotification<'a>, &'a Recipients)>,
) -> Vec<Vec<Option<MessageGroup>>> {
    let of_one = |(notification, recipients): (QuotaNotification<'_>, &Recipients)| {
        let Recipients { contacts, source, .. } = recipients;
        contacts.iter().map(|contact| group_of(notification, contact, *source)).collect()
    };
    let mut groups: Vec<Vec<Option<MessageGroup>>> = all.map(of_one).collect();
    let mut sizes: HashMap<String, usize> = HashMap::new();
    for group in groups.iter().flatten().flatten() {
        *sizes.entry(group.name.clone()).or_default() += 1;
    }
    // Most commits raise one alert for a contact, which needs no group.
    for group in groups.iter_mut().flatten() {
        group.take_if(|group| group.wait.is_zero() && sizes[&group.name] == 1);
    }
    groups
}

fn group_of(notification: QuotaNotification<'_>, contact: &Contact, source: ContactsSource) -> Option<MessageGroup> {
    if let Some(digest) = digest_group(notification, contact, source) {
        return Some(digest);
    }
    let (kind, raised_in) = match notification {
        QuotaNotification::Alert(alert) => ("commit", alert.last_entry.to_string()),
        // Looked at together, or raised in one pass, they have one time.
        QuotaNotification::Resolved(notice) => ("ends", notice.raised_at.0.to_string()),
        QuotaNotification::Usage(notice) => ("pass", notice.raised_at.0.to_string()),
        QuotaNotification::GrantExpires(_) => return None,
    };
    let (owner, id) = owner(notification, contact, source);
    let of_all = || digest_of(&[kind, owner, id.as_str(), &raised_in]);
    let name = contact.is_for_people().then(|| format!("group_{}", of_all()))?;
    Some(MessageGroup { name, wait: Duration::ZERO })
}

/// The digest of the contact that gathers this notification; `None` if it is sent at once.
pub fn digest_group(
    notification: QuotaNotification<'_>,
    contact: &Contact,
    source: ContactsSource,
) -> Option<MessageGroup> {
    let interval = contact.digest_of(notification)?;
    let (owner, id) = owner(notification, contact, source);
    let name = format!("group_{}", digest_of(&["digest", owner, id.as_str()]));
    Some(MessageGroup { name, wait: interval.get() })
}

/// The subject whose contact it is, and the contact's id there. The contacts of the configuration belong to nobody, so
/// one message tells them of several subjects.
fn owner<'a>(
    notification: QuotaNotification<'a>,
    contact: &'a Contact,
    source: ContactsSource,
) -> (&'a str, &'a ContactId) {
    match &contact.inherited {
        Some((level, id)) => (level.as_str(), id),
        None if contact.id.is_of_operator() || source == ContactsSource::Fallback => ("", &contact.id),
        None => (notification.subject().as_str(), &contact.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channels::Sample;
    use crate::types::resolved_notice::QuotaNow;
    use crate::types::timestamp::Rfc3339;
    use crate::types::{
        Alert, AlertEnd, EndReason, NoticeTopic, Percent, PeriodSpan, ResolvedNotice, ResolvedScope, StreamId, UnixMs,
        UsageNotice, UsageNoticeKind, Window, WindowLimit,
    };

    fn alert(subject: &str, percent: u16, commit: u64) -> Alert {
        let sample = Sample::for_subject(subject.parse().expect("legal"));
        let at = Percent::new(percent).expect("legal");
        Alert { last_entry: StreamId { ms: commit, seq: 0 }, ..sample.alert(at, UnixMs(1)) }
    }

    fn digest_contact() -> Contact {
        let mut contact = Contact::email("a@b.test");
        contact.filter.digest = Some("1h".parse().expect("legal"));
        contact
    }

    fn groups(alerts: &[&Alert], contact: &Contact, source: ContactsSource) -> Vec<Option<MessageGroup>> {
        let recipients = Recipients { contacts: vec![contact.clone()], source, waits: false };
        groups_of_each(alerts.iter().map(|alert| ((*alert).into(), &recipients))).concat()
    }

    /// A person would get several emails at once, and a program one body for several alerts that it did not ask for.
    #[test]
    fn the_alerts_of_one_commit_are_a_group_for_people_only() {
        let (one, two, later) = (alert("alice", 50, 7), alert("alice", 80, 7), alert("alice", 90, 8));
        let own = |contact: &Contact| groups(&[&one, &two, &later], contact, ContactsSource::Own);
        let by_mail = own(&Contact::email("a@b.test"));
        assert!(by_mail[0].is_some() && by_mail[0] == by_mail[1] && by_mail[2].is_none(), "{by_mail:?}");
        assert_eq!(by_mail[0].as_ref().map(|group| group.wait), Some(Duration::ZERO));
        assert_eq!(own(&Contact::webhook("https://x.test/", Default::default())), [None, None, None]);
        let bob = alert("bob", 80, 7);
        let of_two = |contact: &Contact, source| groups(&[&one, &bob], contact, source);
        assert_eq!(of_two(&Contact::email("a@b.test"), ContactsSource::Own), [None, None], "two contacts");
        let fallback = of_two(&Contact::email("a@b.test"), ContactsSource::Fallback);
        assert!(fallback[0].is_some() && fallback[0] == fallback[1], "one contact of two subjects");
    }

    /// Nobody may hear an hour late that requests are refused for the rest of the day.
    #[test]
    fn a_used_up_day_does_not_wait_for_a_digest() {
        let (warning, full) = (alert("alice", 80, 7), alert("alice", 100, 8));
        let sample = Sample::example();
        let hour = Sample { limit: WindowLimit { window: Window::Hour, ..sample.limit }, ..sample };
        let hour = hour.alert(Percent::new(100).expect("legal"), UnixMs(1));
        let waits = |contact: &Contact| {
            let groups = groups(&[&warning, &full, &hour], contact, ContactsSource::Own);
            groups.iter().map(Option::is_some).collect::<Vec<_>>()
        };
        let mut contact = digest_contact();
        assert_eq!(waits(&contact), [true, false, true]);
        contact.filter.digest_all = true;
        assert_eq!(waits(&contact), [true, true, true]);
        let options =
            crate::contacts::ContactOptions { format: "pagerduty".parse().expect("legal"), ..Default::default() };
        let pager = Contact { filter: contact.filter, ..Contact::webhook_with("https://x.test/", options) };
        assert_eq!(waits(&pager), [false, false, false], "an incident is one alert");
    }

    fn end(alert: &Alert, at: UnixMs) -> ResolvedNotice {
        let now = Rfc3339(at);
        let quota = QuotaNow { used: 0, limit: None, plan: "free", timezone: "UTC", resets_at: None, now };
        let end = AlertEnd { reason: EndReason::Credited, at: now };
        ResolvedNotice::new(ResolvedScope::Quota, &[alert], end, quota).expect("it has an alert")
    }

    /// A customer would get four emails in one second: a forecast and a spike of two metrics.
    #[test]
    fn the_notices_of_one_pass_are_a_group_for_people_only() {
        let Alert { subject, metric, period, plan, timezone, .. } = &alert("alice", 80, 7);
        let span = PeriodSpan { period: *period, start: UnixMs(0), end: UnixMs(9) };
        let topic = NoticeTopic { subject, metric, span, plan, timezone };
        let notices = [(UsageNoticeKind::Forecast, 5), (UsageNoticeKind::Spike, 5), (UsageNoticeKind::Spike, 6)];
        let notices = notices.map(|(kind, at)| UsageNotice::new(kind.to_string(), kind, topic, UnixMs(at)));
        let of_each =
            |contact: &Contact| notices.each_ref().map(|notice| group_of(notice.into(), contact, ContactsSource::Own));
        let people = of_each(&Contact::email("a@b.test"));
        assert!(people[0].is_some() && people[0] == people[1] && people[0] != people[2], "{people:?}");
        assert_eq!(of_each(&Contact::webhook("https://x.test/", Default::default())), [None, None, None]);
    }

    /// A customer who paid for more would get an email for each window, or two digests within one interval.
    #[test]
    fn the_ends_of_one_look_are_a_group_and_join_the_digest() {
        let (day, month) = (alert("alice", 80, 7), alert("alice", 100, 7));
        let ends = [end(&day, UnixMs(5)), end(&month, UnixMs(5)), end(&day, UnixMs(6))];
        let group = |end: &ResolvedNotice, contact: &Contact| group_of(end.into(), contact, ContactsSource::Own);
        let of_each = |contact: &Contact| ends.each_ref().map(|end| group(end, contact));
        let people = of_each(&Contact::email("a@b.test"));
        assert!(people[0].is_some() && people[0] == people[1] && people[0] != people[2], "{people:?}");
        assert_eq!(of_each(&Contact::webhook("https://x.test/", Default::default())), [None, None, None]);
        let contact = digest_contact();
        let of_alert = group_of((&day).into(), &contact, ContactsSource::Own);
        assert!(of_alert.is_some() && of_each(&contact).iter().all(|of_end| *of_end == of_alert));
    }
}
