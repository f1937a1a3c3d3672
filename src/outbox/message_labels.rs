//! The names and the links of a message.

use redis::RedisResult;

use super::attempt_request::AttemptRequest;
use super::settle::Settlement;
use crate::channels::Labels;
use crate::redis_client::backoff::BackoffPolicy;
use crate::redis_client::error_kind;
use crate::signing::PortalUrls;
use crate::subjects::Plans;
use crate::types::ONCE_A_MINUTE;

/// What labels are made of.
#[derive(Debug)]
pub(super) struct MessageLabels {
    pub(super) plans: Plans,
    /// Makes links to the portal, for plans without a page of their own.
    pub(super) portal: Option<PortalUrls>,
}

impl MessageLabels {
    /// The labels of each notification of one message, or what to record instead of an attempt. Only messages that
    /// people read have a link to the portal. It is the same for everything of one subject in a message, and in each
    /// attempt to send it. If Redis is away, the message waits: without its link, and with it when it is repeated, it
    /// would be two messages under one id. If Redis refuses, it leaves without.
    pub(super) async fn labels_of(
        &self,
        requests: &[&AttemptRequest<'_>],
        message_id: &str,
    ) -> Result<Vec<Labels>, Settlement> {
        let of_quota = |request: &&AttemptRequest<'_>| {
            let quota = request.notification.quota();
            quota.map_or_else(Labels::default, |quota| Labels::new(&self.plans, quota, request.subject_name.cloned()))
        };
        let mut labels: Vec<Labels> = requests.iter().map(of_quota).collect();
        if let Err(error) = self.add_links(&mut labels, requests, message_id).await {
            if error_kind(&error).is_transient() {
                tracing::debug!(message_id, %error, "the link to the portal could not be made");
                return Err(Settlement::Released(BackoffPolicy::RECONNECT.max_interval));
            }
            tracing::warn!(name: ONCE_A_MINUTE, %error, "messages are sent without a link to the portal");
        }
        Ok(labels)
    }

    async fn add_links(
        &self,
        labels: &mut [Labels],
        requests: &[&AttemptRequest<'_>],
        message_id: &str,
    ) -> RedisResult<()> {
        let without = |(labels, request): &(&mut Labels, &&AttemptRequest<'_>)| {
            labels.usage_url.is_none() && request.contact.is_for_people() && request.notification.quota().is_some()
        };
        let mut missing = labels.iter_mut().zip(requests).filter(without).peekable();
        let (Some(portal), Some(_), Some(first)) = (&self.portal, missing.peek(), requests.first()) else {
            return Ok(());
        };
        // A digest, and a message after a quiet time, would have links that expired while they waited.
        let at = first.waited_until.unwrap_or_else(|| first.notification.happened_at());
        let Some(url_of) = portal.in_message(message_id, at).await? else { return Ok(()) };
        for (labels, request) in missing {
            labels.usage_url = request.notification.quota().and_then(|quota| url_of(quota.subject()));
        }
        Ok(())
    }
}
