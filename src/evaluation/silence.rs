//! Finds subjects that used something on most days, and nothing for as long as their plan says.

use std::time::Duration;

use redis::RedisResult;

use crate::forecast::UsageProfile;
use crate::forecast::silence::{is_regular, silent_since};
use crate::ledger::daily_usage;
use crate::ledger::usage_notices::{self, RaiseReply};
use crate::ledger::usage_profiles::PassMark;
use crate::redis_client::Partition;
use crate::subjects::{Plans, Profile, StoredLevels};
use crate::types::timestamp::Rfc3339;
use crate::types::{Day, DaySpan, Metric, NoticeTopic, Subject, UnixMs, UsageNotice, UsageNoticeKind};

const DAY: Duration = Duration::from_secs(86_400);
/// A stream without usage for this time was silent itself. Shorter times are nights.
const STREAM_SILENT: Duration = DAY;
/// A silence is told within this time after it is due, or not at all.
const TOLD_WITHIN: Duration = Duration::from_secs(2 * 86_400);
/// Number of subjects whose settings are read at once.
const SETTINGS_AT_ONCE: usize = 200;

/// The time from which silence counts: a stream that was silent says nothing about its subjects.
pub(super) fn counts_since(mark: PassMark, now: UnixMs) -> UnixMs {
    match (mark.used, mark.resumed) {
        (Some(used), Some(resumed)) if now.since(used) < STREAM_SILENT => resumed.min(now),
        _ => now,
    }
}

/// The search in one pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct SilenceSearch<'a> {
    pub(super) partition: &'a Partition,
    pub(super) plans: &'a Plans,
    /// Server time of the pass.
    pub(super) now: UnixMs,
    /// The time from which silence counts.
    pub(super) counts_since: UnixMs,
    /// Number of erasures before the profiles were read.
    pub(super) erasures: u64,
}

impl SilenceSearch<'_> {
    /// Raises what is due among these subjects of a metric, and returns how many notices that were.
    pub(super) async fn raise(&self, metric: &Metric, found: &[(Subject, UsageProfile)]) -> RedisResult<usize> {
        let Some(longest) = self.plans.longest_silence() else { return Ok(0) };
        // A day more for zones, and one for the hours of the last day.
        let oldest = Day::in_utc(self.now.plus(-ms(longest + TOLD_WITHIN + 2 * DAY)));
        let has_resumed = Day::in_utc(self.counts_since) >= oldest;
        let is_candidate = |profile: &UsageProfile| has_resumed || last_day(profile) >= oldest;
        let candidates: Vec<&(Subject, UsageProfile)> =
            found.iter().filter(|(_, profile)| is_candidate(profile)).collect();
        let mut raised = 0;
        for candidates in candidates.chunks(SETTINGS_AT_ONCE) {
            let subjects: Vec<&Subject> = candidates.iter().map(|(subject, _)| subject).collect();
            let Partition { client, keys } = self.partition;
            let settings = StoredLevels::read_each(client, keys, &subjects).await?;
            for ((subject, profile), stored) in candidates.iter().zip(settings) {
                let Ok(stored) = stored else { continue };
                let settings = stored.own_profile(self.plans);
                raised += usize::from(self.raise_one(subject, metric, &settings, profile).await?);
            }
        }
        Ok(raised)
    }

    async fn raise_one(
        &self,
        subject: &Subject,
        metric: &Metric,
        settings: &Profile,
        profile: &UsageProfile,
    ) -> RedisResult<bool> {
        let Some(silence) = settings.silence().filter(|_| settings.has_known_limits()) else { return Ok(false) };
        let last = last_day(profile).and_then(|day| DaySpan::for_day(settings.zone(), day));
        let (Some(last), Some(today)) = (last, DaySpan::containing(settings.zone(), self.now)) else {
            return Ok(false);
        };
        let since = silent_since(profile, &last);
        let due = since.max(self.counts_since).plus(ms(silence));
        if self.now < due || self.now.since(due) > TOLD_WITHIN {
            return Ok(false);
        }
        let days = daily_usage::read_each(self.partition, &[(subject, metric)], self.now).await?;
        let days = days.into_iter().next().unwrap_or_default();
        if !is_regular(&days, last.day) || days.range(last.day..).any(|(day, units)| *day > last.day && *units > 0) {
            return Ok(false);
        }
        let Some(instance) = usage_notices::instance(self.partition).await? else { return Ok(false) };
        let of = (subject, metric, last.day.into());
        let id = UsageNotice::id_of(&instance, UsageNoticeKind::Silence, of, None);
        let notice = silence_notice(id, (subject, metric, settings, profile), (&today, &last), self.now);
        if usage_notices::raise(self.partition, self.erasures, &notice).await? != RaiseReply::Raised {
            return Ok(false);
        }
        tracing::info!(notice = %notice.id, %subject, %metric, since = %Rfc3339(since), "notice raised: silence");
        Ok(true)
    }
}

/// The notice as it is true now; `None` if the subject is not silent since then any more.
pub(super) async fn still_silent(
    partition: &Partition,
    notice: &UsageNotice,
    (settings, profile): (&Profile, &UsageProfile),
    now: UnixMs,
) -> RedisResult<Option<UsageNotice>> {
    let UsageNotice { id, subject, metric, silent_since: since, .. } = notice;
    let last = last_day(profile).and_then(|day| DaySpan::for_day(settings.zone(), day));
    let (Some(last), Some(today)) = (last, DaySpan::containing(settings.zone(), now)) else { return Ok(None) };
    if settings.silence().is_none() || *since != Some(Rfc3339(silent_since(profile, &last))) {
        return Ok(None);
    }
    let days = daily_usage::read_each(partition, &[(subject, metric)], now).await?;
    let is_silent = days.iter().flatten().all(|(day, units)| *day <= last.day || *units == 0);
    Ok(is_silent.then(|| UsageNotice {
        raised_at: notice.raised_at,
        ..silence_notice(id.clone(), (subject, metric, settings, profile), (&today, &last), now)
    }))
}

/// The notice of a subject that is silent since this last day.
fn silence_notice(
    id: String,
    (subject, metric, settings, profile): (&Subject, &Metric, &Profile, &UsageProfile),
    (today, last): (&DaySpan, &DaySpan),
    now: UnixMs,
) -> UsageNotice {
    let (span, plan, timezone) = ((*today).into(), settings.plan().as_ref(), settings.zone().name());
    let topic = NoticeTopic { subject, metric, span, plan, timezone };
    UsageNotice {
        limit: settings.limit_of(metric, today.day.into()).map(|limit| limit.get()),
        silent_since: Some(Rfc3339(silent_since(profile, last))),
        usual_per_day: Some(profile.usual_of_a_week() as u64 / 7),
        ..UsageNotice::new(id, UsageNoticeKind::Silence, topic, now)
    }
}

/// The last day on which something was used.
fn last_day(profile: &UsageProfile) -> Option<Day> {
    Day::of_epoch(profile.today().into())
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4)
}
