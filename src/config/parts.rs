//! Parts that judge their own settings when they are built: where one refuses a setting, the error says where that was written.
//!
//! Whoever wants a part asks here and not the part itself. Reads the files that settings name; connects nowhere. Read next:
//! `error`, which shows what was refused.

use std::error::Error;

use super::error::{ConfigError, Mistake, PartRefusal};
use super::settings::Config;
use crate::api::Token;
use crate::sender::{Preview, Sender, SenderError, preview};
use crate::types::Alert;
use crate::wire::RedisEndpoint;

impl Config {
    /// The sender of these settings. Loads and checks the templates, reads the files of `[webhook]` and `[email]`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]
    pub fn sender(&self) -> Result<Sender, ConfigError> {
        Sender::new(&self.webhook, &self.email, self.retry.clone()).map_err(|error| self.refused_by_sender(error))
    }

    /// What would be sent about an alert. Reads the templates, contacts nobody.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]
    pub fn preview(&self, alert: &Alert) -> Result<Preview, ConfigError> {
        preview(&self.email, alert).map_err(|error| self.refused_by_sender(error.into()))
    }

    /// The token of `[http]`, if it has one. Reads the file that the section names.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]
    pub fn token(&self) -> Result<Option<Token>, ConfigError> {
        Token::from_config(&self.http).map_err(|error| self.refused(Some(error.setting()), error, None))
    }

    /// The server of `[redis]`. Reads the files that the section names.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]
    pub fn endpoint(&self) -> Result<RedisEndpoint, ConfigError> {
        RedisEndpoint::from_config(&self.redis).map_err(|error| self.refused(error.setting(), error, None))
    }

    /// What the parts say to their settings, each of them, and the files that these name.
    pub(super) fn mistakes_of_parts(&self) -> Vec<Mistake> {
        let refused = [self.sender().err(), self.token().err(), self.endpoint().err()];
        refused.into_iter().flatten().flat_map(ConfigError::into_mistakes).collect()
    }

    fn refused_by_sender(&self, error: SenderError) -> ConfigError {
        let hint = error.is_of_a_template().then_some(
            "mend the template (`quotabell preview text` renders it), or leave email.templates out for the embedded ones",
        );
        self.refused(error.setting(), error, hint)
    }

    fn refused(
        &self,
        setting: Option<&'static str>,
        error: impl Error + Send + Sync + 'static,
        hint: Option<&'static str>,
    ) -> ConfigError {
        let place = setting.and_then(|setting| self.places.0.get(setting)).cloned();
        Mistake::Part(PartRefusal { setting, place, error: Box::new(error), hint }).into()
    }
}
