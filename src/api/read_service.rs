//! What the reading routes answer: views of subjects and of the books, within a timeout.
//!
//! Has a connection of its own, so that a long list never delays a delivery. Read next: [`crate::views`], the views.

use std::time::Duration;

use redis::{RedisError, RedisResult};

use super::problem::Problem;
use crate::subjects::Plans;
use crate::types::{Day, Subject, UnixMs};
use crate::views::usage::UsageRequest;
use crate::views::{
    AlertFilter, AlertView, SubjectCursor, SubjectSettings, SubjectSlice, SubjectView, UsageView, alerts, subject,
    subject_list, usage,
};
use crate::wire::{ErrorKind, Partition, Partitions, error_kind};

/// A caller must not hang when Redis does.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Reads for the API.
#[derive(Debug)]
pub struct ReadService {
    parts: ReadParts,
}

/// What the service needs.
#[derive(Debug)]
pub struct ReadParts {
    /// Redis, on connections for these reads alone.
    pub partitions: Partitions,
    /// The plans in effect.
    pub plans: Plans,
    /// How long after its day an event may arrive.
    pub late_max: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReadServiceError {
    /// Redis failed.
    #[error(transparent)]
    Redis(#[from] RedisError),
    /// Redis does not answer.
    #[error("no answer within {TIMEOUT:?}")]
    Timeout,
    /// No period holds the day that was asked for, or what the server's clock shows.
    #[error("no period holds that day, or the {0} that Redis' clock shows")]
    NoPeriod(UnixMs),
}

impl ReadService {
    /// Creates the service. Connects nowhere yet.
    #[must_use]
    pub const fn new(parts: ReadParts) -> Self {
        Self { parts }
    }

    /// What a subject used, now or on a day.
    ///
    /// # Errors
    ///
    /// [`ReadServiceError`].
    pub async fn usage(&self, subject: Subject, day: Option<Day>) -> Result<UsageView, ReadServiceError> {
        let ReadParts { partitions, plans, late_max } = &self.parts;
        let Partition { client, keys } = partitions.of(&subject);
        let read = async {
            let settings = SubjectSettings::read(&subject::read_fields(client, keys, &subject).await?, plans);
            let now = client.server_time().await?;
            let request = UsageRequest { subject, settings, day, now, late_max: *late_max };
            Ok((usage::read(client, keys, request).await?, now))
        };
        let (usage, now) = within_timeout(read).await?;
        usage.ok_or(ReadServiceError::NoPeriod(now))
    }

    /// A page of the subjects for which something is set.
    ///
    /// # Errors
    ///
    /// [`ReadServiceError`].
    pub async fn subjects(&self, after: SubjectCursor, limit: usize) -> Result<SubjectSlice, ReadServiceError> {
        let ReadParts { partitions, plans, .. } = &self.parts;
        let Partition { client, keys } = partitions.first();
        within_timeout(subject_list::read(client, keys, plans, after, limit)).await
    }

    /// What is set for a subject; `None` where nothing is.
    ///
    /// # Errors
    ///
    /// [`ReadServiceError`].
    pub async fn subject(&self, subject: &Subject) -> Result<Option<SubjectView>, ReadServiceError> {
        let ReadParts { partitions, plans, .. } = &self.parts;
        let Partition { client, keys } = partitions.of(subject);
        let fields = within_timeout(subject::read_fields(client, keys, subject)).await?;
        Ok((!fields.is_empty()).then(|| SubjectView::read(subject.as_str().as_bytes(), &fields, plans)))
    }

    /// Every alert of a subject that is still kept, in the order of time.
    ///
    /// # Errors
    ///
    /// [`ReadServiceError`].
    pub async fn alerts(&self, subject: Subject) -> Result<Vec<AlertView>, ReadServiceError> {
        let Partition { client, keys } = self.parts.partitions.of(&subject);
        let filter = AlertFilter { subject: Some(subject), since: None };
        let read = async {
            let periods = alerts::kept_periods(client.server_time().await?);
            alerts::of_periods(client, keys, &periods, &filter).await
        };
        within_timeout(read).await
    }
}

async fn within_timeout<T>(read: impl Future<Output = RedisResult<T>>) -> Result<T, ReadServiceError> {
    Ok(tokio::time::timeout(TIMEOUT, read).await.map_err(|_| ReadServiceError::Timeout)??)
}

impl From<ReadServiceError> for Problem {
    fn from(error: ReadServiceError) -> Self {
        match error {
            ReadServiceError::NoPeriod(_) => Self::bad_request(format!("day: {error}")),
            ReadServiceError::Timeout => Self::of_redis(ErrorKind::Unreachable),
            ReadServiceError::Redis(error) => {
                tracing::warn!(%error, "a reading route: Redis failed");
                Self::of_redis(error_kind(&error))
            }
        }
    }
}
