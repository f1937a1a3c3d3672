//! To whom a delivery goes. An operator sees the address; passwords in a URL are `***`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::contacts::resolver::{ContactLookup, ContactResolver, ResolveContactsError};
use crate::contacts::{Contact, masked_address};
use crate::redis_client::RedisClient;
use crate::types::text_form::text_enum;
use crate::types::{ContactId, Keys, Subject, UnixMs};
use crate::views::MuteView;

/// The contact of a delivery as it is now: a delivery refers to it by id, and each attempt reads its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "DeliveryContact")]
pub struct DeliveryContactView {
    pub id: ContactId,
    /// The address or URL, without passwords; null where it is not known any more.
    pub address: Option<String>,
    pub status: DeliveryContactStatus,
    /// Its mute. Not there where it is not muted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mute: Option<MuteView>,
}

text_enum! {
    /// Where the contact of a delivery stands.
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

/// A contact of the operator, which is the same for every subject; `configured` are the contacts of the configuration.
pub(super) fn of_operator(configured: &[Contact], id: &ContactId, now: UnixMs) -> Option<DeliveryContactView> {
    let (id, known) = (id.is_of_operator().then(|| id.clone())?, configured.iter().find(|contact| contact.id == *id));
    let (status, mute) = known.map_or((DeliveryContactStatus::Removed, None), |contact| status_of(contact, now));
    Some(DeliveryContactView { id, address: known.map(masked_address), status, mute })
}

/// Where a contact stands that gets alerts unless it is muted.
fn status_of(contact: &Contact, now: UnixMs) -> (DeliveryContactStatus, Option<MuteView>) {
    match contact.muted_at(now).cloned() {
        Some(mute) => (DeliveryContactStatus::Muted, Some(mute.into())),
        None => (DeliveryContactStatus::Current, None),
    }
}

/// Looks for the contact among the subject's own and in `fallback`.
pub(super) async fn find(
    client: &RedisClient,
    keys: &Keys,
    fallback: &[Contact],
    subject: &Subject,
    id: &ContactId,
    now: UnixMs,
) -> Result<DeliveryContactView, ResolveContactsError> {
    let contacts = ContactResolver::new(keys.clone(), fallback.to_vec()).contacts_of(client, subject).await?;
    let mut mute = None;
    let (address, status) = match contacts.find(id) {
        ContactLookup::Found(contact) => {
            let (status, of_contact) = status_of(&contact, now);
            mute = of_contact;
            (Some(masked_address(&contact)), status)
        }
        ContactLookup::Disabled(contact) => (Some(masked_address(&contact)), DeliveryContactStatus::Disabled),
        ContactLookup::NotUsable => match contacts.unverified.iter().find(|contact| contact.id == *id) {
            Some(contact) => (Some(masked_address(contact)), DeliveryContactStatus::Unverified),
            // One of the fallback leaves with the subject's first contact of its own; where it was sent is known all
            // the same.
            None => {
                let known = fallback.iter().find(|contact| contact.id == *id).map(masked_address);
                (known, DeliveryContactStatus::Removed)
            }
        },
        ContactLookup::Unreadable => (None, DeliveryContactStatus::Unreadable),
    };
    Ok(DeliveryContactView { id: id.clone(), address, status, mute })
}
