//! A contact as somebody names it, and what becomes of it. Pure.
//!
//! Options, rows of an import and JSON bodies fill a [`NamedContact`]. [`NamedContact::check`] judges it and generates
//! a secret if it needs one. Options and rows may name several contacts: they fill [`ContactColumns`] first.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::channels::{self, InvalidContact};
use crate::contacts::contact::Endpoint;
use crate::contacts::merge::{ContactSpec, ExplicitOptions};
use crate::contacts::message_format::InvalidFormat;
use crate::contacts::state::FilterChange;
use crate::contacts::{Contact, ContactOptions, ContactOrigin, ExtraHeaders, MessageFormat, masked_address};
use crate::types::{Channel, Secret};

/// A contact as it is named. What is `None` is kept of a stored one.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone)]
pub struct NamedContact {
    pub channel: Channel,
    pub address: String,
    pub secret: Option<String>,
    pub format: Option<MessageFormat>,
    pub headers: Option<ExtraHeaders>,
    pub filter: FilterChange,
}

/// A secret that was generated: its only chance to be seen. Only webhooks have some.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GeneratedSecret {
    pub url: String,
    pub secret: String,
}

impl GeneratedSecret {
    /// The secret of a contact that named none.
    pub fn of(spec: &ContactSpec) -> Option<Self> {
        let secret = spec.contact.secret().filter(|_| !spec.named.secret)?;
        Some(Self { url: spec.contact.address().to_owned(), secret: secret.reveal().to_owned() })
    }
}

impl NamedContact {
    /// Judges the contact, and generates a secret if its format needs one and none is named. The subject's side may
    /// name only receivers that can confirm the contact; its address gets the spelling that every server knows.
    ///
    /// # Errors
    ///
    /// The first field that is wrong. Shows no secret.
    pub fn check(self, by: ContactOrigin) -> Result<ContactSpec, InvalidContact> {
        let Self { channel, address, secret, format, headers, filter } = self;
        let named = ExplicitOptions { secret: secret.is_some(), format: format.is_some(), headers: headers.is_some() };
        let (format, headers) = (format.unwrap_or_default(), headers.unwrap_or_default());
        if by == ContactOrigin::Subject && !format.has_challenge() {
            return Err(InvalidContact { field: "format", problem: unconfirmable(&format) });
        }
        let secret = secret.map(Secret::new).or_else(|| channel.generate_secret(&format));
        let options = ContactOptions { secret, format, headers };
        let of_address = |address: &str| {
            if by == ContactOrigin::Subject {
                channel.check_public_address(address)?;
            }
            let contact = Contact::of_channel(channel, address, options.clone());
            let contact = contact.expect("something is sent through every channel that is named");
            channels::check_contact(&contact).map(|()| contact)
        };
        let mut contact = of_address(&address)?;
        if by == ContactOrigin::Subject {
            contact = of_address(&contact.normalized_address())?;
        }
        contact.filter = filter.of_new();
        Ok(ContactSpec { contact, named, filter })
    }
}

/// Why a contact of this format is the operator's to add.
fn unconfirmable(format: &MessageFormat) -> String {
    let allowed = MessageFormat::BUILT_IN.into_iter().filter(MessageFormat::has_challenge);
    let allowed = allowed.map(|format| format!("{:?}", format.to_string())).collect::<Vec<_>>().join(" and ");
    let operator = "the operator adds others with `quotabell contact add`";
    format!("\"{format}\" can't send the challenge back that confirms a contact, allowed are {allowed}; {operator}")
}

/// Contacts of a row: columns with the name of a channel hold addresses, the others are named
/// `<channel>_<option>`, and their nth cell belongs to the nth address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContactColumns(BTreeMap<String, Vec<Option<String>>>);

/// What an address may have beside it. The first three only if its channel has them.
const OPTIONS: [&str; 12] = [
    "secret",
    "format",
    "headers",
    "thresholds",
    "metrics",
    "windows",
    "quiet",
    "quiet_all",
    "digest",
    "digest_all",
    "subtree",
    "resolved",
];

impl ContactColumns {
    /// The names of all columns.
    pub fn names() -> impl Iterator<Item = String> {
        let options = |channel: Channel| {
            let first = if Endpoint::has_options(channel) { 0 } else { 3 };
            OPTIONS[first..].iter().map(move |option| format!("{channel}_{option}"))
        };
        Channel::SENDING
            .into_iter()
            .flat_map(move |channel| std::iter::once(channel.to_string()).chain(options(channel)))
    }

    /// Whether there is such a column.
    pub fn is_column(name: &str) -> bool {
        Self::names().any(|known| known == name)
    }

    /// Adds a cell to a column. An empty one keeps its place.
    pub fn push(&mut self, name: &str, cell: Option<String>) {
        self.0.entry(name.to_owned()).or_default().push(cell);
    }

    /// The same with these cells in a column.
    #[must_use]
    pub fn with(mut self, name: &str, cells: Vec<String>) -> Self {
        cells.into_iter().for_each(|cell| self.push(name, Some(cell)));
        self
    }

    /// Makes contacts of the rows, and checks each.
    ///
    /// # Errors
    ///
    /// A broken address, secret, format or header, one of them without an address, or a contact that is named twice.
    /// Shows no secret.
    pub fn into_specs(self) -> Result<Vec<ContactSpec>, String> {
        let cell = |name: &str, place: usize| self.0.get(name).and_then(|column| column.get(place).cloned().flatten());
        let places = self.0.values().map(Vec::len).max().unwrap_or(0);
        let mut specs: Vec<ContactSpec> = Vec::new();
        for (channel, place) in
            Channel::SENDING.into_iter().flat_map(|channel| (0..places).map(move |at| (channel, at)))
        {
            let (name, nth) = (channel.as_str(), place + 1);
            let option = |option: &str| cell(&format!("{name}_{option}"), place);
            let Some(address) = cell(name, place) else {
                let Some(option) = OPTIONS.into_iter().find(|named| option(named).is_some()) else { continue };
                return Err(format!(
                    "{name} {option} {nth} has no {name} {nth}: the nth {option} belongs to the nth {name}"
                ));
            };
            let format = option("format").map(|text| text.parse()).transpose();
            let format = format.map_err(|error: InvalidFormat| error.to_string())?;
            let headers = option("headers").map(|text| headers_of(&text)).transpose();
            let headers = headers.map_err(|why| format!("{name} headers {why}"))?;
            let filter = FilterChange::parse(option);
            let filter = filter.map_err(|error| format!("{name} {nth}: {error}"))?;
            let named = NamedContact { channel, address, secret: option("secret"), format, headers, filter };
            let spec = named.check(ContactOrigin::Operator).map_err(|error| format!("{name} {nth}: {error}"))?;
            if specs.iter().any(|other| other.contact.derived_id() == spec.contact.derived_id()) {
                return Err(format!("contact {} is named twice", masked_address(&spec.contact)));
            }
            specs.push(spec);
        }
        Ok(specs)
    }
}

/// The only one of the contacts that were named.
pub fn only(specs: Vec<ContactSpec>) -> Result<ContactSpec, String> {
    let [spec] = <[ContactSpec; 1]>::try_from(specs)
        .map_err(|several| format!("{} contacts are named, one is allowed", several.len()))?;
    Ok(spec)
}

/// Headers as a cell has them. The error shows no value.
fn headers_of(text: &str) -> Result<ExtraHeaders, &'static str> {
    serde_json::from_str(text)
        .map_err(|_| r#"must be a JSON object of strings, such as {"Authorization": "Bearer ..."}"#)
}
