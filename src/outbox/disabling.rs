//! Disables contacts: the mark, the notice to the others, and the alerts and other notifications that they take over.
//!
//! The order loses nothing at any interruption: first the contact is marked, then the others get the notice and the
//! alert, and only then the delivery is settled. An unsettled delivery is leased again, finds its contact disabled, and
//! completes the rest. Each step is repeatable: the mark keeps its first reason, and the ids of notices and deliveries
//! follow from it.

use std::time::Duration;

use metrics::counter;

use super::ENDED_DELIVERY_TTL;
use super::contact_health::{ContactHealth, UNKNOWN_KEPT, noted_since};
use super::context::OutboxContext;
use super::delivery_log;
use super::delivery_worker::DeliveryWorker;
use super::enqueue::{NewDelivery, enqueue_while_leased};
use super::error::{Operation, OutboxError, chain};
use super::fan_out::{FanOutReply, FanOutRequest, FanOutSource, fan_out};
use super::lease::LeasedDelivery;
use super::notifier::Notifier;
use super::recipients::Recipients;
use super::settle::Settlement;
use crate::contacts::resolver::{ContactLookup, ResolvedContacts};
use crate::contacts::store::{EditContactsError, edit_contacts};
use crate::contacts::{Contact, distinct, masked_contact};
use crate::redis_client::backoff::BackoffPolicy;
use crate::types::{
    ContactId, DisableReason, DisabledNotice, DisabledState, Notification, Outcome, OutcomeClass, Subject, UnixMs,
    meters,
};

/// The effect of an outcome on its contact.
enum ContactVerdict {
    /// The contact does not change.
    Keep,
    /// The contact is disabled.
    Disable(DisableReason),
    /// The contact is disabled if it gets the same answer after this time.
    DisableAfter(Duration),
}

impl<N: Notifier> DeliveryWorker<N> {
    /// Disables the contact if the attempt requires it. Returns how the lease must end: unchanged, or with the alert
    /// given to others. `None`: the others could not be told, so the lease ends by itself. The outcome of a message
    /// that arrived is recorded anyway, because it might otherwise be sent again.
    pub(super) async fn judge_contact(
        &self,
        leased: &LeasedDelivery,
        contact: &Contact,
        contacts: &ResolvedContacts,
        settlement: Settlement,
    ) -> Option<Settlement> {
        let Ok(notification) = &leased.notification else { return Some(settlement) };
        let (Some(subject), Some(outcome)) = (notification.subject(), settlement.outcome()) else {
            return Some(settlement);
        };
        let is_configured = contacts.is_configured(&contact.id);
        let (owner, own) = contact.where_it_belongs(subject);
        let reason = match self.verdict(&owner, &own, outcome, leased.clock.now()).await {
            ContactVerdict::Disable(reason) => reason,
            // The delivery must not end dead before it is known whether others get its alert.
            ContactVerdict::DisableAfter(wait) => match settlement {
                Settlement::Dead(outcome) if !is_configured => return Some(Settlement::Retry(outcome, wait)),
                other => return Some(other),
            },
            ContactVerdict::Keep => return Some(settlement),
        };
        if is_configured {
            counter!(meters::CONFIGURED_REFUSED, "reason" => reason.as_str()).increment(1);
            tracing::error!(contact = %contact.id, channel = contact.channel().as_str(), reason = reason.as_str(),
                "a configured contact has opted out or is unreachable: change fallback.contacts or operator.contacts");
            return Some(settlement);
        }
        let state = DisabledState { reason, detail: detail_of(outcome), at: leased.clock.now() };
        let mark = || self.mark_disabled(&owner, &own, &state);
        let is_delivered = outcome.class == OutcomeClass::Delivered;
        let marked = match self.retry_until_recorded(leased, mark).await {
            Some(Some(marked)) => marked,
            Some(None) => return Some(settlement),
            None => return is_delivered.then_some(settlement),
        };
        if marked == state {
            counter!(meters::CONTACTS_DISABLED, "reason" => reason.as_str()).increment(1);
            tracing::warn!(%subject, contact = %contact.id, channel = contact.channel().as_str(), reason = reason.as_str(),
                "contact is disabled: it gets nothing until somebody enables it again");
        }
        let tell = || self.tell_of_disabled(leased, subject, contact, &marked);
        let Some(others) = self.retry_until_recorded(leased, tell).await else {
            return is_delivered.then_some(settlement);
        };
        let is_enabled_again = matches!(others.find(&contact.id), ContactLookup::Found(_));
        if is_enabled_again || is_delivered {
            return Some(settlement);
        }
        if let Some(quota) = notification.quota() {
            let recipients = Recipients::select(quota, &others, self.shared.outbox.on_multiple);
            let source = FanOutSource::StaysLeased { id: &leased.id, token: &leased.token };
            let requests = [FanOutRequest { source, notification: quota, json: &leased.json, recipients: &recipients }];
            let call = || fan_out(&self.shared.outbox.client, &self.shared.outbox.keys, &requests);
            let answers = self.retry_until_recorded(leased, call).await?;
            let [FanOutReply::Done(result)] = answers.as_slice() else { return None };
            delivery_log::fanned_out(quota, result);
            self.shared.outbox.new_deliveries.notify_one();
        }
        Some(Settlement::ContactDisabled(outcome.clone()))
    }

    /// Tells the subject's other contacts, and the operator's contacts that get notices, that a contact is disabled.
    /// Each gets one notice, however often this is called, and none if the lease is lost. If the subject has inherited
    /// the contact, the others are those of the level it belongs to. Returns the current contacts of the subject.
    pub(super) async fn tell_of_disabled(
        &self,
        leased: &LeasedDelivery,
        subject: &Subject,
        disabled: &Contact,
        state: &DisabledState,
    ) -> Result<ResolvedContacts, OutboxError> {
        let OutboxContext { client, keys, contacts, new_deliveries, .. } = &self.shared.outbox;
        let contacts = contacts.contacts_of(client, subject).await?;
        // Ended deliveries are kept for this time. Later, nobody knows whether the others got the notice.
        if leased.clock.now().since(state.at) >= ENDED_DELIVERY_TTL {
            return Ok(contacts);
        }
        let (owner, disabled) = &disabled.where_it_belongs(subject);
        let told =
            if owner == subject { None } else { Some(self.shared.outbox.contacts.contacts_of(client, owner).await?) };
        let told = told.as_ref().unwrap_or(&contacts);
        let address = masked_contact(disabled).address().to_owned();
        let notice = DisabledNotice::new(owner, &disabled.id, (disabled.channel(), address), state.clone());
        let notification = Notification::ContactDisabled(notice);
        let others = distinct(told.readable.iter().filter(|other| other.id != disabled.id));
        let operators = told.operator.iter().filter(|one| one.notices).map(|one| &one.contact);
        for contact in others.into_iter().chain(operators) {
            enqueue_while_leased(client, keys, NewDelivery { notification: &notification, contact }, leased).await?;
        }
        new_deliveries.notify_one();
        Ok(contacts)
    }

    /// Whether to disable the contact of this subject.
    async fn verdict(&self, subject: &Subject, contact: &Contact, outcome: &Outcome, now: UnixMs) -> ContactVerdict {
        let disable_after = self.shared.config.disable_after;
        let (reason, note, after, kept) =
            match (outcome.disables, ContactHealth::from_outcome(contact.channel(), outcome)) {
                (Some(reason), _) if outcome.disables_after.is_zero() => return ContactVerdict::Disable(reason),
                (Some(reason), _) => (reason, ContactHealth::Unknown, outcome.disables_after, UNKNOWN_KEPT),
                (None, Some(note @ ContactHealth::Failing)) if !disable_after.is_zero() => {
                    (DisableReason::Failing, note, disable_after, disable_after)
                }
                (None, _) => return ContactVerdict::Keep,
            };
        let again_after = |wait| match note {
            ContactHealth::Unknown => ContactVerdict::DisableAfter(wait),
            _ => ContactVerdict::Keep,
        };
        let OutboxContext { client, keys, .. } = &self.shared.outbox;
        match noted_since(client, keys, (subject, &contact.id), note, (now, kept)).await {
            Ok(Some(since)) if now.since(since) >= after => ContactVerdict::Disable(reason),
            Ok(since) => again_after(after.saturating_sub(now.since(since.unwrap_or(now)))),
            Err(error) => {
                let error = chain(&error);
                tracing::debug!(%subject, error, "could not read since when a contact fails: tried again at the next failure");
                again_after(BackoffPolicy::RECONNECT.max_interval)
            }
        }
    }

    /// Marks the contact, if it still has the attempted form. `None`: it does not, or the contacts can't be edited now.
    async fn mark_disabled(
        &self,
        subject: &Subject,
        contact: &Contact,
        state: &DisabledState,
    ) -> Result<Option<DisabledState>, OutboxError> {
        let edited = edit_contacts(&self.shared.outbox.client, &self.shared.outbox.keys, subject, |array| {
            Ok::<_, EditContactsError>(array.disable(contact, state))
        });
        match edited.await {
            Ok(marked) => Ok(marked),
            Err(EditContactsError::Redis(source)) => {
                Err(OutboxError::redis(Operation::DisableContact, format_args!("subject {subject}"))(source))
            }
            Err(error @ (EditContactsError::NotAnArray(_) | EditContactsError::Contended)) => {
                let id: &ContactId = &contact.id;
                tracing::warn!(%subject, contact = %id, error = chain(&error), "contact could not be disabled; the next attempt tries again");
                Ok(None)
            }
        }
    }
}

/// The receiver's answer in a few words.
fn detail_of(outcome: &Outcome) -> String {
    let status = || outcome.status.map_or_else(String::new, |status| format!("status {status}"));
    outcome.error.clone().unwrap_or_else(status)
}
