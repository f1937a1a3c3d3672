//! What the writing routes of a subject do: replace its settings, mute it, erase everything of it, within a timeout.

use std::time::Duration;

use redis::{RedisError, RedisResult};

use super::problem::Problem;
use crate::contacts::store::{EditContactsError, replace_settings};
use crate::erasure::{self, ErasedSubject};
use crate::subjects::mutes::set_mute;
use crate::subjects::{Plans, SubjectRecord};
use crate::types::{Metric, Mute, Subject, UnixMs};
use crate::views::{SubjectView, subject as subjects};
use crate::wire::{ErrorKind, Partition, Partitions, error_kind};

/// A caller must not hang when Redis does.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(5);
/// An erasure looks through every delivery and every refused event that is kept.
const ERASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Writes subjects for the API.
#[derive(Debug)]
pub struct SubjectService {
    /// Redis.
    pub partitions: Partitions,
    /// The plans in effect.
    pub plans: Plans,
}

/// Why it was not done, or may have been done in part.
#[derive(Debug, thiserror::Error)]
pub enum SubjectServiceError {
    /// Redis failed.
    #[error(transparent)]
    Redis(#[from] RedisError),
    /// Redis does not answer, or has too much to look through.
    #[error("no answer in time")]
    Timeout,
    /// Others change the subject's contacts at the same time, again and again.
    #[error("others change the subject's contacts all the time: try again")]
    Contended,
}

impl SubjectService {
    /// Replaces the settings beside the contacts, and shows the subject as it is then.
    ///
    /// # Errors
    ///
    /// [`SubjectServiceError`]; the settings may be written.
    pub async fn replace(&self, subject: &Subject, record: &SubjectRecord) -> Result<SubjectView, SubjectServiceError> {
        let Self { partitions, plans } = self;
        let Partition { client, keys } = partitions.of(subject);
        let replaced = async {
            replace_settings(client, keys, subject, record).await?;
            Ok((subjects::read_fields(client, keys, subject).await?, client.server_time().await?))
        };
        let fields = tokio::time::timeout(REPLACE_TIMEOUT, replaced).await;
        let (fields, now) =
            fields.map_err(|_| SubjectServiceError::Timeout)?.map_err(|error: EditContactsError| match error {
                EditContactsError::Redis(error) => SubjectServiceError::Redis(error),
                EditContactsError::NotAnArray(_) | EditContactsError::Contended => SubjectServiceError::Contended,
            })?;
        tracing::info!(%subject, "settings are replaced");
        Ok(SubjectView::read(subject.as_str().as_bytes(), &fields, plans, now))
    }

    /// The time of the server, by which a mute ends.
    pub async fn server_time(&self) -> Result<UnixMs, SubjectServiceError> {
        let read = self.partitions.first().client.server_time();
        Ok(tokio::time::timeout(REPLACE_TIMEOUT, read).await.map_err(|_| SubjectServiceError::Timeout)??)
    }

    /// Mutes a subject or one metric of it, or ends that mute.
    ///
    /// # Errors
    ///
    /// [`SubjectServiceError`]; it may be written.
    pub async fn mute(
        &self,
        subject: &Subject,
        metric: Option<&Metric>,
        mute: Option<&Mute>,
    ) -> Result<(), SubjectServiceError> {
        let Partition { client, keys } = self.partitions.of(subject);
        let written = tokio::time::timeout(REPLACE_TIMEOUT, set_mute(client, keys, subject, metric, mute)).await;
        Ok(written.map_err(|_| SubjectServiceError::Timeout)??)
    }

    /// Removes everything that is stored of a subject.
    ///
    /// # Errors
    ///
    /// [`SubjectServiceError`]; a part may be removed, and the rest is when it is repeated.
    pub async fn erase(&self, subject: &Subject) -> Result<ErasedSubject, SubjectServiceError> {
        let Self { partitions, plans } = self;
        let erased: RedisResult<ErasedSubject> =
            tokio::time::timeout(ERASE_TIMEOUT, erasure::erase(partitions, plans, subject))
                .await
                .map_err(|_| SubjectServiceError::Timeout)?;
        let erased = erased?;
        tracing::info!(%subject, "everything that was stored of the subject is removed");
        Ok(erased)
    }
}

impl From<SubjectServiceError> for Problem {
    fn from(error: SubjectServiceError) -> Self {
        match error {
            SubjectServiceError::Timeout => Self::of_redis(ErrorKind::Unreachable),
            SubjectServiceError::Contended => Self::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            SubjectServiceError::Redis(error) => {
                tracing::warn!(%error, "a writing route of a subject: Redis failed");
                Self::of_redis(error_kind(&error))
            }
        }
    }
}
