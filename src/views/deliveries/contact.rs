//! The recipient of a delivery. An operator sees the address; passwords in a URL are `***`.

use schemars::JsonSchema;
use serde::Serialize;

use super::DeliveryView;
use crate::contacts::resolver::{ContactLookup, ResolvedContacts};
use crate::contacts::{Contact, masked_address};
use crate::types::text_form::text_enum;
use crate::types::{Channel, ContactId, Mute, UnixMs};

/// The contact of a delivery as it is now: a delivery refers to it by id, and each attempt reads its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "DeliveryContact")]
pub struct DeliveryContactView {
    pub id: ContactId,
    /// The address or URL, without passwords; null if it is no longer known.
    pub address: Option<String>,
    pub status: DeliveryContactStatus,
    /// Its mute; absent if it is not muted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mute: Option<Mute>,
}

text_enum! {
    /// The state of a delivery's contact.
    pub enum DeliveryContactStatus {
        /// The next attempt goes there.
        Current = "current",
        /// It gets no alerts.
        Muted = "muted",
        /// It gets nothing: its receiver or mailbox has gone.
        Disabled = "disabled",
        /// Nobody has confirmed it.
        Unverified = "unverified",
        /// The subject does not have it any more.
        Removed = "removed",
        /// It may be among the contacts that can't be read.
        Unreadable = "unreadable",
    }
}

/// The contact of a delivery: one of the subject's present `contacts`, or one of the configuration.
pub fn contact_view(
    DeliveryView { channel, contact_id: id, .. }: &DeliveryView,
    contacts: &ResolvedContacts,
    configured: &[Contact],
    now: UnixMs,
) -> Option<DeliveryContactView> {
    let in_config = configured.iter().find(|contact| contact.id == *id);
    let usable = |contact: &Contact| match contact.muted_at(now).cloned() {
        Some(mute) => (Some(masked_address(contact)), DeliveryContactStatus::Muted, Some(mute)),
        None => (Some(masked_address(contact)), DeliveryContactStatus::Current, None),
    };
    // A fallback contact is not used after the subject's first own contact was added, but its address is still known.
    let removed = || (in_config.map(masked_address), DeliveryContactStatus::Removed, None);
    let (address, status, mute) = match contacts.find(id) {
        _ if id.is_of_operator() => in_config.map_or_else(removed, usable),
        _ if *channel == Channel::None => return None,
        ContactLookup::Found(contact) => usable(&contact),
        ContactLookup::Disabled(contact) => (Some(masked_address(&contact)), DeliveryContactStatus::Disabled, None),
        ContactLookup::NotUsable => match contacts.unverified.iter().find(|contact| contact.id == *id) {
            Some(contact) => (Some(masked_address(contact)), DeliveryContactStatus::Unverified, None),
            None => removed(),
        },
        ContactLookup::Unreadable => (None, DeliveryContactStatus::Unreadable, None),
    };
    Some(DeliveryContactView { id: id.clone(), address, status, mute })
}
