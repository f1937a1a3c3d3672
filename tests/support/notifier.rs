//! A notifier with a test's settings; it uses Redis only for caps.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::sync::Arc;

use quotabell::channels::{BoxFuture, Caps, ChannelError, ChannelSettings, Channels, CodeAndLink};
use quotabell::contacts::Contact;
use quotabell::outbox::{
    AttemptRequest, ChannelNotifier, ConsentRequestError, ConsentRequests, Notifier as _, RetryConfig, Settlement,
};
use quotabell::redis_client::RedisClient;
use quotabell::subjects::Plans;
use quotabell::subjects::config::PlanConfig;
use quotabell::types::{Keys, VerificationRequest};

use super::redis_server::free_port;

/// No consent is requested: every request is void.
#[derive(Debug)]
pub struct NoConsentRequests;

impl ConsentRequests for NoConsentRequests {
    fn contact<'a>(
        &'a self,
        _: &'a VerificationRequest,
    ) -> BoxFuture<'a, Result<Option<Contact>, ConsentRequestError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn generate<'a>(&'a self, _: &'a VerificationRequest) -> BoxFuture<'a, Result<CodeAndLink, ConsentRequestError>> {
        unreachable!("a void request has no attempts")
    }

    fn grant<'a>(&'a self, _: &'a VerificationRequest) -> BoxFuture<'a, Result<(), ConsentRequestError>> {
        unreachable!("a void request has no attempts")
    }

    fn settled(&self, _: &VerificationRequest, _: &Settlement) {}
}

/// The channels, and the notifier that sends through them.
pub struct Sending {
    pub channels: Arc<Channels>,
    pub notifier: ChannelNotifier,
}

impl Sending {
    pub fn new(
        client: Arc<RedisClient>,
        settings: ChannelSettings<'_>,
        retry: RetryConfig,
    ) -> Result<Self, ChannelError> {
        Self::with_consents(client, settings, retry, Arc::new(NoConsentRequests))
    }

    pub fn with_consents(
        client: Arc<RedisClient>,
        settings: ChannelSettings<'_>,
        retry: RetryConfig,
        consents: Arc<dyn ConsentRequests>,
    ) -> Result<Self, ChannelError> {
        let channels = Arc::new(Channels::new(settings)?);
        let caps = Caps::new(client, Keys::new("usage"));
        let plans = [("free".to_owned(), PlanConfig::default())].into();
        let plans = Plans::new(&plans, "free").expect("free is there");
        let notifier = ChannelNotifier::new(Arc::clone(&channels), caps, retry, consents, plans);
        Ok(Self { channels, notifier })
    }

    /// An attempt of one delivery, as the worker makes it.
    pub async fn attempt(&self, request: AttemptRequest<'_>) -> Settlement {
        match self.notifier.hold_back(None, &[request]).await.pop().expect("a verdict") {
            Ok(present) => {
                let notification = present.as_ref().unwrap_or(request.notification);
                self.notifier.attempt(AttemptRequest { notification, ..request }).await
            }
            Err(unsent) => unsent,
        }
    }

    /// The same without Redis, for settings without caps.
    pub fn uncapped(settings: ChannelSettings<'_>, retry: RetryConfig) -> Result<Self, ChannelError> {
        let nobody = redis::Client::open(format!("redis://127.0.0.1:{}", free_port())).expect("a URL");
        Self::new(Arc::new(RedisClient::new(nobody)), settings, retry)
    }
}
