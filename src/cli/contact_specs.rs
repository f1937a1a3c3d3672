//! Contacts as a command line or a line of a file names them: for each channel of the registry its addresses, and their
//! secrets, formats and headers, and which alerts they hear.
//!
//! A channel's flag and column bear its name; those of the others are its own. The nth secret belongs to the nth
//! address, and so does the nth format.

use std::collections::BTreeMap;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::json;

use super::contact_filter::ContactFilterArgs;
use crate::channels::{self, ChannelDefinition, FilterFlag, FilterFlags, FormatDefinition, REGISTRY, SecretDefinition};
use crate::contacts::merge::{ContactSpec, ExplicitOptions};
use crate::contacts::message_format::InvalidFormat;
use crate::contacts::state::FilterChange;
use crate::contacts::{Contact, ContactOptions, ExtraHeaders, MessageFormat, masked_address};
use crate::types::{Channel, Secret};

/// What was named, channel by channel. As arguments of a command: a flag for each channel, and those of its secrets,
/// formats and headers.
#[derive(Debug, Clone)]
pub struct AddressArgs(Vec<ChannelAddresses>);

/// What was named on one channel, each in its place.
#[derive(Debug, Clone)]
struct ChannelAddresses {
    definition: &'static ChannelDefinition,
    addresses: Vec<Option<String>>,
    secrets: Vec<Option<String>>,
    formats: Vec<Option<String>>,
    /// JSON objects of strings.
    headers: Vec<Option<String>>,
    /// Percentages, `80,100` or `all`.
    thresholds: Vec<Option<String>>,
    /// Metrics, `requests,tokens` or `all`.
    metrics: Vec<Option<String>>,
}

/// The same with flags that say which alerts the nth address hears, for a command that names several contacts.
#[derive(Debug, Clone)]
pub struct FilteredAddressArgs(pub AddressArgs);

/// One address as it was named.
struct NamedAddress {
    address: String,
    secret: Option<String>,
    format: Option<MessageFormat>,
    headers: Option<ExtraHeaders>,
    filter: FilterChange,
}

/// The contacts that were named, and the secrets that nobody has seen yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContactSpecs {
    /// The contacts.
    pub contacts: Vec<ContactSpec>,
    /// Secrets of those among them that named none.
    pub generated: Vec<GeneratedSecret>,
}

/// A secret that was generated here: its only chance to be seen.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedSecret {
    pub channel: Channel,
    pub address: String,
    pub secret: String,
}

impl Default for AddressArgs {
    fn default() -> Self {
        let nothing = |definition| ChannelAddresses {
            definition,
            addresses: Vec::new(),
            secrets: Vec::new(),
            formats: Vec::new(),
            headers: Vec::new(),
            thresholds: Vec::new(),
            metrics: Vec::new(),
        };
        Self(REGISTRY.into_iter().map(nothing).collect())
    }
}

impl Args for AddressArgs {
    fn augment_args(command: Command) -> Command {
        REGISTRY.into_iter().fold(command, |command, definition| {
            let check = move |text: &str| definition.channel.check_address(text).map(|()| text.to_owned());
            let address = Arg::new(definition.channel.as_str()).long(definition.channel.as_str());
            let address = address.value_name(definition.placeholder).value_parser(check);
            let command = command.arg(address.action(ArgAction::Append).help(definition.flag_help));
            let command = match definition.secret {
                Some(SecretDefinition { flag, flag_help, .. }) => command
                    .arg(Arg::new(flag).long(flag).value_name("SECRET").action(ArgAction::Append).help(flag_help)),
                None => command,
            };
            let Some(FormatDefinition { flag, flag_help, header_flag, header_help, .. }) = definition.formats else {
                return command;
            };
            let format = Arg::new(flag).long(flag).value_name("FORMAT").action(ArgAction::Append).help(flag_help);
            let header = Arg::new(header_flag).long(header_flag).value_name("NAME: VALUE").action(ArgAction::Append);
            let format = format.value_parser(|text: &str| text.parse::<MessageFormat>().map(|_| text.to_owned()));
            command.arg(format).arg(header.value_parser(header_line).help(header_help))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for AddressArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut named = Self::default();
        named.update_from_arg_matches(matches)?;
        Ok(named)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        // Not every command has the flags of the filter.
        let given = |flag| matches.try_get_many::<String>(flag).ok().flatten();
        let values = |flag| given(flag).into_iter().flatten().cloned().map(Some).collect();
        for named in &mut self.0 {
            let ChannelAddresses { definition, addresses, secrets, formats, headers, thresholds, metrics } = named;
            *addresses = values(definition.channel.as_str());
            *thresholds = values(definition.filter_flags.threshold.name);
            *metrics = values(definition.filter_flags.metric.name);
            *secrets = definition.secret.map_or_else(Vec::new, |secret| values(secret.flag));
            let Some(FormatDefinition { flag, header_flag, .. }) = definition.formats else { continue };
            *formats = values(flag);
            let lines = matches.get_many::<HeaderLine>(header_flag).into_iter().flatten().cloned();
            let lines: BTreeMap<String, String> = lines.map(|HeaderLine { name, value }| (name, value)).collect();
            if lines.is_empty() {
                continue;
            }
            if addresses.len() > 1 {
                let name = definition.channel.as_str();
                let problem = format!("--{header_flag} belongs to one {name}, {} are named\n", addresses.len());
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, problem));
            }
            *headers = vec![Some(json!(lines).to_string())];
        }
        Ok(())
    }
}

impl Args for FilteredAddressArgs {
    fn augment_args(command: Command) -> Command {
        REGISTRY.into_iter().fold(AddressArgs::augment_args(command), |command, definition| {
            let list = |flag: FilterFlag, value| {
                Arg::new(flag.name).long(flag.name).value_name(value).action(ArgAction::Append).help(flag.help)
            };
            let FilterFlags { threshold, metric } = definition.filter_flags;
            command.arg(list(threshold, "PERCENT,...")).arg(list(metric, "METRIC,..."))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FilteredAddressArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        AddressArgs::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl AddressArgs {
    /// The flags that name an address, one for each channel.
    pub fn flags() -> [&'static str; REGISTRY.len()] {
        REGISTRY.map(|definition| definition.channel.as_str())
    }

    /// The columns that name addresses, secrets, formats, headers, and which alerts are heard.
    pub fn columns() -> impl Iterator<Item = String> {
        REGISTRY.into_iter().flat_map(|definition| {
            let secret = definition.secret.map(SecretDefinition::column);
            let formats = definition.formats.map(|formats| [formats.column, formats.header_column].map(str::to_owned));
            let name = definition.channel.as_str().to_owned();
            [name]
                .into_iter()
                .chain(secret)
                .chain(formats.into_iter().flatten())
                .chain(definition.filter_flags.columns())
        })
    }

    /// The places of this column; `None` where it names nothing of contacts.
    pub fn column(&mut self, name: &str) -> Option<&mut Vec<Option<String>>> {
        self.0.iter_mut().find_map(|places| {
            let ChannelAddresses { definition, addresses, secrets, formats, headers, thresholds, metrics } = places;
            let (secret, format) = (definition.secret.map(SecretDefinition::column), definition.formats);
            match name {
                _ if definition.channel.as_str() == name => Some(addresses),
                _ if secret.is_some_and(|column| column == name) => Some(secrets),
                _ if format.is_some_and(|format| format.column == name) => Some(formats),
                _ if format.is_some_and(|format| format.header_column == name) => Some(headers),
                _ if definition.filter_flags.threshold.column() == name => Some(thresholds),
                _ if definition.filter_flags.metric.column() == name => Some(metrics),
                _ => None,
            }
        })
    }

    /// Whether a cell of this column is a JSON object.
    pub fn takes_objects(column: &str) -> bool {
        let formats = REGISTRY.into_iter().filter_map(|definition| definition.formats);
        formats.into_iter().any(|formats| formats.header_column == column)
    }

    /// Whether a cell of this column is a list, separated by commas.
    pub fn takes_lists(column: &str) -> bool {
        REGISTRY.into_iter().any(|definition| definition.filter_flags.columns().iter().any(|known| known == column))
    }

    /// Makes contacts of what was named, and checks each.
    ///
    /// # Errors
    ///
    /// A sentence: a broken address, secret, format or header, one of them without an address, or a contact that is
    /// named twice. Shows no secret.
    pub fn into_contacts(self) -> Result<ContactSpecs, String> {
        let mut named = ContactSpecs::default();
        for ChannelAddresses { definition, addresses, secrets, formats, headers, thresholds, metrics } in self.0 {
            let name = definition.channel.as_str();
            let options = [
                ("secret", &secrets),
                ("format", &formats),
                ("headers", &headers),
                ("thresholds", &thresholds),
                ("metrics", &metrics),
            ];
            let places =
                options.map(|(_, column)| column.len()).into_iter().chain([addresses.len()]).max().unwrap_or(0);
            let cell = |column: &[Option<String>], place: usize| column.get(place).cloned().flatten();
            for place in 0..places {
                let [secret, format, headers, thresholds, metrics] = options.map(|(_, column)| cell(column, place));
                let Some(address) = cell(&addresses, place) else {
                    let alone = options.into_iter().find(|(_, column)| cell(column, place).is_some());
                    let Some((option, _)) = alone else { continue };
                    let place = place + 1;
                    return Err(format!(
                        "{name} {option} {place} has no {name} {place}: the nth {option} belongs to the nth {name}"
                    ));
                };
                let format = format.map(|text| text.parse().map_err(|error: InvalidFormat| error.to_string()));
                let headers = headers.map(|text| headers_of(&text).map_err(|error| format!("{name} headers {error}")));
                let (format, headers) = (format.transpose()?, headers.transpose()?);
                let filter = ContactFilterArgs::parse(thresholds.as_deref(), metrics.as_deref())
                    .and_then(ContactFilterArgs::change);
                let filter = filter.map_err(|error| format!("{name} {}: {error}", place + 1))?;
                named.add(definition, NamedAddress { address, secret, format, headers, filter })?;
            }
        }
        Ok(named)
    }
}

/// One header as a flag names it.
#[derive(Debug, Clone)]
struct HeaderLine {
    name: String,
    value: String,
}

fn header_line(text: &str) -> Result<HeaderLine, &'static str> {
    let (name, value) = text.split_once(':').ok_or("a header is written as \"Authorization: Bearer ...\"")?;
    Ok(HeaderLine { name: name.trim().to_owned(), value: value.trim().to_owned() })
}

/// Headers as a cell of a file has them. The error shows no value.
fn headers_of(text: &str) -> Result<ExtraHeaders, &'static str> {
    serde_json::from_str(text).map_err(|_| r#"must be a JSON object of strings, as {"Authorization": "Bearer ..."}"#)
}

impl ContactSpecs {
    /// Adds a contact. Where its channel has secrets and none was named, one is generated.
    fn add(
        &mut self,
        definition: &'static ChannelDefinition,
        NamedAddress { address, secret, format, headers, filter }: NamedAddress,
    ) -> Result<(), String> {
        let channel = definition.channel;
        let named = ExplicitOptions { secret: secret.is_some(), format: format.is_some(), headers: headers.is_some() };
        let (format, headers) = (format.unwrap_or_default(), headers.unwrap_or_default());
        let generated = if named.secret { None } else { channel.generate_secret(&format) };
        let secret = secret.map(Secret::new).or_else(|| generated.clone());
        let contact = Contact::of_channel(channel, &address, ContactOptions { secret, format, headers });
        let mut contact = contact.expect("something is sent through every channel of the registry");
        contact.filter = filter.of_new();
        channels::check_contact(&contact).map_err(|error| error.to_string())?;
        if self.contacts.iter().any(|other| other.contact.derived_id() == contact.derived_id()) {
            return Err(format!("contact {} is named twice", masked_address(&contact)));
        }
        self.contacts.push(ContactSpec { contact, named, filter });
        let secret = generated.map(|secret| secret.reveal().to_owned());
        self.generated.extend(secret.map(|secret| GeneratedSecret { channel, address, secret }));
        Ok(())
    }

    /// The one contact that was named.
    pub fn into_one(self) -> Result<(ContactSpec, Option<GeneratedSecret>), String> {
        let Self { contacts, generated } = self;
        match <[ContactSpec; 1]>::try_from(contacts) {
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
    pub fn json_name(&self) -> String {
        self.definition().secret.map_or_else(String::new, SecretDefinition::column)
    }
}

impl Serialize for GeneratedSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry(self.definition().address_field(), &self.address)?;
        map.serialize_entry("secret", &self.secret)?;
        map.end()
    }
}

/// Serialises secrets as a list for each channel that has any, as `webhook_secrets`; to be flattened.
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
