//! Settings as they may be shown: secrets and passwords as `***`.

use super::settings::Config;
use crate::contacts::masked_contact;
use crate::types::text::masked_url;

impl Config {
    /// These settings without their secrets, to be shown.
    pub fn masked(&self) -> Self {
        let mut shown = self.clone();
        shown.redis.url = masked_url(&self.redis.url);
        shown.email.smtp_url = masked_url(&self.email.smtp_url);
        shown.fallback.contacts = self.fallback.contacts.iter().map(masked_contact).collect();
        for one in &mut shown.operator.contacts {
            one.contact = masked_contact(&one.contact);
        }
        shown
    }
}
