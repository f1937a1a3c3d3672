//! Judges the alerts of quotas by present counts and settings, stores their ends and raises the notices that contacts
//! ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::try_join_all;
use metrics::counter;
use redis::RedisResult;

use crate::contacts::resolver::{ContactResolver, ResolvedContacts};
use crate::ledger::alert_ends::{self, AlertGroup, EndsReply};
use crate::ledger::alert_judge::{EndsVerdict, KnownLimit, QuotaState};
use crate::ledger::batch::MetricPeriod;
use crate::outbox::{MultiplePolicy, recipients_of_each};
use crate::redis_client::Partition;
use crate::subjects::{Plans, Profile, StoredLevels};
use crate::types::resolved_notice::QuotaNow;
use crate::types::timestamp::Rfc3339;
use crate::types::{
    AlertEnds, PeriodSpan, RaisedRecord, ResolvedNotice, ResolvedScope, Subject, Threshold, UnixMs, meters,
};

/// Number of scripts that run at once.
const WRITTEN_AT_ONCE: usize = 50;

/// Judges the groups of one partition.
#[derive(Debug)]
pub(super) struct EndsJudge<'a> {
    pub(super) partition: &'a Partition,
    pub(super) plans: &'a Plans,
    pub(super) contacts: &'a ContactResolver,
    /// Whether the groups have all their alerts, also those at thresholds that were taken out of plans and subjects.
    pub(super) are_whole: bool,
}

/// What became of some groups.
#[derive(Debug, Default)]
pub(super) struct SettledEnds {
    /// When the periods of open alerts end.
    pub(super) period_ends: Vec<(UnixMs, MetricPeriod)>,
    /// Subjects to look at again: a new crossing would open their alerts, or something changed meanwhile.
    pub(super) watched: Vec<Subject>,
    /// Number of raised notices.
    pub(super) notices: usize,
    /// Quotas whose end is told only once all their alerts were read: nothing of them is stored.
    pub(super) partly_known: Vec<(Subject, MetricPeriod)>,
}

/// A group with the settings of its subject.
struct KnownGroup<'a> {
    group: &'a AlertGroup,
    /// `None` if the settings can't be read.
    profile: Option<Arc<Profile>>,
    state: QuotaState,
}

/// Whether nothing can change about a group any more.
pub(super) fn is_final(group: &AlertGroup, now: UnixMs) -> bool {
    let ends = group.stored.as_ref().map(|stored| &stored.ends.ends);
    group.records.iter().all(|RaisedRecord { alert, .. }| {
        let noted = ends.and_then(|ends| ends.get(&alert.id));
        noted.is_some_and(|noted| noted.told_in.is_some() && noted.end.is_some())
            && alert.resets_at.is_some_and(|end| end.0 <= now)
    })
}

impl EndsJudge<'_> {
    /// Judges groups that were read after this number of erasures, and stores what has changed.
    pub(super) async fn settle(&self, groups: &[AlertGroup], erasures: u64, now: UnixMs) -> RedisResult<SettledEnds> {
        let mut settled = SettledEnds::default();
        let known = self.known(groups, now).await?;
        let ends: Vec<AlertEnds> = groups.iter().map(AlertGroup::ends).collect();
        let mut changed: Vec<(&KnownGroup<'_>, EndsVerdict<'_>)> = Vec::new();
        for (known, before) in known.iter().zip(&ends) {
            let judged = known.state.judge(before, &known.group.records);
            let goes_on = known.state.ends_at.is_none_or(|end| end > now);
            if let Some(end) = known.state.ends_at.filter(|_| goes_on && !judged.is_over) {
                settled.period_ends.push((end, known.group.of.clone()));
            }
            let mut newest = known.group.records.iter().map(|record| &record.alert.id);
            if goes_on && newest.any(|alert| judged.ends.end_of(alert).is_some()) {
                settled.watched.push(known.group.subject.clone());
            }
            if !self.are_whole && !judged.resolved.is_empty() {
                settled.partly_known.push((known.group.subject.clone(), known.group.of.clone()));
            } else if judged.has_changes() {
                changed.push((known, judged));
            }
        }
        for part in changed.chunks(WRITTEN_AT_ONCE) {
            let contacts = self.contacts_of(part).await?;
            let write = part
                .iter()
                .zip(&contacts)
                .map(|((known, judged), contacts)| self.write(known, judged, contacts, erasures));
            let replies = try_join_all(write).await?;
            for ((known, _), reply) in part.iter().zip(replies) {
                match reply {
                    Some(notices) => settled.notices += notices,
                    None => settled.watched.push(known.group.subject.clone()),
                }
            }
        }
        Ok(settled)
    }

    async fn known<'g>(&self, groups: &'g [AlertGroup], now: UnixMs) -> RedisResult<Vec<KnownGroup<'g>>> {
        let Partition { client, keys } = self.partition;
        let mut subjects: Vec<&Subject> = groups.iter().map(|group| &group.subject).collect();
        subjects.dedup();
        let stored = StoredLevels::read_each(client, keys, &subjects).await?;
        let profile = |stored: RedisResult<StoredLevels>| Some(stored.ok()?.own_profile(self.plans));
        let profiles: BTreeMap<&Subject, Option<Arc<Profile>>> =
            subjects.into_iter().zip(stored.into_iter().map(profile)).collect();
        let known = |group: &'g AlertGroup| {
            let profile = profiles.get(&group.subject).cloned().flatten();
            let state = state_of(group, profile.as_deref(), now);
            KnownGroup { group, profile, state }
        };
        Ok(groups.iter().map(known).collect())
    }

    async fn contacts_of(&self, changed: &[(&KnownGroup<'_>, EndsVerdict<'_>)]) -> RedisResult<Vec<ResolvedContacts>> {
        let subjects: Vec<&Subject> = changed.iter().map(|(known, _)| &known.group.subject).collect();
        self.contacts.contacts_of_each(&self.partition.client, &subjects).await.map_err(|error| error.source)
    }

    /// Stores what was judged, and returns the number of raised notices; `None` if something has changed meanwhile.
    async fn write(
        &self,
        known: &KnownGroup<'_>,
        judged: &EndsVerdict<'_>,
        contacts: &ResolvedContacts,
        erasures: u64,
    ) -> RedisResult<Option<usize>> {
        let KnownGroup { group, profile, state } = known;
        let mut notices = notices(known, judged);
        let Partition { client, keys } = self.partition;
        let with_contacts: Vec<_> = notices.iter().map(|notice| (notice.into(), contacts)).collect();
        let recipients = recipients_of_each(client, keys, &with_contacts, MultiplePolicy::Each).await?;
        // Most contacts ask for no ends: then nothing goes through the outbox.
        let mut are_needed = recipients.iter().map(|of| of.waits || !of.contacts.is_empty());
        notices.retain(|_| are_needed.next().unwrap_or_default());
        let thresholds = known_thresholds(self.plans, profile.as_deref());
        let told = (&thresholds, notices.as_slice());
        let reply = alert_ends::write(self.partition, erasures, group, judged, told, state.now).await?;
        if reply != EndsReply::Written {
            return Ok(None);
        }
        for alert in &judged.ended {
            let Some(end) = judged.ends.end_of(&alert.id) else { continue };
            counter!(meters::ALERTS_ENDED, "reason" => end.reason.as_str()).increment(1);
            let (subject, reason) = (&alert.subject, end.reason);
            tracing::info!(alert = %alert.id, %subject, %reason, "alert ended");
        }
        for alert in &judged.reopened {
            tracing::info!(alert = %alert.id, subject = %alert.subject, "alert open again");
        }
        for ResolvedNotice { id, subject, reason, scope, .. } in &notices {
            counter!(meters::NOTICES_RAISED, "type" => ResolvedNotice::WEBHOOK_TYPE).increment(1);
            tracing::info!(notice = %id, %subject, %reason, %scope, "end of alerts raised");
        }
        Ok(Some(notices.len()))
    }
}

/// The thresholds at which a subject may have alerts: those of all plans, because its plan may have changed, and its
/// own.
pub(super) fn known_thresholds(plans: &Plans, profile: Option<&Profile>) -> BTreeSet<Threshold> {
    let of_plans = plans.thresholds().into_iter().map(|(threshold, _)| threshold);
    of_plans.chain(profile.into_iter().flat_map(|profile| profile.thresholds().iter().copied())).collect()
}

/// What decides about a group, by the settings of its subject.
pub(super) fn state_of(group: &AlertGroup, profile: Option<&Profile>, now: UnixMs) -> QuotaState {
    let MetricPeriod { metric, period } = &group.of;
    let limit = match profile.filter(|profile| profile.has_known_limits()) {
        None => KnownLimit::Unknown,
        Some(profile) => profile.limit_of(metric, *period).map_or(KnownLimit::None, KnownLimit::Units),
    };
    let of_alerts = || group.records.iter().filter_map(|record| record.alert.resets_at).map(|end| end.0).max();
    let span = profile.and_then(|profile| {
        let start = period.starts_in(profile.zone())?;
        PeriodSpan::containing(period.window(), profile.zone(), profile.billing(), start)
    });
    // Under another billing date the period of the alerts does not exist any more.
    let ends_at = span.filter(|span| span.period == *period).map(|span| span.end).or_else(of_alerts);
    QuotaState { used: group.used, limit, ends_at: ends_at.filter(|_| period.has_end()), now }
}

/// The notices of what has ended, for whoever asks for them.
fn notices(known: &KnownGroup<'_>, judged: &EndsVerdict<'_>) -> Vec<ResolvedNotice> {
    let KnownGroup { group, profile, state } = known;
    let newest = group.records.iter().map(|record| &record.alert).max_by_key(|alert| alert.raised_at_ms);
    let of_alert = newest.map_or(("", ""), |alert| (alert.plan.as_str(), alert.timezone.as_str()));
    let profile = profile.as_deref();
    let quota = QuotaNow {
        used: state.used,
        limit: match state.limit {
            KnownLimit::Units(limit) => Some(limit.get()),
            KnownLimit::Unknown => newest.map(|alert| alert.limit),
            KnownLimit::None => None,
        },
        plan: profile.map_or(of_alert.0, |profile| profile.plan()),
        timezone: profile.map_or(of_alert.1, |profile| profile.zone().name()),
        resets_at: state.ends_at.map(Rfc3339),
        now: Rfc3339(state.now),
    };
    let notice = |scope, alerts: &[_]| {
        let notice = ResolvedNotice::new(scope, alerts, judged.last_end(alerts)?, quota)?;
        let withdrawn = judged.ends.withdrawn(scope, &notice.alerts);
        Some(notice.instead_of(&withdrawn))
    };
    let of_alerts = judged.first_ended.iter().filter_map(|alert| notice(ResolvedScope::Alert, &[*alert]));
    of_alerts.chain(notice(ResolvedScope::Quota, &judged.resolved)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subjects::config::PlanConfig;

    /// After a change to a plan with other thresholds, alerts at those of the old plan would be looked up too late.
    #[test]
    fn alerts_at_the_thresholds_of_any_plan_are_looked_up() {
        let plan = |text: &str| toml::from_str::<PlanConfig>(text).expect("a plan");
        let free = plan("thresholds = [80]\nlimits = { requests = \"100/day\" }");
        let pro = plan("thresholds = [95]\nlimits = { requests = \"100/day\" }");
        let plans = Plans::new(&[("free".to_owned(), free), ("pro".to_owned(), pro)].into(), "free").expect("there");
        let known: Vec<String> = known_thresholds(&plans, None).iter().map(Threshold::to_string).collect();
        assert_eq!(known, ["80", "95"]);
    }
}
