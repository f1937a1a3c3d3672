//! Explains a notice, or a message with several deliveries, by the id that its receivers quote.

use super::alert::{NoDeliveryReason, without_deliveries};
use super::delivery::Audience;
use super::outbox::waits_in_outbox;
use super::{ExplainError, Explainer, Explanation, NAMED_MAX};
use crate::types::UnixMs;
use crate::types::text::pluralize;
use crate::views::NotificationId;
use crate::views::deliveries::find_notified;

impl Explainer {
    /// Explains a notice or a message with its deliveries, or that the notice is not fanned out yet; `None` if nothing
    /// of it is stored.
    pub(super) async fn notification(
        &self,
        named: &NotificationId,
        audience: Audience,
    ) -> Result<Option<Explanation>, ExplainError> {
        let mut found = find_notified(&self.observer.partitions, named).await?;
        if found.len() > 1 {
            let ids = found.into_keys().take(NAMED_MAX).collect();
            return Err(ExplainError::Ambiguous { what: "ids", text: named.to_string(), ids });
        }
        let (mut explanation, mut details) = (Vec::new(), Vec::new());
        let (id, of_id) = found.pop_first().unwrap_or_else(|| (named.to_string(), Vec::new()));
        for (partition, delivery) in of_id {
            if let Some((sentences, detail)) = self.explained_delivery(partition, &delivery, audience).await? {
                // A notice is only explained once; a message has different ones.
                let is_repeated = !details.is_empty() && detail.delivery.sent_in.as_ref() != Some(&id);
                explanation.extend(sentences.into_iter().skip(usize::from(is_repeated)));
                details.push(detail);
            }
        }
        let is_message = details.iter().any(|detail| detail.delivery.sent_in.as_ref() == Some(&id));
        if is_message {
            let size = pluralize(details.len(), "delivery", "deliveries");
            explanation.insert(0, format!("{id} is a message to one contact with {size}."));
        } else if details.is_empty() {
            for partition in self.observer.partitions.iter() {
                if waits_in_outbox(partition, named.as_str(), UnixMs(0)).await? {
                    let daemons = self.partition_facts(partition).await?.daemons;
                    explanation.push(without_deliveries(true, NoDeliveryReason::Unknown, daemons));
                }
            }
        }
        let about = if is_message { "message" } else { "notice" };
        let explained = Explanation { about, id, explanation, alert: None, deliveries: details, usage: None };
        Ok((!explained.explanation.is_empty()).then_some(explained))
    }
}
