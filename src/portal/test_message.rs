//! A test message to one of the subject's own contacts.

use std::sync::Arc;
use std::time::Duration;

use super::notice::PortalNotice;
use super::state::PortalState;
use crate::actions::test_message::{sample, start_cooldown};
use crate::channels::{Labels, TestKind};
use crate::contacts::text_settings::read_locale;
use crate::subjects::StoredLevels;
use crate::types::{ContactId, OutcomeClass, Subject};
use crate::views::SubjectSettings;
use crate::views::portal::own_contacts;

/// How long the page waits for the receiver. The attempt continues.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends the message, and tells whether the receiver accepted it. What it answered is the operator's.
pub(super) async fn send_test(
    portal: &PortalState,
    subject: &Subject,
    id: &ContactId,
) -> Result<PortalNotice, PortalNotice> {
    let unavailable = |error| {
        tracing::warn!(%error, "Redis failed before a test message of the portal");
        PortalNotice::Unavailable
    };
    let (partitions, plans) = (&portal.observer.partitions, &portal.observer.plans);
    let partition = partitions.partition_of(subject);
    let stored = StoredLevels::read(&partition.client, &partition.keys, subject).await.map_err(unavailable)?;
    let now = partition.client.server_time().await.map_err(unavailable)?;
    let own = own_contacts(&stored, now).into_iter().map(|stored| stored.contact).find(|contact| contact.id == *id);
    let mut contact = own.ok_or(PortalNotice::NotFound)?;
    if !contact.verified {
        return Err(PortalNotice::NotVerified);
    }
    if contact.disabled.is_some() || contact.muted_at(now).is_some() {
        return Err(PortalNotice::GetsNothing);
    }
    if start_cooldown(partitions.first(), &contact).await.map_err(unavailable)?.is_some() {
        return Err(PortalNotice::Wait);
    }
    portal.count_sent("tests", subject).await?;
    contact.locale = read_locale(&partition.client, &partition.keys, subject).await.map_err(unavailable)?;
    let sample = sample(subject, SubjectSettings::read(&stored, plans));
    let (channels, labels) = (Arc::clone(&portal.channels), Labels::of_sample(plans, &sample));
    portal.record("testContact", subject, id).await;
    // It is finished although the browser leaves.
    let sent =
        tokio::spawn(async move { channels.send_test(&contact, TestKind::Alert, (&sample, &labels), now).await });
    Ok(match tokio::time::timeout(ANSWER_TIMEOUT, sent).await {
        Err(_) => PortalNotice::TestPending,
        Ok(Ok(outcome)) if outcome.class == OutcomeClass::Delivered => PortalNotice::TestAccepted,
        Ok(_) => PortalNotice::TestFailed,
    })
}
