//! Settings as they may be shown: secrets and passwords as `***`. Those that have a type of their own mask themselves.

use super::settings::Config;
use crate::contacts::masked_contact;

impl Config {
    /// These settings without the secrets and passwords of their contacts, to be shown.
    pub fn masked(&self) -> Self {
        let mut shown = self.clone();
        shown.fallback.contacts = self.fallback.contacts.iter().map(masked_contact).collect();
        for one in &mut shown.operator.contacts {
            one.contact = masked_contact(&one.contact);
        }
        shown
    }
}
