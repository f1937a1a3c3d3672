//! What an operator is told of named contacts that are legal by their form: what the configuration does not allow, and
//! what is unwise.

use std::cell::OnceCell;

use crate::channels::{Channels, InvalidContact, contact_warning};
use crate::config::{Config, ConfigError};
use crate::contacts::merge::ContactSpec;

/// What an operator should know about contacts that are legal: those that no attempt will reach as things are
/// configured, or that not every mail server takes.
pub fn warnings(contacts: &[ContactSpec], config: &Config) -> Vec<String> {
    contacts.iter().filter_map(|named| contact_warning(&named.contact, config.channel_settings())).collect()
}

/// Judges named contacts by the files that the configuration names: whether their templates are there. Reads files only
/// for contacts that name a template, and once.
#[derive(Debug)]
pub struct TemplateCheck<'a> {
    config: &'a Config,
    channels: OnceCell<Channels>,
}

impl<'a> TemplateCheck<'a> {
    pub const fn new(config: &'a Config) -> Self {
        Self { config, channels: OnceCell::new() }
    }

    /// What is wrong with the first contact whose template is not there; `None` where none is.
    ///
    /// # Errors
    ///
    /// A template of the folder is wrong, or another file that the channels need.
    pub fn fault(&self, contacts: &[ContactSpec]) -> Result<Option<InvalidContact>, ConfigError> {
        let has_template =
            |named: &&ContactSpec| named.contact.options().is_some_and(|options| options.format.template().is_some());
        for ContactSpec { contact, .. } in contacts.iter().filter(has_template) {
            let channels = match self.channels.get() {
                Some(channels) => channels,
                None => {
                    let built = self.config.channels()?;
                    self.channels.get_or_init(|| built)
                }
            };
            if let Err(fault) = channels.check(contact) {
                return Ok(Some(fault));
            }
        }
        Ok(None)
    }
}
