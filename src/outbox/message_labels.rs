//! The names and the links of a message.

use super::notifier::AttemptRequest;
use super::settle::Settlement;
use crate::channels::Labels;
use crate::redis_client::backoff::BackoffPolicy;
use crate::signing::PortalUrls;
use crate::subjects::Plans;
use crate::types::UnixMs;

/// What labels are made of.
#[derive(Debug)]
pub(super) struct MessageLabels {
    pub(super) plans: Plans,
    /// Makes links to the portal, for plans without a page of their own.
    pub(super) portal: Option<PortalUrls>,
}

impl MessageLabels {
    /// The labels, or what to record instead of an attempt: a message without its link, and with it when it is
    /// repeated, would be two messages under one id. The link is the same for everything of one subject in a message.
    pub(super) async fn of(
        &self,
        request: &AttemptRequest<'_>,
        (message_id, happened_at): (&str, UnixMs),
    ) -> Result<Labels, Settlement> {
        let Some(quota) = request.notification.quota() else { return Ok(Labels::default()) };
        let mut labels = Labels::new(&self.plans, quota, request.subject_name.cloned());
        if let (None, Some(portal)) = (&labels.usage_url, &self.portal) {
            let url = portal.url_in_messages(message_id, quota.subject(), happened_at).await;
            labels.usage_url = url.map_err(|error| {
                tracing::debug!(delivery = %request.delivery, %error, "the link to the portal could not be made");
                Settlement::Released(BackoffPolicy::RECONNECT.max_interval)
            })?;
        }
        Ok(labels)
    }
}
