//! A set of leased deliveries that leave in one message: decide about each, send once, settle all in one step.
//!
//! A receiver takes a message with a known id for a repetition and may drop it. So nothing joins a message after its
//! first attempt, and what was in it is in it again, unless it has ended. What must wait at the first attempt leaves
//! the set when it is settled; what must wait at a later one makes all others wait.

use std::time::Duration;

use metrics::counter;

use super::delivery_worker::{Decision, DeliveryWorker, is_answered, request_of, within_lease};
use super::lease::{DeliverySet, LeasedDelivery};
use super::leased_recipients::LeasedRecipients;
use super::notifier::Notifier;
use super::settle::Settlement;
use super::settle_queue::EndedLease;
use super::slots::AttemptPermit;
use crate::contacts::Contact;
use crate::contacts::resolver::ResolvedContacts;
use crate::types::meters;

/// A delivery of the set that may be sent, with its contact. All have the same one.
type Sendable<'a> = (&'a LeasedDelivery, Contact, Option<ResolvedContacts>);

impl<N: Notifier> DeliveryWorker<N> {
    /// Like [`DeliveryWorker::work`] for a set.
    pub(super) async fn work_on_set(
        &self,
        set: &DeliverySet,
        (first, read): (&LeasedDelivery, Option<LeasedRecipients>),
        others: Vec<(LeasedDelivery, Option<LeasedRecipients>)>,
        slot: AttemptPermit,
    ) {
        let (others, reads): (Vec<_>, Vec<_>) = others.into_iter().unzip();
        let (mut ends, mut sendable) = (Vec::new(), Vec::new());
        let all = std::iter::once(first).chain(&others);
        for (leased, read) in all.zip(std::iter::once(read).chain(reads)) {
            match self.decide(leased, read).await {
                Decision::Attempt(contact, contacts) => sendable.push((leased, contact, contacts)),
                Decision::End(settlement) => ends.push(EndedLease { leased, settlement, contact: None }),
                // Before the others are settled, because they must not be sent again without it.
                Decision::FanOut(quota, contacts, disabled) => {
                    self.fan_out_again(leased, quota, contacts, disabled).await;
                }
            }
        }
        let wait = ends.iter().map(|end| &end.settlement).find(|end| matches!(end, Settlement::Released(_)));
        let settlements = match wait.filter(|_| set.attempt > 1) {
            Some(wait) => {
                drop(slot);
                vec![wait.clone(); sendable.len()]
            }
            None => self.send_set(set, &sendable, slot).await.unwrap_or_default(),
        };
        for ((leased, contact, contacts), settlement) in sendable.iter().zip(settlements) {
            let judged = match contacts {
                Some(contacts) => self.judge_contact(leased, contact, contacts, settlement).await,
                None => Some(settlement),
            };
            ends.extend(judged.map(|settlement| EndedLease { leased, settlement, contact: Some(contact) }));
        }
        self.settle(&ends).await;
    }

    /// Makes one attempt for all. Returns what to record for each; `None` if nothing may be recorded.
    async fn send_set(
        &self,
        set: &DeliverySet,
        sendable: &[Sendable<'_>],
        slot: AttemptPermit,
    ) -> Option<Vec<Settlement>> {
        let (first, ..) = sendable.first()?;
        let Some(start_by) = self.start_by(first) else {
            drop(slot);
            return Some(vec![Settlement::Released(Duration::ZERO); sendable.len()]);
        };
        let mut requests = Vec::with_capacity(sendable.len());
        for (leased, contact, contacts) in sendable {
            requests.push(request_of(leased, contact, contacts.as_ref(), start_by)?);
        }
        let attempt = self.shared.notifier.attempt_set(set, &requests);
        let are_answered = |settlements: &Vec<Settlement>| settlements.iter().all(is_answered);
        let settlements = within_lease(first, slot, attempt, are_answered).await?;
        if settlements.iter().any(|settlement| matches!(settlement, Settlement::Throttled(_))) {
            counter!(meters::DELIVERIES_THROTTLED, "channel" => first.channel.as_str()).increment(1);
        }
        Some(settlements)
    }
}
