//! Deliveries: lists by creation, and one with its attempts. Read next: `read`, which finds them.

mod contact;
mod dead_causes;
mod destinations;
mod ids;
mod merged;
mod notified;
mod read;
mod refusing;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

pub use contact::DeliveryContactStatus;
pub(crate) use contact::DeliveryContactView;
pub(super) use contact::contact_view;
pub(crate) use dead_causes::{DeadCauseView, DeadCausesView, dead_causes, partitions_with};
pub use destinations::list_destinations;
pub(crate) use destinations::{
    CircuitState, DestinationCursor, DestinationView, DestinationsView, destination_slice, read_destinations,
};
pub use merged::{DeliveriesCursor, list_from};
pub(crate) use merged::{find, list_partitions, partition_of};
pub(crate) use notified::find_notified;
pub(super) use read::read_detail;
pub(crate) use read::{DeliveryScan, count_dead, of_ids};
pub use read::{list, list_all, show};
pub(super) use refusing::{RefusingQueue, refusing_queues};

use super::IdPrefix;
use crate::types::timestamp::Rfc3339;
use crate::types::{
    Alert, AlertId, AlertThreshold, Attempt, Channel, ContactChannel, ContactId, DeliveryId, DeliveryState,
    Destination, DisabledNotice, DisabledState, GrantNotice, Metric, NotificationKind, OutcomeClass, Percent, Period,
    QuotaNotification, ResolvedNotice, Subject, UnixMs, UsageNotice, UsageNoticeKind, VerificationRequest,
};

/// A delivery.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Delivery")]
pub struct DeliveryView {
    pub id: DeliveryId,
    /// The alert that it carries; null if it carries none.
    pub alert_id: Option<AlertId>,
    pub subject: String,
    pub channel: Channel,
    pub state: DeliveryState,
    pub attempts: u32,
    /// When the next attempt is due; while one is running, when its lease ends. Null once it has ended.
    pub next_due: Option<Rfc3339>,
    /// What went wrong last, or why it ended.
    pub last_error: Option<String>,
    /// What it carries.
    pub r#type: NotificationKind,
    /// What its notice of usage says; absent unless it carries one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_notice_kind: Option<UsageNoticeKind>,
    /// `none` while it waits for a contact.
    pub contact_id: ContactId,
    /// In whose queue it waits, or waited: the origin of a webhook's URL, `email`, or `none`.
    pub destination: Destination,
    #[serde(skip)]
    pub partition: u32,
    pub metric: Option<Metric>,
    /// Percent of the limit; null if the threshold is in units.
    pub threshold_percent: Option<Percent>,
    pub threshold: Option<AlertThreshold>,
    pub period: Option<Period>,
    pub created_at: Rfc3339,
    /// When it ended; null while it is pending.
    pub ended_at: Option<Rfc3339>,
    /// When it was last made pending again.
    #[serde(skip)]
    pub replayed_at: Option<Rfc3339>,
    /// Whether an attempt is running. JSON has the end of its lease as `next_due`.
    #[serde(skip)]
    pub is_leased: bool,
    /// When the next attempt is made through the circuit of its destination, while it waits behind that; not there
    /// otherwise, also not while it is being attempted, or if it is due later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_probe: Option<Rfc3339>,
    /// When an operator discarded it; not there otherwise. Nothing counts it as dead any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discarded_at: Option<Rfc3339>,
    /// The id of the message in which it is sent with others; absent if it is sent alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_in: Option<String>,
}

impl DeliveryView {
    /// When it ended; for a pending one, when it was made or last replayed.
    fn changed_at(&self) -> UnixMs {
        let begun = self.created_at.0.max(self.replayed_at.map_or(UnixMs(0), |replayed| replayed.0));
        self.ended_at.map_or(begun, |ended| ended.0)
    }
}

/// A delivery with its alert, its contact and its attempts. Shows what the other side said: for the operator alone.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "DeliveryDetail")]
pub struct DeliveryDetailView {
    #[serde(flatten)]
    pub delivery: DeliveryView,
    /// The alert as it was raised; null if the delivery carries none.
    pub alert: Option<Alert>,
    /// The notice before units of a grant expire, as it was raised; absent unless the delivery carries one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant_notice: Option<GrantNotice>,
    /// The notice of usage, as it was raised; absent unless the delivery carries one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_notice: Option<UsageNotice>,
    /// The end of alerts, as it was raised; absent unless the delivery carries one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_notice: Option<ResolvedNotice>,
    /// The request for consent; null if the delivery carries none.
    pub verification: Option<VerificationView>,
    /// The disabled contact; absent unless the delivery carries a notice of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_contact: Option<DisabledContactView>,
    /// The contact as it is now; null while the delivery waits for one.
    pub contact: Option<DeliveryContactView>,
    /// Its attempts, the oldest first; the newest hundred are kept.
    pub attempt_log: Vec<AttemptView>,
    /// When the first attempt since it was made or replayed began.
    #[serde(skip)]
    pub first_attempt: Option<UnixMs>,
    /// How long sending had been paused in all before the first attempt.
    #[serde(skip)]
    pub paused_before: Option<Duration>,
    #[serde(skip)]
    pub is_cancelled_by_operator: bool,
    /// To where its last attempt went, as [`logged_address`](crate::contacts::logged_address) shortens it.
    #[serde(skip)]
    pub logged_address: Option<String>,
}

/// A request to ask a contact for its consent.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Verification")]
pub struct VerificationView {
    pub id: String,
    pub requested_at: Rfc3339,
    /// When nobody waits for the message any more.
    pub expires_at: Rfc3339,
}

impl From<VerificationRequest> for VerificationView {
    fn from(VerificationRequest { id, requested_at_ms, expires_at_ms, .. }: VerificationRequest) -> Self {
        Self { id, requested_at: Rfc3339(requested_at_ms), expires_at: Rfc3339(expires_at_ms) }
    }
}

/// A disabled contact, as shown in notices to others.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "DisabledContact")]
pub struct DisabledContactView {
    pub id: ContactId,
    #[schemars(with = "ContactChannel")]
    pub channel: Channel,
    /// Its address; passwords in a URL are `***`.
    pub address: String,
    pub disabled: DisabledState,
}

impl From<DisabledNotice> for DisabledContactView {
    fn from(DisabledNotice { contact, channel, address, state, .. }: DisabledNotice) -> Self {
        Self { id: contact, channel, address, disabled: state }
    }
}

impl DeliveryDetailView {
    /// The alert or notice about the quota of its subject; `None` if the delivery carries none.
    pub fn quota(&self) -> Option<QuotaNotification<'_>> {
        let notice = self.grant_notice.as_ref().map(QuotaNotification::from);
        let usage = self.usage_notice.as_ref().map(QuotaNotification::from);
        let resolved = self.resolved_notice.as_ref().map(QuotaNotification::from);
        self.alert.as_ref().map(QuotaNotification::from).or(notice).or(usage).or(resolved)
    }

    /// Whether it goes to a contact of its subject, including fallback contacts.
    pub fn is_to_own_contact(&self) -> bool {
        self.delivery.channel != Channel::None && !self.delivery.contact_id.is_of_operator()
    }

    /// Removes the response and the address of the other side, which only the operator may see.
    #[must_use]
    pub fn without_other_side(mut self) -> Self {
        for attempt in &mut self.attempt_log {
            (attempt.peer, attempt.reply) = (None, None);
        }
        self
    }
}

/// One attempt.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Attempt")]
pub struct AttemptView {
    /// When it ended.
    pub at: Rfc3339,
    /// What it meant for the delivery.
    #[schemars(with = "OutcomeClass")]
    pub outcome: String,
    /// HTTP status or SMTP reply code, when there was one.
    pub status: Option<u16>,
    pub duration_ms: u64,
    pub error: Option<String>,
    /// What the operator can do about it.
    pub hint: Option<String>,
    /// Host and port of the other side: for the operator alone, on the command line.
    #[schemars(with = "()")]
    pub peer: Option<String>,
    /// What the other side said: for the operator alone, on the command line.
    #[schemars(with = "()")]
    pub reply: Option<String>,
}

impl From<Attempt> for AttemptView {
    fn from(Attempt { at_ms, outcome, status, duration_ms, error, hint, peer, reply }: Attempt) -> Self {
        Self { at: Rfc3339(UnixMs(at_ms)), outcome, status, duration_ms, error, hint, peer, reply }
    }
}

/// Which deliveries to list.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    /// Only those in this state. Dead ones that were discarded are listed only without this.
    pub state: Option<DeliveryState>,
    pub subject: Option<Subject>,
    pub channel: Option<Channel>,
    pub destination: Option<Destination>,
    /// Only those whose last error holds this text.
    pub error: Option<String>,
    /// Only those whose last error is this cause of death, see [`DeadCauseView`].
    pub cause: Option<String>,
    /// Only those that ended at this time or earlier, or were made or replayed then, if they have not ended.
    pub until: Option<UnixMs>,
    /// Only those that carry an alert whose id begins so.
    pub alert: Option<IdPrefix<AlertId>>,
    pub since: Option<UnixMs>,
    pub before: Option<UnixMs>,
}

impl DeliveryFilter {
    /// Whether every delivery of the list that is read for it passes, apart from those that change meanwhile.
    fn takes_all_of_its_list(&self) -> bool {
        let Self { state, subject: _, since, channel, destination, error, cause, until, alert, before } = self;
        let has_state = match state {
            None | Some(DeliveryState::Pending) => true,
            // The list is by the time of death, and these times are of the creation.
            Some(DeliveryState::Dead) => since.is_none() && before.is_none(),
            Some(_) => false,
        };
        has_state
            && (channel.is_none() && destination.is_none() && error.is_none())
            && (cause.is_none() && until.is_none() && alert.is_none())
    }

    /// Whether it takes or leaves each [`DeadCauseView`] as a whole.
    pub(crate) fn is_of_causes(&self) -> bool {
        let Self { state: _, channel: _, destination: _, cause: _, subject, error, until, alert, since, before } = self;
        (subject.is_none() && error.is_none() && until.is_none())
            && (alert.is_none() && since.is_none() && before.is_none())
    }

    /// Whether the deliveries of this cause pass, as far as it depends on the cause.
    pub(crate) fn takes_cause(&self, DeadCauseView { destination, channel, cause, .. }: &DeadCauseView) -> bool {
        self.channel.is_none_or(|of| of == *channel)
            && self.destination.as_ref().is_none_or(|of| of == destination)
            && self.cause.as_ref().is_none_or(|of| of == cause)
    }

    /// Whether this delivery passes.
    pub fn takes(&self, view: &DeliveryView) -> bool {
        self.state.is_none_or(|state| state == view.state)
            && self.subject.as_ref().is_none_or(|subject| subject.as_str() == view.subject)
            && self.channel.is_none_or(|channel| channel == view.channel)
            && self.destination.as_ref().is_none_or(|destination| *destination == view.destination)
            && self.error.as_ref().is_none_or(|error| view.last_error.as_ref().is_some_and(|last| last.contains(error)))
            && self.cause.as_ref().is_none_or(|cause| *cause == cause_of(view.last_error.as_deref()))
            && self.until.is_none_or(|until| view.changed_at() <= until)
            && self
                .alert
                .as_ref()
                .is_none_or(|alert| view.alert_id.as_ref().is_some_and(|id| alert.matches(id.as_str())))
            && self.since.is_none_or(|since| since <= view.created_at.0)
            && self.before.is_none_or(|before| view.created_at.0 < before)
    }
}

/// Replaces an address in an error, so that equal refusals of many mailboxes are one cause.
const ADDRESS: &str = "<address>";
const UNKNOWN_CAUSE: &str = "unknown";

/// The cause for which a delivery with this last error died.
fn cause_of(error: Option<&str>) -> String {
    let words = error.unwrap_or(UNKNOWN_CAUSE).split(' ').map(|word| if word.contains('@') { ADDRESS } else { word });
    words.collect::<Vec<_>>().join(" ")
}
