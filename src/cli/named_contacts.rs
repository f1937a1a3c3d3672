//! Contacts as a command line or a line of a file names them: for each channel of the registry its addresses, and their secrets.
//!
//! A channel's flag and column bear its name; those of its secrets are its own. The nth secret belongs to the nth address.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::channels::{self, ChannelDefinition, REGISTRY, SecretDefinition};
use crate::config::Config;
use crate::contacts::Contact;
use crate::contacts::edit::{NamedContact, SecretSource};
use crate::contacts::state::FilterChange;
use crate::types::{Channel, Secret};

/// What was named, channel by channel. As arguments of a verb: a flag for each channel, and one for its secrets.
#[derive(Debug, Clone)]
pub struct NamedAddresses(Vec<ChannelAddresses>);

/// What was named on one channel, each in its place.
#[derive(Debug, Clone)]
struct ChannelAddresses {
    definition: &'static ChannelDefinition,
    addresses: Vec<Option<String>>,
    secrets: Vec<Option<String>>,
}

/// The contacts that were named, and the secrets that nobody has seen yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamedContacts {
    /// The contacts.
    pub contacts: Vec<NamedContact>,
    /// Secrets of those among them that named none.
    pub generated: Vec<GeneratedSecret>,
}

/// A secret that was generated here: its only chance to be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedSecret {
    /// The channel of its contact.
    pub channel: Channel,
    /// The address of its contact.
    pub address: String,
    /// The secret.
    pub secret: String,
}

impl Default for NamedAddresses {
    /// Nothing yet.
    fn default() -> Self {
        let nothing = |definition| ChannelAddresses { definition, addresses: Vec::new(), secrets: Vec::new() };
        Self(REGISTRY.into_iter().map(nothing).collect())
    }
}

impl Args for NamedAddresses {
    fn augment_args(command: Command) -> Command {
        REGISTRY.into_iter().fold(command, |command, definition| {
            let check = move |text: &str| (definition.check_address)(text).map(|()| text.to_owned());
            let address = Arg::new(definition.channel.as_str()).long(definition.channel.as_str());
            let address = address.value_name(definition.placeholder).value_parser(check);
            let command = command.arg(address.action(ArgAction::Append).help(definition.flag_help));
            let Some(SecretDefinition { flag, flag_help, .. }) = definition.secret else { return command };
            command.arg(Arg::new(flag).long(flag).value_name("SECRET").action(ArgAction::Append).help(flag_help))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for NamedAddresses {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut named = Self::default();
        named.update_from_arg_matches(matches)?;
        Ok(named)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let values = |flag| matches.get_many::<String>(flag).into_iter().flatten().cloned().map(Some).collect();
        for ChannelAddresses { definition, addresses, secrets } in &mut self.0 {
            *addresses = values(definition.channel.as_str());
            *secrets = definition.secret.map_or_else(Vec::new, |secret| values(secret.flag));
        }
        Ok(())
    }
}

impl NamedAddresses {
    /// The flags that name an address, one for each channel.
    #[must_use]
    pub fn flags() -> [&'static str; REGISTRY.len()] {
        REGISTRY.map(|definition| definition.channel.as_str())
    }

    /// The columns that name addresses and secrets.
    pub fn columns() -> impl Iterator<Item = String> {
        REGISTRY.into_iter().flat_map(|definition| {
            let secret = definition.secret.map(SecretDefinition::column);
            [definition.channel.as_str().to_owned()].into_iter().chain(secret)
        })
    }

    /// The places of this column; `None` where it names neither addresses nor secrets.
    pub fn column(&mut self, name: &str) -> Option<&mut Vec<Option<String>>> {
        self.0.iter_mut().find_map(|ChannelAddresses { definition, addresses, secrets }| match definition.secret {
            _ if definition.channel.as_str() == name => Some(addresses),
            Some(secret) if secret.column() == name => Some(secrets),
            _ => None,
        })
    }

    /// Makes contacts of what was named, and checks each.
    ///
    /// # Errors
    ///
    /// A sentence: a broken address or secret, a secret without an address, or a contact that is named twice. Shows no secret.
    pub fn into_contacts(self) -> Result<NamedContacts, String> {
        let mut named = NamedContacts::default();
        for ChannelAddresses { definition, addresses, secrets } in self.0 {
            let places = addresses.len().max(secrets.len());
            let nothing = std::iter::repeat(None);
            let pairs = addresses.into_iter().chain(nothing.clone()).zip(secrets.into_iter().chain(nothing));
            for (place, pair) in (1..=places).zip(pairs) {
                match pair {
                    (Some(address), secret) => named.add(definition, address, secret)?,
                    (None, Some(_)) => {
                        let name = definition.channel.as_str();
                        return Err(format!(
                            "{name} secret {place} has no {name} {place}: the nth secret belongs to the nth {name}"
                        ));
                    }
                    (None, None) => {}
                }
            }
        }
        Ok(named)
    }
}

impl NamedContacts {
    /// Adds a contact. Where its channel has secrets and none was named, one is generated.
    fn add(
        &mut self,
        definition: &'static ChannelDefinition,
        address: String,
        secret: Option<String>,
    ) -> Result<(), String> {
        let ChannelDefinition { channel, secret: secrets, .. } = *definition;
        let generated = if secret.is_some() { None } else { secrets.map(|secrets| (secrets.generate)()) };
        let source = if generated.is_some() { SecretSource::Generated } else { SecretSource::Named };
        let contact = Contact::of_channel(channel, &address, secret.map(Secret::new).or_else(|| generated.clone()));
        let contact = contact.expect("a channel that needs a secret generates one");
        channels::check_contact(&contact).map_err(|error| error.to_string())?;
        if self.contacts.iter().any(|other| other.contact.derived_id() == contact.derived_id()) {
            return Err(format!("contact {address} is named twice"));
        }
        self.contacts.push(NamedContact { contact, secret: source, hears: FilterChange::default() });
        let secret = generated.map(|secret| secret.reveal().to_owned());
        self.generated.extend(secret.map(|secret| GeneratedSecret { channel, address, secret }));
        Ok(())
    }

    /// The one contact that was named.
    ///
    /// # Errors
    ///
    /// A sentence, where there are several.
    pub fn into_one(self) -> Result<(NamedContact, Option<GeneratedSecret>), String> {
        let Self { contacts, generated } = self;
        match <[NamedContact; 1]>::try_from(contacts) {
            Ok([contact]) => Ok((contact, generated.into_iter().next())),
            Err(several) => Err(format!("{} contacts are named, one is allowed", several.len())),
        }
    }
}

impl GeneratedSecret {
    fn definition(&self) -> &'static ChannelDefinition {
        channels::definition(self.channel).expect("only contacts of the registry have secrets")
    }

    /// Its name in JSON, as `webhook_secret`.
    #[must_use]
    pub fn json_name(&self) -> String {
        self.definition().secret.map_or_else(String::new, SecretDefinition::column)
    }
}

impl Serialize for GeneratedSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry(self.definition().address_field, &self.address)?;
        map.serialize_entry("secret", &self.secret)?;
        map.end()
    }
}

/// Serialises secrets as a list for each channel that has any, as `webhook_secrets`; to be flattened.
///
/// # Errors
///
/// The serializer's.
pub fn serialize_lists<S: Serializer, T>(secrets: &[T], serializer: S) -> Result<S::Ok, S::Error>
where
    T: Serialize + AsRef<GeneratedSecret>,
{
    serializer.collect_map(REGISTRY.into_iter().filter_map(|definition| {
        let of_channel = secrets.iter().filter(|secret| secret.as_ref().channel == definition.channel);
        Some((format!("{}s", definition.secret?.column()), of_channel.collect::<Vec<_>>()))
    }))
}

impl AsRef<Self> for GeneratedSecret {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// What an operator should know about contacts that are legal: those that no attempt will reach as things are configured, or that
/// not every mail server takes.
#[must_use]
pub fn warnings(contacts: &[NamedContact], config: &Config) -> Vec<String> {
    let warning = |contact: &Contact| {
        let definition = channels::definition(contact.channel())?;
        (definition.warning)(contact.address(), &config.channel_settings())
    };
    contacts.iter().filter_map(|named| warning(&named.contact)).collect()
}
