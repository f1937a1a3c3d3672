//! The names and the links of a message.

use redis::RedisResult;

use crate::channels::Labels;
use crate::contacts::Contact;
use crate::signing::PortalUrls;
use crate::subjects::Plans;
use crate::types::{DisplayName, Notification, UnixMs};

/// What labels are made of.
#[derive(Debug)]
pub(super) struct MessageLabels {
    pub(super) plans: Plans,
    /// Makes links to the portal, for plans without a page of their own.
    pub(super) portal: Option<PortalUrls>,
}

impl MessageLabels {
    /// The labels of a notification in a message to a contact. Only messages that people read have a link to the
    /// portal. It is the same for everything of one subject in a message, and in each attempt to send it.
    ///
    /// # Errors
    ///
    /// The link could not be made. The message must wait: without its link, and with it when it is repeated, it would
    /// be two messages under one id.
    pub(super) async fn of(
        &self,
        notification: &Notification,
        subject_name: Option<&DisplayName>,
        contact: &Contact,
        (message_id, happened_at): (&str, UnixMs),
    ) -> RedisResult<Labels> {
        let Some(quota) = notification.quota() else { return Ok(Labels::default()) };
        let mut labels = Labels::new(&self.plans, quota, subject_name.cloned());
        let portal = self.portal.as_ref().filter(|_| contact.is_for_people());
        if let (None, Some(portal)) = (&labels.usage_url, portal) {
            labels.usage_url = portal.url_in_messages(message_id, quota.subject(), happened_at).await?;
        }
        Ok(labels)
    }
}
