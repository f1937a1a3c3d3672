//! What the writing routes of a subject do: replace its settings, mute it, erase everything of it, within a timeout.

use std::time::Duration;

use axum::http::StatusCode;

use super::problem::{CALL_TIMEOUT, Problem, within};
use crate::contacts::store::{EditContactsError, replace_settings};
use crate::erasure::{self, ErasedSubject};
use crate::subjects::mutes::set_mute;
use crate::subjects::{Plans, SubjectRecord};
use crate::types::{Metric, Mute, Subject, UnixMs};
use crate::views::{SubjectView, subject as subjects};
use crate::wire::{Partition, Partitions};

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

impl SubjectService {
    /// Replaces the settings beside the contacts, and shows the subject as it is then.
    /// After an error they may be written.
    pub async fn replace(&self, subject: &Subject, record: &SubjectRecord) -> Result<SubjectView, Problem> {
        let Self { partitions, plans } = self;
        let Partition { client, keys } = partitions.of(subject);
        let replaced = async {
            replace_settings(client, keys, subject, record).await.map_err(not_replaced)?;
            Ok::<_, Problem>((subjects::read_fields(client, keys, subject).await?, client.server_time().await?))
        };
        let (fields, now) = within(CALL_TIMEOUT, replaced).await?;
        tracing::info!(%subject, "settings are replaced");
        Ok(SubjectView::read(subject.as_str().as_bytes(), &fields, plans, now))
    }

    /// The time of the server, by which a mute ends.
    pub async fn server_time(&self) -> Result<UnixMs, Problem> {
        within(CALL_TIMEOUT, self.partitions.first().client.server_time()).await
    }

    /// Mutes a subject or one metric of it, or ends that mute.
    /// After an error it may be written.
    pub async fn mute(&self, subject: &Subject, metric: Option<&Metric>, mute: Option<&Mute>) -> Result<(), Problem> {
        let Partition { client, keys } = self.partitions.of(subject);
        within(CALL_TIMEOUT, set_mute(client, keys, subject, metric, mute)).await
    }

    /// Removes everything that is stored of a subject.
    /// After an error a part may be removed, and the rest is when it is repeated.
    pub async fn erase(&self, subject: &Subject) -> Result<ErasedSubject, Problem> {
        let Self { partitions, plans } = self;
        let erased = within(ERASE_TIMEOUT, erasure::erase(partitions, plans, subject)).await?;
        tracing::info!(%subject, "everything that was stored of the subject is removed");
        Ok(erased)
    }
}

fn not_replaced(error: EditContactsError) -> Problem {
    match error {
        EditContactsError::Redis(error) => error.into(),
        EditContactsError::NotAnArray(_) | EditContactsError::Contended => {
            let detail = "others change the subject's contacts all the time: try again";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        }
    }
}
