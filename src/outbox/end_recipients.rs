//! The recipients of notifications, with what only stored deliveries tell: who got the alerts that have ended.

use std::collections::BTreeSet;

use redis::RedisResult;

use super::config::MultiplePolicy;
use super::recipients::Recipients;
use crate::contacts::resolver::ResolvedContacts;
use crate::redis_client::RedisClient;
use crate::types::{ContactId, DeliveryId, Keys, QuotaNotification};

/// The recipients of each notification, given the contacts of its subject. One request asks for all deliveries of
/// alerts that have ended; without such an end nothing is read.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn recipients_of_each(
    client: &RedisClient,
    keys: &Keys,
    notifications: &[(QuotaNotification<'_>, &ResolvedContacts)],
    on_multiple: MultiplePolicy,
) -> RedisResult<Vec<Recipients>> {
    let (mut asked, mut pipeline) = (Vec::new(), redis::pipe());
    for (at, (notification, contacts)) in notifications.iter().enumerate() {
        let QuotaNotification::Resolved(notice) = notification else { continue };
        for contact in contacts.asking_for_end(notice.scope) {
            asked.push((at, &contact.id));
            let deliveries = notice.alerts.iter().map(|alert| keys.delivery(&DeliveryId::derive(alert, &contact.id)));
            pipeline.cmd("EXISTS").arg(deliveries.collect::<Vec<_>>());
        }
    }
    let stored: Vec<u64> = if asked.is_empty() { Vec::new() } else { client.pipe(&pipeline).await? };
    let had = asked.into_iter().zip(stored).filter(|(_, deliveries)| *deliveries > 0).map(|(asked, _)| asked);
    let had: BTreeSet<(usize, &ContactId)> = had.collect();
    let select =
        |(at, (notification, contacts)): (usize, &(QuotaNotification<'_>, &ResolvedContacts))| match *notification {
            QuotaNotification::Resolved(notice) => {
                Recipients::of_end(notice, contacts, |contact| had.contains(&(at, contact)))
            }
            other => Recipients::select(other, contacts, on_multiple),
        };
    Ok(notifications.iter().enumerate().map(select).collect())
}
