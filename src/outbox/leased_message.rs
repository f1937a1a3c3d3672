//! Leased deliveries, arranged by the message in which they leave.

use super::lease::LeasedDelivery;
use super::leased_recipients::LeasedRecipients;
use crate::contacts::resolver::ContactResolver;

/// The leased deliveries of one message, each with its share of the common read.
#[derive(Debug)]
pub(super) struct LeasedMessage {
    /// The only one, or the first of its set.
    pub(super) leased: LeasedDelivery,
    pub(super) read: Option<LeasedRecipients>,
    /// The others of the set.
    pub(super) others: Vec<(LeasedDelivery, Option<LeasedRecipients>)>,
}

impl LeasedMessage {
    /// Arranges the deliveries of one lease call, in which those of a set follow each other. Reads nothing yet.
    pub(super) fn of_each(contacts: &ContactResolver, leased: Vec<LeasedDelivery>) -> Vec<Self> {
        let reads = LeasedRecipients::of_each(contacts, &leased);
        let mut messages: Vec<Self> = Vec::with_capacity(leased.len());
        for (leased, read) in leased.into_iter().zip(reads) {
            match messages.last_mut() {
                Some(message) if leased.set.is_some() && message.leased.set == leased.set => {
                    message.others.push((leased, read));
                }
                _ => messages.push(Self { leased, read, others: Vec::new() }),
            }
        }
        messages
    }

    /// All its deliveries.
    pub(super) fn all(&self) -> impl Iterator<Item = &LeasedDelivery> {
        std::iter::once(&self.leased).chain(self.others.iter().map(|(leased, _)| leased))
    }
}
