//! Whether the plans of this configuration are those that the daemon counts with.

use crate::config::Config;
use crate::subjects::Plans;
use crate::wire::RedisClient;

/// The plans of the configuration, as the daemon stores them: a fingerprint beside its checkpoint.
#[derive(Debug)]
pub struct PlansOfConfig {
    checkpoint: String,
    /// `None` where the plans can't be used; whoever uses them says why.
    fingerprint: Option<String>,
}

impl PlansOfConfig {
    /// Those of this configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let plans = Plans::new(&config.plans, &config.default_plan).ok();
        Self { checkpoint: config.keys().checkpoint(), fingerprint: plans.map(|plans| plans.fingerprint()) }
    }

    /// What to tell somebody whose plans are not those that the daemon stored. `None` where they agree, nothing is stored, or it can't
    /// be read.
    pub async fn difference(&self, client: &RedisClient) -> Option<String> {
        let mut command = redis::cmd("HGET");
        command.arg(&self.checkpoint).arg("fingerprint");
        let stored: Option<String> = client.query(&command).await.ok()?;
        (stored? != *self.fingerprint.as_ref()?).then(|| {
            "the plans of this configuration are not those that the daemon last counted with, so limits may differ from those in \
             effect (--config or QUOTABELL_CONFIG names the daemon's file)"
                .to_owned()
        })
    }
}
