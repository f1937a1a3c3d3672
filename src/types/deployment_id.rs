//! The identity of a deployment.

use super::text_form::text_id;

text_id! {
    /// A random name that a deployment draws at its first start and stores, so that no two deployments share the id of
    /// an alert.
    DeploymentId
}

impl DeploymentId {
    /// A new random name.
    pub fn random() -> Self {
        Self(super::nonce::nonce())
    }
}
