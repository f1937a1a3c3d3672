//! Builds the parts that check their own settings. If a part refuses a setting, the error names the place where the
//! setting was written.
//!
//! Callers that need a part build it here. Reads the files that settings name; connects nowhere. Read next: `error`,
//! which formats the error.

use std::error::Error;
use std::sync::Arc;

use super::error::{ComponentError, ConfigError};
use super::settings::Config;
use crate::actions::portal::PortalLinks;
use crate::api::scope::Scope;
use crate::api::{TokenError, Tokens};
use crate::channels::{self, ChannelError, Channels, InvalidContact, Preview, PreviewRequest};
use crate::contacts::Contact;
use crate::contacts::resolver::ContactResolver;
use crate::portal::PortalHtml;
use crate::redis_client::{Partitions, RedisEndpoint};
use crate::signing::PortalUrls;
use crate::subjects::Plans;
use crate::subjects::plans::PlansError;
use crate::types::{Keys, PartitionNumber, Secret};
use crate::views::Observer;
use crate::views::explain::Explainer;
use crate::views::near_ranking::NearRankings;

impl Config {
    /// The keys of the first partition and of subjects.
    pub fn keys(&self) -> Keys {
        let first = PartitionNumber::first(self.stream.partitions);
        let keys = Keys::of_partition(&self.stream.key, first).with_subject_prefix(&self.subjects.prefix);
        keys.with_separator(self.subjects.separator)
    }

    /// The plans with their limits and limiters.
    pub fn plans(&self) -> Result<Plans, PlansError> {
        let plans = Plans::new(&self.plans, &self.default_plan)?.with_formats(&self.metrics);
        plans.by_level(self.subjects.separator, &self.subjects.default_plans)
    }

    /// The resolver of contacts: those of subjects and those of the configuration.
    pub fn contact_resolver(&self) -> ContactResolver {
        let resolver = ContactResolver::new(self.keys(), self.fallback.contacts.clone());
        resolver.with_operator(&self.operator.contacts).with_contacts_max(self.subjects.contacts_max)
    }

    /// The contacts of the configuration, under the ids that deliveries refer to.
    pub fn configured_contacts(&self) -> Vec<Contact> {
        let operator = self.contact_resolver().operator().iter().map(|one| one.contact.clone()).collect::<Vec<_>>();
        self.fallback.contacts.iter().cloned().chain(operator).collect()
    }

    /// The explainer of alerts, deliveries and subjects.
    pub(crate) fn explainer(&self, partitions: &Partitions, channels: Arc<Channels>, plans: Plans) -> Explainer {
        Explainer { observer: self.observer(partitions, plans), channels, late_max: self.stream.late_max }
    }

    pub(crate) fn observer(&self, partitions: &Partitions, plans: Plans) -> Observer {
        Observer {
            partitions: partitions.clone(),
            contacts: self.contact_resolver(),
            configured: self.configured_contacts(),
            on_multiple: self.alerts.on_multiple,
            give_up_after: self.retry.give_up_after,
            plans,
            near: NearRankings::default(),
        }
    }

    /// The channels with these settings. Loads and checks the templates, and reads the files that the channels'
    /// sections name.
    pub fn channels(&self) -> Result<Channels, ConfigError> {
        let channels = Channels::new(self.channel_settings()).map_err(|error| self.refused_by_channel(error))?;
        let fallback = self.fallback.contacts.iter().enumerate().map(|named| ("fallback", named));
        let operator = self.operator.contacts.iter().map(|one| &one.contact).enumerate();
        for (section, (index, contact)) in fallback.chain(operator.map(|named| ("operator", named))) {
            if let Err(InvalidContact { problem, .. }) = channels.check(contact) {
                let path = vec![section.to_owned(), "contacts".to_owned(), format!("[{index}]")];
                return Err(ConfigError::Value { place: self.places.place_of(&path), path, problem });
            }
        }
        Ok(channels)
    }

    /// Renders messages for a preview. Reads the templates; sends nothing.
    pub fn preview(&self, request: PreviewRequest<'_>) -> Result<Vec<Preview>, ConfigError> {
        channels::preview(self.channel_settings(), request).map_err(|error| self.refused_by_channel(error))
    }

    /// The tokens of `[http]`. Reads the files that the section names.
    pub fn tokens(&self) -> Result<Tokens, ConfigError> {
        Tokens::from_config(&self.http).map_err(|error| self.refused_token(error))
    }

    /// A token of `[http]` with this scope, in the form that callers send.
    pub fn token_with(&self, scope: Scope) -> Result<Option<Secret>, ConfigError> {
        Tokens::text_with(scope, &self.http).map_err(|error| self.refused_token(error))
    }

    fn refused_token(&self, error: TokenError) -> ConfigError {
        let setting = error.setting().to_owned();
        self.refused(Some(&setting), error, None)
    }

    /// The templates and the branding of the portal. Reads the files that the section names.
    pub fn portal_html(&self) -> Result<PortalHtml, ConfigError> {
        PortalHtml::new(&self.portal).map_err(|error| self.refused(Some(error.setting), error, None))
    }

    /// What makes links to the portal; `None` without `http.public_url`.
    pub(crate) fn portal_urls(&self, partitions: &Partitions) -> Option<PortalUrls> {
        let (first, link_lifetime) = (partitions.first().clone(), self.portal.link_lifetime);
        self.http.confirm_links_below().map(|public_url| PortalUrls { first, public_url, link_lifetime })
    }

    /// What makes links to the portal when somebody asks for one.
    pub fn portal_links(&self, partitions: &Partitions) -> Result<PortalLinks, ConfigError> {
        let languages = self.portal_html()?.languages().clone();
        Ok(PortalLinks { urls: self.portal_urls(partitions), languages })
    }

    /// The server of `[redis]`. Reads the files that the section names.
    pub fn endpoint(&self) -> Result<RedisEndpoint, ConfigError> {
        RedisEndpoint::from_config(&self.redis).map_err(|error| self.refused(error.setting(), error, None))
    }

    /// Lets the parts check their settings and the named files.
    pub(super) fn check_parts(&self) -> Result<(), ConfigError> {
        self.channels()?;
        self.tokens()?;
        self.portal_html()?;
        self.endpoint()?;
        Ok(())
    }

    fn refused_by_channel(&self, error: ChannelError) -> ConfigError {
        let (setting, hint) = (error.setting, error.hint);
        self.refused(setting, error, hint)
    }

    fn refused(
        &self,
        setting: Option<&str>,
        error: impl Error + Send + Sync + 'static,
        hint: Option<&'static str>,
    ) -> ConfigError {
        let place =
            setting.map(|setting| self.places.place_of(&setting.split('.').map(str::to_owned).collect::<Vec<_>>()));
        let setting = setting.map(str::to_owned);
        ConfigError::Component(ComponentError { setting, place, error: Box::new(error), hint })
    }
}
