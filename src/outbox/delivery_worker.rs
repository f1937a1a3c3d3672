//! One leased delivery: load its recipients, decide, send, settle. The dispatcher spawns a task for each message. Read
//! next: [`super::set_worker`], for several deliveries in one message.

use std::error::Error;
use std::time::Duration;

use metrics::counter;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::field::display;

use super::attempt_request::AttemptRequest;
use super::context::{DispatcherConfig, OutboxContext};
use super::delivery_log;
use super::destination_health::DestinationHealth;
use super::error::chain;
use super::fan_out::FanOutReply;
use super::lease::{DeliverySet, LeasedDelivery};
use super::leased_message::LeasedMessage;
use super::leased_recipients::LeasedRecipients;
use super::notice_judge::Verdict;
use super::notifier::Notifier;
use super::pending_outcomes::PendingOutcomes;
use super::recipients::Recipients;
use super::settle::Settlement;
use super::settle_queue::{EndedLease, SettleQueue};
use super::slots::AttemptPermit;
use super::told::store_told;
use super::wake::wake_reachable;
use super::{UNREADABLE_CONTACT_WAIT, expires_at};
use crate::channels::destination;
use crate::contacts::Contact;
use crate::contacts::resolver::{ContactLookup, ContactsSource, ResolvedContacts};
use crate::redis_client::backoff::BackoffPolicy;
use crate::subjects::SubjectMutes;
use crate::types::{Channel, DisabledState, Notification, QuotaNotification, meters};

/// How long a delivery waits for the end of an earlier attempt before it is released. Behind a slow receiver,
/// deliveries would otherwise be leased for seconds without an attempt and delay new alerts and a pause.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(1);

/// What all tasks of a dispatcher share.
#[derive(Debug)]
pub(super) struct DeliveryWorker<N> {
    pub(super) shared: DispatcherConfig<N>,
    pub(super) pending_outcomes: PendingOutcomes,
    pub(super) settle_queue: SettleQueue,
    pub(super) stop: CancellationToken,
}

/// What to do with a leased delivery.
pub(super) enum Decision<'a> {
    /// Attempt it to this contact. With the contacts of the subject, if the outcome may disable this one.
    Attempt(Contact, Option<ResolvedContacts>),
    /// No attempt: record this settlement.
    End(Settlement),
    /// No attempt: fan out the notification to the current contacts. If this contact is disabled, first tell the
    /// others.
    FanOut(QuotaNotification<'a>, ResolvedContacts, Option<(Contact, DisabledState)>),
}

impl<N: Notifier> DeliveryWorker<N> {
    /// Loads the recipients of leased deliveries that leave in one message, decides, sends, and settles. In every case
    /// the leases are settled or end by themselves. The slot is freed before the outcome is recorded: the record frees
    /// the place at the destination, and the next delivery there needs a slot.
    pub(super) async fn work(&self, message: LeasedMessage, slot: AttemptPermit) {
        let LeasedMessage { leased, read, others } = message;
        if let Some(set) = &leased.set {
            return self.work_on_set(set, (&leased, read), others, slot).await;
        }
        let (settlement, contact) = match self.decide(&leased, read).await {
            Decision::Attempt(contact, contacts) => {
                (self.send(&leased, &contact, contacts.as_ref(), slot).await, Some(contact))
            }
            Decision::End(settlement) => {
                drop(slot);
                (Some(settlement), None)
            }
            Decision::FanOut(notification, contacts, disabled) => {
                drop(slot);
                self.fan_out_again(&leased, notification, contacts, disabled).await;
                return;
            }
        };
        if let Some(settlement) = settlement {
            self.settle(&[EndedLease { leased: &leased, settlement, contact: contact.as_ref() }]).await;
        }
    }

    /// Like [`Self::work`], once an earlier attempt there has ended. Releases the lease if that is late or fails.
    pub(super) async fn work_after(
        &self,
        message: LeasedMessage,
        (follows, waiting): (oneshot::Receiver<AttemptPermit>, OwnedSemaphorePermit),
    ) {
        let slot = tokio::select! {
            slot = follows => slot.ok(),
            () = self.stop.cancelled() => None,
            () = tokio::time::sleep(FOLLOWS_WITHIN) => None,
        };
        drop(waiting);
        match slot {
            Some(slot) => self.work(message, slot).await,
            None => {
                let released =
                    |leased| EndedLease { leased, settlement: Settlement::Released(Duration::ZERO), contact: None };
                self.settle(&message.all().map(released).collect::<Vec<_>>()).await;
            }
        }
    }

    /// Decides what to do with a leased delivery.
    pub(super) async fn decide<'a>(&self, leased: &'a LeasedDelivery, read: Option<LeasedRecipients>) -> Decision<'a> {
        match self.load(leased, read).await {
            Ok(recipients) => decide(leased, recipients),
            Err(settlement) => Decision::End(settlement),
        }
    }

    /// The recipients of a leased delivery, or what to record if they are unknown.
    async fn load<'a>(
        &self,
        leased: &'a LeasedDelivery,
        read: Option<LeasedRecipients>,
    ) -> Result<LoadedRecipients<'a>, Settlement> {
        let OutboxContext { client, contacts, .. } = &self.shared.outbox;
        match &leased.notification {
            Ok(Notification::Alert(alert)) => self.load_quota(leased, alert.into(), read).await,
            Ok(Notification::GrantExpires(notice)) => self.load_quota(leased, notice.into(), read).await,
            Ok(Notification::Usage(notice)) => self.load_quota(leased, notice.into(), read).await,
            Ok(Notification::Resolved(notice)) => self.load_quota(leased, notice.into(), read).await,
            Ok(Notification::Verification(request)) => {
                let contact = self.shared.consents.contact(request).await;
                contact.map(LoadedRecipients::One).map_err(|error| give_back(leased, &error))
            }
            Ok(Notification::ContactDisabled(notice)) => {
                let contacts = contacts.contacts_of(client, &notice.subject).await;
                contacts.map(LoadedRecipients::OfNotice).map_err(|error| give_back(leased, &error))
            }
            Ok(Notification::Digest(_)) => {
                let mut operators = contacts.operator().iter().map(|one| &one.contact);
                Ok(LoadedRecipients::One(operators.find(|one| one.id == leased.contact).cloned()))
            }
            Err(why) => {
                tracing::error!(subject = leased.subject, delivery = %leased.id, why, "the notification of a delivery is unreadable; the delivery ends dead");
                Err(Settlement::Unsendable("the stored notification is unreadable".to_owned()))
            }
        }
    }

    /// The recipients of a notification about a quota, and the mutes of its subject.
    async fn load_quota<'a>(
        &self,
        leased: &'a LeasedDelivery,
        notification: QuotaNotification<'a>,
        read: Option<LeasedRecipients>,
    ) -> Result<LoadedRecipients<'a>, Settlement> {
        let OutboxContext { client, contacts, .. } = &self.shared.outbox;
        let recipients = match LeasedRecipients::get(read, client).await {
            Some(stored) => contacts.read_recipients(notification, stored, leased.clock.now()),
            None => contacts.recipients_of(client, notification, leased.clock.now()).await,
        };
        let (mut contacts, mutes) = recipients.map_err(|error| give_back(leased, &error))?;
        if matches!(notification, QuotaNotification::Resolved(_)) {
            contacts = contacts.for_end_to(&leased.contact);
        }
        Ok(LoadedRecipients::OfQuota(notification, contacts, mutes))
    }

    /// Makes one attempt. Returns what to record; `None` if nothing may be recorded, so that the lease ends by itself.
    /// `contacts` are those of the subject, if the outcome may disable this one.
    async fn send(
        &self,
        leased: &LeasedDelivery,
        contact: &Contact,
        contacts: Option<&ResolvedContacts>,
        slot: AttemptPermit,
    ) -> Option<Settlement> {
        let Some(start_by) = self.start_by(leased) else {
            drop(slot);
            return Some(Settlement::Released(Duration::ZERO));
        };
        let request = request_of(leased, contact, contacts, start_by)?;
        let attempt = async {
            match self.hold_back(None, &[leased], &[request]).await.pop().expect("a verdict for each") {
                Ok(present) => {
                    let notification = present.as_ref().unwrap_or(request.notification);
                    self.shared.notifier.attempt(AttemptRequest { notification, ..request }).await
                }
                Err(unsent) => unsent,
            }
        };
        let settlement = within_lease(leased, slot, attempt, is_answered).await?;
        if let Settlement::Throttled(_) = settlement {
            counter!(meters::DELIVERIES_THROTTLED, "channel" => leased.channel.as_str()).increment(1);
        }
        match contacts {
            Some(contacts) => self.judge_contact(leased, contact, contacts, settlement).await,
            None => Some(settlement),
        }
    }

    /// Like [`Notifier::hold_back`], and stores what notices tell before it is sent: receivers that know an id expect
    /// the same content under it.
    pub(super) async fn hold_back(
        &self,
        set: Option<&DeliverySet>,
        leased: &[&LeasedDelivery],
        requests: &[AttemptRequest<'_>],
    ) -> Vec<Verdict> {
        let OutboxContext { client, keys, .. } = &self.shared.outbox;
        let mut verdicts = self.shared.notifier.hold_back(set, requests).await;
        for (leased, verdict) in leased.iter().zip(&mut verdicts) {
            let Ok(Some(told)) = verdict else { continue };
            match store_told(client, keys, leased, told).await {
                Ok(true) => {}
                // The settlement finds that the lease is lost.
                Ok(false) => *verdict = Err(Settlement::Released(Duration::ZERO)),
                Err(error) => {
                    tracing::debug!(delivery = %leased.id, error = %chain(&error), "what a notice tells could not be stored");
                    *verdict = Err(Settlement::Released(BackoffPolicy::RECONNECT.max_interval));
                }
            }
        }
        verdicts
    }

    /// The latest start of an attempt; `None` if it must not start any more. An attempt that is longer than its lease
    /// could overlap with another worker's.
    pub(super) fn start_by(&self, leased: &LeasedDelivery) -> Option<Instant> {
        let timeout = self.shared.notifier.timeout(leased.channel);
        leased.clock.start_by(timeout).filter(|_| !self.stop.is_cancelled())
    }

    /// Fans the notification out to the current contacts, because the delivery's contact is gone or disabled, or there
    /// was none. Returns whether this is recorded.
    pub(super) async fn fan_out_again(
        &self,
        leased: &LeasedDelivery,
        quota: QuotaNotification<'_>,
        mut contacts: ResolvedContacts,
        disabled: Option<(Contact, DisabledState)>,
    ) -> bool {
        if let Some((contact, state)) = disabled {
            let tell = || self.tell_of_disabled(leased, quota.subject(), &contact, &state);
            let Some(others) = self.retry_until_recorded(leased, tell).await else { return false };
            contacts = others;
        }
        let outbox = &self.shared.outbox;
        let recipients = Recipients::select(quota, &contacts, outbox.on_multiple);
        let call = || self.settle_queue.fan_out(leased, &recipients);
        match self.retry_until_recorded(leased, call).await {
            Some(FanOutReply::Done(result)) => delivery_log::fanned_out_again(leased, quota, &result),
            // An earlier call may have succeeded without a reply. The steps below are then still missing.
            Some(_) => {
                tracing::debug!(delivery = %leased.id, "not fanned out again: the lease was lost, or an earlier call succeeded")
            }
            None => return false,
        }
        // Even if no delivery was created, the source has freed a place at its destination.
        outbox.new_deliveries.notify_one();
        if recipients.waits {
            let subjects = std::slice::from_ref(quota.subject());
            self.retry_until_recorded(leased, || wake_reachable(outbox, subjects)).await;
        }
        true
    }
}

/// The attempt of a leased delivery; `None` if its notification is unreadable, so that there is none.
pub(super) fn request_of<'a>(
    leased: &'a LeasedDelivery,
    contact: &'a Contact,
    contacts: Option<&'a ResolvedContacts>,
    start_by: Instant,
) -> Option<AttemptRequest<'a>> {
    Some(AttemptRequest {
        delivery: &leased.id,
        notification: leased.notification.as_ref().ok()?,
        contact,
        subject_name: contacts.and_then(|contacts| contacts.subject_name.as_ref()),
        zone: contacts.and_then(|contacts| contacts.zone),
        source: contacts.map_or_else(ContactsSource::default, |contacts| contacts.source),
        more_follows: leased.more_follows,
        attempts: leased.attempts,
        attempt_since_replay: leased.attempt_since_replay,
        first_attempt: leased.first_attempt,
        paused: leased.paused,
        may_have_arrived: leased.may_have_arrived,
        waited_until: leased.waited_until,
        is_told: leased.is_told,
        now: leased.clock.now(),
        start_by,
    })
}

/// Runs an attempt until its lease ends, and frees the slot. `None`, and logged: it took longer.
pub(super) async fn within_lease<T>(
    leased: &LeasedDelivery,
    slot: AttemptPermit,
    attempt: impl Future<Output = T>,
    is_answered: impl FnOnce(&T) -> bool,
) -> Option<T> {
    let attempted = tokio::time::timeout(leased.clock.remaining(), attempt).await;
    match attempted.as_ref().is_ok_and(is_answered) {
        true => drop(slot),
        false => slot.close_followers(),
    }
    if attempted.is_err() {
        let LeasedDelivery { id, attempts, channel, subject, notification, .. } = leased;
        let notification = notification.as_ref().ok();
        let alert = notification.and_then(Notification::alert_id).map(display);
        let request = notification.and_then(Notification::request_id).map(display);
        tracing::error!(subject, alert, request, delivery = %id, attempt = attempts, channel = channel.as_str(),
            "attempt did not keep its deadline and is given up; the delivery is attempted again");
    }
    attempted.ok()
}

/// The possible recipients of a delivery.
enum LoadedRecipients<'a> {
    /// The contacts of the subject, and its mutes for the notification.
    OfQuota(QuotaNotification<'a>, ResolvedContacts, SubjectMutes),
    /// The contacts of the subject of a notice that goes to one contact.
    OfNotice(ResolvedContacts),
    /// This contact, if it still exists.
    One(Option<Contact>),
}

/// Decides what to do with a delivery, from the current contacts. Pure.
fn decide<'a>(leased: &LeasedDelivery, recipients: LoadedRecipients<'a>) -> Decision<'a> {
    match recipients {
        // The length of the lease depends on the channel at the creation of the delivery.
        LoadedRecipients::One(contact) => match contact.filter(|contact| contact.channel() == leased.channel) {
            Some(contact) => Decision::Attempt(contact, None),
            None => Decision::End(Settlement::Cancelled),
        },
        // A notice goes only to the contact that it was created for: other contacts have their own notices.
        LoadedRecipients::OfNotice(contacts) => match choose_contact(leased, &contacts) {
            ContactLookup::Found(contact) => Decision::Attempt(contact, Some(contacts)),
            ContactLookup::Unreadable => Decision::End(Settlement::Released(UNREADABLE_CONTACT_WAIT)),
            ContactLookup::NotUsable | ContactLookup::Disabled(_) => Decision::End(Settlement::Cancelled),
        },
        LoadedRecipients::OfQuota(quota, contacts, mutes) => match choose_contact(leased, &contacts) {
            ContactLookup::Found(contact) => match mutes.mute_of(quota.metric()).filter(|_| quota.can_be_muted()) {
                Some(muted) => Decision::End(Settlement::Muted(muted.to_string())),
                None => Decision::Attempt(contact, Some(contacts)),
            },
            ContactLookup::NotUsable
                if leased.channel == Channel::None
                    && contacts.readable.is_empty()
                    && leased.clock.now() >= expires_at(quota) =>
            {
                Decision::End(Settlement::Expired)
            }
            ContactLookup::NotUsable => Decision::FanOut(quota, contacts, None),
            ContactLookup::Disabled(contact) => {
                let disabled = contact.disabled.clone().map(|state| (contact, state));
                Decision::FanOut(quota, contacts, disabled)
            }
            ContactLookup::Unreadable => Decision::End(Settlement::Released(UNREADABLE_CONTACT_WAIT)),
        },
    }
}

/// The contact that this delivery may be attempted to; [`ContactLookup::NotUsable`] if there is none.
fn choose_contact(leased: &LeasedDelivery, contacts: &ResolvedContacts) -> ContactLookup {
    if leased.channel == Channel::None {
        return ContactLookup::NotUsable;
    }
    match contacts.find(&leased.contact) {
        // The contact with this id now has another channel, for which the lease may be too short, or another receiver,
        // which has another queue. A second fan-out stores the new one and makes the delivery due.
        ContactLookup::Found(contact)
            if contact.channel() != leased.channel || destination(&contact) != leased.destination =>
        {
            ContactLookup::NotUsable
        }
        found => found,
    }
}

/// Releases a lease without an attempt, because Redis did not return the contacts.
fn give_back(leased: &LeasedDelivery, error: &(impl Error + 'static)) -> Settlement {
    let LeasedDelivery { id, subject, .. } = leased;
    tracing::warn!(subject, delivery = %id, error = chain(error), "could not read contacts: no attempt was made");
    Settlement::Released(BackoffPolicy::RECONNECT.max_interval)
}

/// Whether a follower may start at once: no attempt was made, or the destination answered it.
pub(super) fn is_answered(settlement: &Settlement) -> bool {
    let has_failed = |outcome| DestinationHealth::from_outcome(outcome) == Some(DestinationHealth::Failed);
    !settlement.outcome().is_some_and(has_failed)
}
