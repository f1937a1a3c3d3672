//! The recipients of a notification. Pure.

use super::config::MultiplePolicy;
use crate::contacts::resolver::{ContactsSource, ResolvedContacts};
use crate::contacts::{Contact, OperatorContact, distinct};
use crate::types::{ContactId, QuotaNotification, ResolvedNotice};

/// The recipients of a notification about a quota.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recipients {
    /// The contacts that get a delivery each.
    pub contacts: Vec<Contact>,
    /// The origin of those that are not the operator's.
    pub source: ContactsSource,
    /// Whether the notification also waits for a contact, because the subject has none.
    pub waits: bool,
}

impl Recipients {
    /// The contacts whose filters accept this notification: the subject's own or the fallback, and the operator's
    /// contacts that request copies.
    ///
    /// If only disabled contacts would get it, it goes to the subject's other contacts regardless of their filters;
    /// without any, to the operator's contacts that get notices. So a disabled contact silences nothing.
    ///
    /// The end of alerts goes to all that may have got them and ask for it: it is judged before it is sent.
    pub fn select<'a>(
        notification: impl Into<QuotaNotification<'a>>,
        contacts: &ResolvedContacts,
        on_multiple: MultiplePolicy,
    ) -> Self {
        let notification = notification.into();
        let hears = |contact: &Contact| hears(contact, notification, on_multiple);
        if let QuotaNotification::Resolved(notice) = notification {
            return Self::of_end(notice, contacts, |_| true);
        }
        let ResolvedContacts { readable, disabled, operator, .. } = contacts;
        let is_left_to_others = !readable.iter().any(hears) && disabled.iter().any(hears);
        // Only now, because each entry with the same address has a filter of its own.
        let told = distinct(readable.iter().filter(|contact| is_left_to_others || hears(contact)));
        let mut told: Vec<Contact> = told.into_iter().cloned().collect();
        let is_left_to_operator = is_left_to_others && told.is_empty();
        let gets_copy = |one: &&OperatorContact| {
            one.takes_plan(notification.plan()) && hears(&one.contact) || is_left_to_operator && one.notices
        };
        told.extend(operator.iter().filter(gets_copy).map(|one| one.contact.clone()));
        Self { contacts: told, source: contacts.source, waits: readable.is_empty() }
    }

    /// The contacts that ask for the end of alerts and got one of them, if `had` tells so: whatever their filters, or
    /// the subject's contacts, are now. An alert may have no delivery any more, so the subject's contacts and the
    /// operator's are recipients also if their filters accept the end. It waits while no contact of the subject can be
    /// read.
    pub fn of_end(notice: &ResolvedNotice, contacts: &ResolvedContacts, had: impl Fn(&ContactId) -> bool) -> Self {
        let ResolvedContacts { source, readable, unreadable, operator, .. } = contacts;
        let asks = |contact: &Contact| contact.hears_end(notice.scope);
        let hears = |contact: &Contact| asks(contact) && (had(&contact.id) || contact.filter.takes(notice));
        let own = distinct(readable.iter().filter(|contact| hears(contact)));
        let gets_own = |contact: &Contact| own.iter().any(|own| had(&own.id) && own.has_same_address(contact));
        let fallback = contacts.fallback_beside_own();
        let fallback = fallback.filter(|contact| asks(contact) && had(&contact.id) && !gets_own(contact));
        let gets_copy =
            |one: &&OperatorContact| hears(&one.contact) && (had(&one.contact.id) || one.takes_plan(&notice.plan));
        let copies = operator.iter().filter(gets_copy).map(|one| &one.contact);
        let told = own.iter().copied().chain(fallback).chain(copies).cloned().collect();
        Self { contacts: told, source: *source, waits: readable.is_empty() && !unreadable.is_empty() }
    }
}

/// Whether a contact gets this notification: not what would open an incident that nothing closes.
fn hears(contact: &Contact, notification: QuotaNotification<'_>, on_multiple: MultiplePolicy) -> bool {
    let filter = &contact.filter;
    if contact.has_incidents() && matches!(notification, QuotaNotification::Usage(_)) {
        return false;
    }
    let hears_higher = || match notification {
        QuotaNotification::Alert(alert) => alert.higher_thresholds.iter().any(|higher| filter.takes_threshold(*higher)),
        QuotaNotification::GrantExpires(_) | QuotaNotification::Usage(_) | QuotaNotification::Resolved(_) => false,
    };
    filter.takes(notification) && (on_multiple == MultiplePolicy::Each || !hears_higher())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channels::Sample;
    use crate::types::resolved_notice::QuotaNow;
    use crate::types::timestamp::Rfc3339;
    use crate::types::{
        Alert, AlertEnd, ContactFilter, DisableReason, DisabledState, EndReason, GrantNotice, NoticeTopic, Percent,
        PeriodSpan, ResolvedScope, Threshold, Units, UnixMs, UsageNotice, UsageNoticeKind,
    };

    fn percents(percents: &[u16]) -> Vec<Threshold> {
        percents.iter().filter_map(|percent| Percent::new(*percent)).map(Threshold::from).collect()
    }

    /// A contact with a filter for these thresholds; without any it gets all.
    fn contact(name: &str, thresholds: &[u16]) -> Contact {
        let filter = ContactFilter { thresholds: percents(thresholds), ..ContactFilter::default() };
        Contact { filter, ..Contact::email(&format!("{name}@b.test")) }
    }

    fn disabled(name: &str, thresholds: &[u16]) -> Contact {
        let state = DisabledState { reason: DisableReason::Gone, detail: "HTTP 410".to_owned(), at: UnixMs(1) };
        Contact { disabled: Some(state), ..contact(name, thresholds) }
    }

    fn operator(name: &str, thresholds: &[u16], plans: &[&str]) -> OperatorContact {
        let plans = plans.iter().map(|plan| (*plan).to_owned()).collect();
        OperatorContact { contact: contact(name, thresholds), plans, notices: true }
    }

    fn alert(percent: u16, higher: &[u16]) -> Alert {
        let at = Percent::new(percent).expect("legal");
        Alert { higher_thresholds: percents(higher), ..Sample::example().alert(at, UnixMs(1)) }
    }

    /// A notice about the example's requests, under its plan.
    fn grant_sample() -> GrantNotice {
        let Alert { subject, metric, window, limit, used, plan, timezone, .. } = alert(80, &[]);
        GrantNotice {
            id: "grant_notice_1".to_owned(),
            subject,
            metric,
            window,
            grant: "g".parse().expect("legal"),
            note: None,
            units: Units::new(10).expect("legal"),
            remaining: 1,
            expires_at: Rfc3339(UnixMs(2)),
            limit,
            used,
            plan,
            timezone,
            raised_at: Rfc3339(UnixMs(1)),
        }
    }

    /// The local parts of the recipients' addresses, and whether the notification waits.
    fn told<'a>(
        notification: impl Into<QuotaNotification<'a>>,
        contacts: &ResolvedContacts,
        on_multiple: MultiplePolicy,
    ) -> (Vec<String>, bool) {
        let Recipients { contacts, waits, .. } = Recipients::select(notification, contacts, on_multiple);
        let local = |contact: &Contact| contact.address().split('@').next().unwrap_or_default().to_owned();
        (contacts.iter().map(local).collect(), waits)
    }

    fn names(names: &[&str], waits: bool) -> (Vec<String>, bool) {
        (names.iter().map(ToString::to_string).collect(), waits)
    }

    /// A contact gets only the thresholds of its filter; an alert that no filter accepts does not wait.
    #[test]
    fn an_alert_goes_to_the_contacts_that_accept_it() {
        let contacts = ResolvedContacts {
            readable: vec![contact("all", &[]), contact("late", &[100])],
            operator: vec![operator("ops", &[90], &[]), operator("pro", &[], &["pro"])].into(),
            ..ResolvedContacts::default()
        };
        let each = MultiplePolicy::Each;
        assert_eq!(told(&alert(80, &[]), &contacts, each), names(&["all"], false));
        assert_eq!(told(&alert(90, &[]), &contacts, each), names(&["all", "ops"], false));
        assert_eq!(told(&alert(100, &[]), &contacts, each), names(&["all", "late"], false));
        let pro = Alert { plan: "pro".to_owned(), ..alert(80, &[]) };
        assert_eq!(told(&pro, &contacts, each), names(&["all", "pro"], false));
        let deaf = ResolvedContacts { readable: vec![contact("late", &[100])], ..ResolvedContacts::default() };
        assert_eq!(told(&alert(80, &[]), &deaf, each), names(&[], false));
        let other = Alert { metric: "tokens".parse().expect("legal"), ..alert(100, &[]) };
        let mut requests = contact("requests", &[]);
        requests.filter.metrics = vec!["requests".parse().expect("legal")];
        let contacts = ResolvedContacts { readable: vec![requests], ..ResolvedContacts::default() };
        assert_eq!(told(&other, &contacts, each), names(&[], false));
        assert_eq!(told(&alert(80, &[]), &ResolvedContacts::default(), each), names(&[], true));
    }

    /// An address must hear what any of its entries accepts, and once: the own entry first, whose language and secret
    /// are those that its owner knows.
    #[test]
    fn an_address_that_is_inherited_hears_by_each_of_its_filters() {
        let each = MultiplePolicy::Each;
        let inherited =
            |thresholds: &[u16]| contact("audit", thresholds).inherited_from(&"acme".parse().expect("legal"));
        let contacts = ResolvedContacts {
            readable: vec![contact("audit", &[100]), inherited(&[])],
            ..ResolvedContacts::default()
        };
        let of = |alert: &Alert, contacts: &ResolvedContacts| Recipients::select(alert, contacts, each).contacts;
        assert_eq!(of(&alert(80, &[]), &contacts), [inherited(&[])]);
        assert_eq!(of(&alert(100, &[]), &contacts), [contact("audit", &[100])]);
        let left = ResolvedContacts {
            readable: vec![contact("audit", &[50]), inherited(&[50])],
            disabled: vec![disabled("gone", &[])],
            ..ResolvedContacts::default()
        };
        assert_eq!(of(&alert(100, &[]), &left), [contact("audit", &[50])], "what is left to the others comes once too");
    }

    /// The highest threshold of a jump may be outside of a contact's filter: the contact must then get a lower one.
    #[test]
    fn the_highest_is_that_which_a_contact_hears() {
        let contacts = ResolvedContacts {
            readable: vec![contact("all", &[]), contact("early", &[50, 80]), contact("first", &[50])],
            ..ResolvedContacts::default()
        };
        let highest = MultiplePolicy::Highest;
        assert_eq!(told(&alert(50, &[80, 100]), &contacts, highest), names(&["first"], false));
        assert_eq!(told(&alert(80, &[100]), &contacts, highest), names(&["early"], false));
        assert_eq!(told(&alert(100, &[]), &contacts, highest), names(&["all"], false));
    }

    /// A contact that only hears of full quotas must hear of units that expire, and nobody must hear of another metric.
    #[test]
    fn a_notice_goes_to_the_contacts_of_its_metric_whatever_their_thresholds() {
        let mut tokens = contact("tokens", &[]);
        tokens.filter.metrics = vec!["tokens".parse().expect("legal")];
        let contacts = ResolvedContacts {
            readable: vec![contact("late", &[100]), tokens],
            operator: vec![operator("ops", &[90], &["free"]), operator("pro", &[], &["pro"])].into(),
            ..ResolvedContacts::default()
        };
        let notice = grant_sample();
        for on_multiple in [MultiplePolicy::Each, MultiplePolicy::Highest] {
            assert_eq!(told(&notice, &contacts, on_multiple), names(&["late", "ops"], false));
        }
        assert_eq!(told(&notice, &ResolvedContacts::default(), MultiplePolicy::Each), names(&[], true));
    }

    /// An incident would stay open that nothing closes.
    #[test]
    fn a_notice_of_usage_opens_no_incident() {
        let options =
            crate::contacts::ContactOptions { format: "pagerduty".parse().expect("legal"), ..Default::default() };
        let pager = Contact::webhook_with("https://x.test/", options);
        let operator_pager = OperatorContact { contact: pager.clone(), plans: Vec::new(), notices: true };
        let contacts = ResolvedContacts {
            readable: vec![contact("late", &[100]), pager],
            operator: vec![operator_pager].into(),
            ..ResolvedContacts::default()
        };
        let each = MultiplePolicy::Each;
        let Alert { subject, metric, period, plan, timezone, .. } = alert(80, &[]);
        let span = PeriodSpan { period, start: UnixMs(0), end: UnixMs(2) };
        let topic = NoticeTopic { subject: &subject, metric: &metric, span, plan: &plan, timezone: &timezone };
        for kind in UsageNoticeKind::ALL {
            let notice = UsageNotice::new("notice".to_owned(), kind, topic, UnixMs(1));
            assert_eq!(told(&notice, &contacts, each), names(&["late"], false));
        }
        assert_eq!(told(&alert(80, &[]), &contacts, each), names(&["https://x.test/"; 2], false));
    }

    /// Those who had an alert would miss its end, the others would cause a delivery for each end of every subject.
    #[test]
    fn an_end_goes_to_those_who_had_an_alert_and_to_those_of_the_subject_who_would() {
        let quota =
            QuotaNow { used: 0, limit: None, plan: "free", timezone: "UTC", resets_at: None, now: Rfc3339(UnixMs(2)) };
        let end = AlertEnd { reason: EndReason::LimitRaised, at: Rfc3339(UnixMs(2)) };
        let notice =
            ResolvedNotice::new(ResolvedScope::Quota, &[&alert(80, &[])], end, quota).expect("it has an alert");
        let asking = |name: &str, thresholds: &[u16]| {
            let mut contact = contact(name, thresholds);
            contact.filter.resolved = Some(true);
            contact
        };
        let twice = Contact { id: ContactId::from_stored("twice"), ..asking("twice", &[]) };
        let contacts = ResolvedContacts {
            readable: vec![asking("all", &[]), asking("late", &[100]), contact("silent", &[]), twice.clone()],
            fallback: vec![asking("fallback", &[]), contact("unasked", &[]), asking("twice", &[])].into(),
            operator: ["free", "pro"]
                .map(|plan| OperatorContact { contact: asking(plan, &[]), ..operator(plan, &[], &[plan]) })
                .to_vec()
                .into(),
            ..ResolvedContacts::default()
        };
        let to = |contacts: &ResolvedContacts, had: &[&Contact]| {
            let Recipients { contacts, waits, .. } =
                Recipients::of_end(&notice, contacts, |id| had.iter().any(|contact| contact.id == *id));
            let local = |contact: &Contact| contact.address().split('@').next().unwrap_or_default().to_owned();
            (contacts.iter().map(local).collect::<Vec<_>>(), waits)
        };
        assert_eq!(to(&contacts, &[]), names(&["all", "twice", "free"], false), "their deliveries may have expired");
        let had = [asking("late", &[]), contact("silent", &[]), asking("fallback", &[]), asking("pro", &[])];
        let had: Vec<&Contact> = had.iter().collect();
        assert_eq!(to(&contacts, &had), names(&["all", "late", "twice", "fallback", "free", "pro"], false));
        let other = asking("twice", &[]);
        assert_eq!(to(&contacts, &[&other]), names(&["all", "twice", "twice", "free"], false), "the own one had none");
        assert_eq!(to(&contacts, &[&other, &twice]), names(&["all", "twice", "free"], false), "one address");
        let unreadable = vec![crate::contacts::array::UnreadableContact { id: None, why: "broken".to_owned() }];
        let broken = ResolvedContacts { readable: Vec::new(), unreadable, operator: Default::default(), ..contacts };
        assert_eq!(to(&broken, &[]), names(&[], true));
    }

    /// A disabled receiver must not silence the only alert of its kind.
    #[test]
    fn what_only_a_disabled_contact_would_hear_goes_to_the_others() {
        let each = MultiplePolicy::Each;
        let ops: std::sync::Arc<[OperatorContact]> = vec![operator("ops", &[50], &["pro"])].into();
        let others = ResolvedContacts {
            readable: vec![contact("early", &[50])],
            disabled: vec![disabled("gone", &[100])],
            operator: ops.clone(),
            ..ResolvedContacts::default()
        };
        assert_eq!(told(&alert(100, &[]), &others, each), names(&["early"], false));
        assert_eq!(told(&alert(80, &[]), &others, each), names(&[], false), "nobody would have heard it");
        let nobody = ResolvedContacts { readable: Vec::new(), source: ContactsSource::Fallback, ..others.clone() };
        assert_eq!(told(&alert(100, &[]), &nobody, each), names(&["ops"], true));
        let silent: Vec<OperatorContact> =
            ops.iter().map(|one| OperatorContact { notices: false, ..one.clone() }).collect();
        let nobody = ResolvedContacts { operator: silent.into(), ..nobody };
        assert_eq!(told(&alert(100, &[]), &nobody, each), names(&[], true));
    }
}
