//! The checks of channels: whether their servers accept messages, and contacts of the configuration can be called.
//! Sends nothing.

use super::findings::Findings;
use crate::channels::{ChannelDefinition, Channels, ProbeResult, REGISTRY, contact_warning};
use crate::config::Config;
use crate::contacts::Contact;
use crate::terminal::hint;
use crate::types::OutcomeClass;

/// Probes each channel's server, or, if it has none, each contact of the configuration. Adds a finding for each.
pub(super) async fn check(channels: &Channels, config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let defaults = Config::defaults()?;
    for definition in REGISTRY {
        let contacts = contacts_of(definition, config);
        match definition.server_absence {
            Some(absence) => {
                let Some(probe) = channels.probe(definition.channel, contacts.first().map(|named| named.contact)).await
                else {
                    continue;
                };
                let is_wanted = is_wanted(definition, config, &defaults);
                note_server(&probe, (!is_wanted).then_some(absence), findings);
            }
            None => {
                for named in contacts {
                    let Some(probe) = channels.probe(definition.channel, Some(named.contact)).await else { continue };
                    note_contact(&probe, named, findings);
                }
            }
        }
    }
    channels.close().await;
    Ok(())
}

/// Adds findings that need no connection: contacts that every attempt would refuse, and warnings about the others.
pub(super) fn check_offline(channels: &Channels, config: &Config, findings: &mut Findings) {
    for named @ ConfiguredContact { section, contact } in configured(config) {
        if let Some(probe) = channels.refusal(contact) {
            note_contact(&probe, named, findings);
            continue;
        }
        if let Some(warning) = contact_warning(contact, config.channel_settings()) {
            findings.warn(&format!("{section} contact {}: {warning}", contact.id));
        }
    }
}

/// Warns of default settings that should be changed if messages leave this machine.
pub(super) fn warn_of_defaults(config: &Config, findings: &Findings) -> anyhow::Result<()> {
    let defaults = Config::defaults()?;
    for definition in REGISTRY {
        let warning = definition.channel.default_warning(config.channel_settings(), defaults.channel_settings());
        if let Some(warning) = warning.filter(|_| is_wanted(definition, config, &defaults)) {
            findings.warn(&warning);
        }
    }
    Ok(())
}

/// A contact of the configuration, and its section.
#[derive(Debug, Clone, Copy)]
struct ConfiguredContact<'a> {
    section: &'static str,
    contact: &'a Contact,
}

fn configured(config: &Config) -> impl Iterator<Item = ConfiguredContact<'_>> {
    let fallback = config.fallback.contacts.iter().map(|contact| ConfiguredContact { section: "fallback", contact });
    let operator = config.operator.contacts.iter();
    fallback.chain(operator.map(|one| ConfiguredContact { section: "operator", contact: &one.contact }))
}

fn contacts_of<'a>(definition: &ChannelDefinition, config: &'a Config) -> Vec<ConfiguredContact<'a>> {
    configured(config).filter(|named| named.contact.channel() == definition.channel).collect()
}

/// Whether the server or a contact that needs it was configured.
fn is_wanted(definition: &ChannelDefinition, config: &Config, defaults: &Config) -> bool {
    definition.channel.has_own_server(config.channel_settings(), defaults.channel_settings())
        || !contacts_of(definition, config).is_empty()
}

/// Notes the result for a server. If nobody has configured the server, its absence is no failure, because many users
/// only need another channel. `absence` describes the consequence.
fn note_server(probe: &ProbeResult, absence: Option<&str>, findings: &mut Findings) {
    let ProbeResult { server, location, outcome, works, hint } = probe;
    let why = outcome.error.as_deref().unwrap_or("no reason given");
    match absence {
        _ if outcome.class == OutcomeClass::Delivered => {
            findings.note(server, Ok(format!("the {server} {works} ({location})")));
        }
        None => {
            let said = outcome.reply.as_ref().map(|reply| format!(": {reply}")).unwrap_or_default();
            let hint = outcome.hint.unwrap_or(hint);
            findings.note(server, Err(hint::failed(format_args!("the {server} at {location}: {why}{said}"), hint)));
        }
        Some(absence) => {
            findings.checks += 1;
            findings.warn(&format!("no {server} at {location}, the default: {why}; {absence}"));
        }
    }
}

fn note_contact(probe: &ProbeResult, named: ConfiguredContact<'_>, findings: &mut Findings) {
    let ProbeResult { server, location, outcome, works, hint } = probe;
    let ConfiguredContact { section, contact } = named;
    let name = format!("{section} contact {} ({server} at {location})", contact.id);
    findings.note(
        "contacts",
        match &outcome.error {
            None => Ok(format!("{name} {works}")),
            Some(why) => Err(hint::failed(format_args!("{name}: {why}"), outcome.hint.unwrap_or(hint))),
        },
    );
}
