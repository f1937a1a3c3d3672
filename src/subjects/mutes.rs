//! Mutes of a subject and of its metrics: the fields `muted` and `muted:<metric>` of `quota_subject:<subject>`.
//!
//! Mutes are not settings: counting ignores them, and replacing the settings keeps them. An unreadable mute is ignored,
//! because sending an alert does less harm than losing it.

use std::collections::BTreeMap;
use std::fmt;

use redis::RedisResult;

use super::record::LIMIT_PREFIX;
use super::{FieldError, Plans};
use crate::redis_client::RedisClient;
use crate::types::{Keys, Metric, Mute, MuteError, Subject, UnixMs};

/// The field of the subject's mute and, followed by a colon, the prefix of its metrics' mutes.
const MUTED: &str = "muted";

/// The field that holds the mute of the subject, or of one metric of it.
pub fn mute_field(metric: Option<&Metric>) -> String {
    metric.map_or_else(|| MUTED.to_owned(), |metric| format!("{MUTED}:{metric}"))
}

/// The mutes of a subject.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubjectMutes {
    /// The mute of the whole subject.
    pub subject: Option<Mute>,
    /// The mutes of its metrics.
    pub metrics: BTreeMap<Metric, Mute>,
}

impl SubjectMutes {
    /// Reads the active mutes from the fields of the hash, and returns the unreadable fields.
    pub fn read<F: AsRef<[u8]>, V: AsRef<[u8]>>(
        fields: impl IntoIterator<Item = (F, V)>,
        now: UnixMs,
    ) -> (Self, Vec<FieldError>) {
        let (mut mutes, mut errors) = (Self::default(), Vec::new());
        for (field, value) in fields {
            let Ok(field) = std::str::from_utf8(field.as_ref()) else { continue };
            if let Some(metric) = metric_of(field)
                && let Err(why) = mutes.insert(metric, value.as_ref(), now)
            {
                errors.push(FieldError { field: field.to_owned(), why });
            }
        }
        (mutes, errors)
    }

    fn insert(&mut self, metric: Option<&str>, value: &[u8], now: UnixMs) -> Result<(), String> {
        let text = std::str::from_utf8(value).map_err(|_| MuteError::Stored.to_string())?;
        let mute = Mute::of_stored(text).map_err(|error| error.to_string())?.filter(|mute| mute.is_active(now));
        match metric {
            None => self.subject = mute,
            Some(metric) => {
                let metric = Metric::parse(metric.as_bytes()).map_err(|error| error.to_string())?;
                self.metrics.extend(mute.map(|mute| (metric, mute)));
            }
        }
        Ok(())
    }

    /// The mute that stops alerts of this metric, if there is one.
    pub fn mute_of<'a>(&'a self, metric: &'a Metric) -> Option<MutedPart<'a>> {
        let subject = self.subject.as_ref().map(|mute| MutedPart { metric: None, mute });
        subject.or_else(|| Some(MutedPart { metric: Some(metric), mute: self.metrics.get(metric)? }))
    }

    /// Until when a contact that hears these metrics, or all if there are none, hears nothing; `None` if it hears some.
    pub fn silent_until(&self, metrics: &[Metric]) -> Option<UnixMs> {
        let ends = metrics.iter().map(|metric| self.metrics.get(metric).map(Mute::end));
        let of_metrics = ends.collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().min());
        self.subject.as_ref().map(Mute::end).max(of_metrics)
    }

    /// All mutes, the subject's own first.
    pub fn parts(&self) -> impl Iterator<Item = MutedPart<'_>> {
        let of_metric = |(metric, mute)| MutedPart { metric: Some(metric), mute };
        self.subject.iter().map(|mute| MutedPart { metric: None, mute }).chain(self.metrics.iter().map(of_metric))
    }
}

/// Sets or ends the mute of a subject or of one of its metrics, and returns whether there was one before. Repeatable.
pub async fn set_mute(
    client: &RedisClient,
    keys: &Keys,
    subject: &Subject,
    metric: Option<&Metric>,
    mute: Option<&Mute>,
) -> RedisResult<bool> {
    let mut command = if mute.is_some() { redis::cmd("HSET") } else { redis::cmd("HDEL") };
    command.arg(keys.subject(subject)).arg(mute_field(metric)).arg(mute.map(Mute::to_stored));
    let changed: u64 = client.query(&command).await?;
    // HSET returns the number of new fields, HDEL that of removed ones.
    Ok((changed > 0) == mute.is_none())
}

/// Warns of a metric that is probably misspelled: neither the configuration nor a limit of the subject names it.
pub async fn warning_of_metric(
    client: &RedisClient,
    keys: &Keys,
    plans: &Plans,
    subject: &Subject,
    metric: &Metric,
) -> RedisResult<Option<String>> {
    let own = redis::cmd("HGET").arg(keys.subject(subject)).arg(format!("{LIMIT_PREFIX}{metric}")).to_owned();
    let is_named = plans.names_metric(metric) || client.query::<Option<Vec<u8>>>(&own).await?.is_some();
    Ok((!is_named).then(|| format!("no plan and no limit of the subject names the metric {metric}")))
}

/// The part of the subject that a field mutes; `None` for other fields.
fn metric_of(field: &str) -> Option<Option<&str>> {
    match field.strip_prefix(MUTED)? {
        "" => Some(None),
        rest => rest.strip_prefix(':').map(Some),
    }
}

/// A mute with the part of the subject that it applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MutedPart<'a> {
    /// The metric; `None` for the whole subject.
    pub metric: Option<&'a Metric>,
    /// The mute.
    pub mute: &'a Mute,
}

/// `the subject is muted until ...`, `metric tokens of the subject is muted: ...`.
impl fmt::Display for MutedPart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { metric, mute } = self;
        match metric {
            None => write!(f, "the subject is {mute}"),
            Some(metric) => write!(f, "metric {metric} of the subject is {mute}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mute of one metric must not silence another, and an ended mute must silence nothing.
    #[test]
    fn mutes_are_of_the_subject_or_of_a_metric_until_they_end() {
        let fields = [
            ("muted:tokens", "2026-11-21T08:37:00Z moving"),
            ("muted:", "true"),
            ("mutedness", "x"),
            ("muted:b", "no"),
        ];
        let end: UnixMs = "2026-11-21T08:37:00Z".parse().expect("a time");
        let [tokens, requests] = ["tokens", "requests"].map(|name| name.parse::<Metric>().expect("legal"));
        let told = |fields: &[(&str, &str)], metric: &Metric, now| {
            let (mutes, _) = SubjectMutes::read(fields.iter().copied(), now);
            mutes.mute_of(metric).map(|part| part.to_string())
        };
        let moving = "metric tokens of the subject is muted until 2026-11-21T08:37:00.000Z: moving";
        assert_eq!(told(&fields, &tokens, end.plus(-1)).as_deref(), Some(moving));
        assert_eq!((told(&fields, &tokens, end), told(&fields, &requests, end.plus(-1))), (None, None));
        assert_eq!(told(&[("muted", "true")], &requests, end).as_deref(), Some("the subject is muted"));
        let (_, errors) = SubjectMutes::read(fields, end);
        let named: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(named, ["muted:", "muted:b"]);
    }
}
