//! The checks of what is sent: the mail server takes a mail, fallback contacts can be called. Sends nothing.

use super::findings::Findings;
use crate::channels::{Channels, ServerProbe, definition};
use crate::config::Config;
use crate::contacts::Contact;
use crate::terminal::hint;
use crate::types::{Channel, Class};

/// Tries the mail server and each fallback contact, one finding each.
pub(super) async fn check(channels: &Channels, config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let contacts = &config.fallback.contacts;
    let mailed = contacts.iter().find(|contact| contact.channel() == Channel::Email);
    if let Some(probe) = channels.probe(Channel::Email, mailed).await {
        note_mail_server(&probe, config, findings)?;
    }
    for contact in contacts.iter().filter(|contact| contact.channel() != Channel::Email) {
        if let Some(probe) = channels.probe(contact.channel(), Some(contact)).await {
            note_contact(&probe, contact, findings);
        }
    }
    channels.close().await;
    Ok(())
}

/// Tells what the form of the fallback contacts and the settings say already: an attempt would be refused.
pub(super) fn warn_of_contacts(config: &Config, findings: &Findings) {
    for contact in &config.fallback.contacts {
        let warning = definition(contact.channel())
            .and_then(|definition| (definition.warning)(contact.address(), &config.channel_settings()));
        if let Some(warning) = warning {
            findings.warn(&format!("fallback contact {}: {warning}", contact.id));
        }
    }
}

/// Tells of a sender that is still the example, where mails leave.
pub(super) fn warn_of_sender(config: &Config, findings: &Findings) -> anyhow::Result<()> {
    if is_wanted(config)? && config.email.from == Config::defaults()?.email.from {
        findings.warn(&format!(
            "email.from is still the example, {}: many servers refuse it or take it for spam; write an address of yours",
            config.email.from
        ));
    }
    Ok(())
}

/// Where nobody has named a mail server, its absence is no failure: many send only webhooks.
fn note_mail_server(probe: &ServerProbe, config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let ServerProbe { server, location, outcome, hint } = probe;
    let from_file = config.email.smtp_url_file.as_ref().map(|path| format!(", named in {}", path.display()));
    let shown = format!("{location}{}", from_file.unwrap_or_default());
    if outcome.class == Class::Delivered {
        findings.note(server, Ok(format!("the {server} takes mail ({shown})")));
        return Ok(());
    }
    let why = outcome.error.as_deref().unwrap_or("no reason given");
    if is_wanted(config)? {
        let said = outcome.reply.as_ref().map(|reply| format!(": {reply}")).unwrap_or_default();
        let hint = outcome.hint.unwrap_or(hint);
        findings.note(server, Err(hint::failed(format_args!("the {server} at {shown}: {why}{said}"), hint)));
    } else {
        findings.checks += 1;
        findings.warn(&format!(
            "no {server} at {shown}, the default: {why}; e-mail contacts get nothing until email.smtp_url names one"
        ));
    }
    Ok(())
}

fn note_contact(probe: &ServerProbe, contact: &Contact, findings: &mut Findings) {
    let ServerProbe { server, location, outcome, hint } = probe;
    let name = format!("fallback contact {} ({server} at {location})", contact.id);
    findings.note(
        "fallback contacts",
        match &outcome.error {
            None => Ok(format!("{name} may be called")),
            Some(why) => Err(hint::failed(format_args!("{name}: {why}"), outcome.hint.unwrap_or(hint))),
        },
    );
}

/// Whether somebody has named a mail server, or a contact that needs one.
fn is_wanted(config: &Config) -> anyhow::Result<bool> {
    let is_default =
        config.email.smtp_url_file.is_none() && config.email.smtp_url == Config::defaults()?.email.smtp_url;
    let is_email = |contact: &Contact| contact.channel() == Channel::Email;
    Ok(!is_default || config.fallback.contacts.iter().any(is_email))
}
