//! Warnings about named contacts with a legal form: what the configuration does not allow, and what is unwise.

use std::cell::OnceCell;

use crate::channels::{Channels, InvalidContact, contact_warning};
use crate::config::{Config, ConfigError};
use crate::contacts::merge::ContactSpec;

/// Warnings about legal contacts: those that no attempt can reach with this configuration, or that not every mail
/// server accepts.
pub fn warnings(contacts: &[ContactSpec], config: &Config) -> Vec<String> {
    contacts.iter().filter_map(|named| contact_warning(&named.contact, config.channel_settings())).collect()
}

/// Judges named contacts by the files of the configuration: whether their templates exist. Reads files once, and only
/// for contacts that name a template.
#[derive(Debug)]
pub struct TemplateCheck<'a> {
    config: &'a Config,
    channels: OnceCell<Channels>,
}

impl<'a> TemplateCheck<'a> {
    pub const fn new(config: &'a Config) -> Self {
        Self { config, channels: OnceCell::new() }
    }

    /// The fault of the first contact whose template does not exist; `None` if there is none.
    ///
    /// # Errors
    ///
    /// A template of the folder, or another file of the channels, is faulty.
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
