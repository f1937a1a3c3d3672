//! A set of leased deliveries that leave in one message: decide about each, send once, settle all in one step.
//!
//! A receiver takes a message with a known id for a repetition and may drop it. So nothing joins a message after its
//! first attempt, and what was in it is in it again, unless it has ended. What must wait at the first attempt leaves
//! the set, and so does what has ended. This is recorded before the others are sent: a daemon that is killed in between
//! would otherwise send all under the id that receivers know from the others alone. What can't be judged at a later
//! attempt leaves the set too, and is perhaps told twice: the others must not wait until somebody mends its contacts.

use std::time::Duration;

use metrics::counter;

use super::attempt_request::AttemptRequest;
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
                Decision::FanOut(quota, contacts, disabled) => {
                    // It is still in the set, so nothing may be sent without it.
                    if !self.fan_out_again(leased, quota, contacts, disabled).await {
                        return;
                    }
                }
            }
        }
        let Some(start_by) = self.start_by(first) else {
            drop(slot);
            for (leased, ..) in sendable {
                ends.push(EndedLease { leased, settlement: Settlement::Released(Duration::ZERO), contact: None });
            }
            self.settle(&ends).await;
            return;
        };
        let mut requests = Vec::with_capacity(sendable.len());
        for (leased, contact, contacts) in &sendable {
            let request = request_of(leased, contact, contacts.as_ref(), start_by);
            requests.push(request.expect("only readable notifications are attempted"));
        }
        let leased: Vec<&LeasedDelivery> = sendable.iter().map(|(leased, ..)| *leased).collect();
        let verdicts = self.hold_back(Some(set), &leased, &requests).await;
        let mut sent = Vec::with_capacity(sendable.len());
        for ((one, request), verdict) in sendable.iter().zip(requests).zip(&verdicts) {
            match verdict {
                Ok(present) => {
                    let notification = present.as_ref().unwrap_or(request.notification);
                    sent.push((one, AttemptRequest { notification, ..request }));
                }
                Err(settlement) => {
                    let settlement = settlement.clone();
                    ends.push(EndedLease { leased: one.0, settlement, contact: Some(&one.1) });
                }
            }
        }
        if set.attempt > 1 && !sent.is_empty() {
            ends.iter_mut().for_each(|end| end.settlement.set_aside());
        }
        if !self.settle(&ends).await || sent.is_empty() {
            return;
        }
        let (sent, requests): (Vec<&Sendable<'_>>, Vec<AttemptRequest<'_>>) = sent.into_iter().unzip();
        let Some(settlements) = self.send_set(set, first, &requests, slot).await else { return };
        let mut ends = Vec::with_capacity(sent.len());
        for ((leased, contact, contacts), settlement) in sent.into_iter().zip(settlements) {
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
        first: &LeasedDelivery,
        requests: &[AttemptRequest<'_>],
        slot: AttemptPermit,
    ) -> Option<Vec<Settlement>> {
        let attempt = self.shared.notifier.attempt_set(set, requests);
        let are_answered = |settlements: &Vec<Settlement>| settlements.iter().all(is_answered);
        let settlements = within_lease(first, slot, attempt, are_answered).await?;
        if settlements.iter().any(|settlement| matches!(settlement, Settlement::Throttled(_))) {
            counter!(meters::DELIVERIES_THROTTLED, "channel" => first.channel.as_str()).increment(1);
        }
        Some(settlements)
    }
}
