//! Which deployment this is.

use super::text_form::text_id;

text_id! {
    /// A random name that a deployment gets at its first start and keeps, so that no two deployments share the id of an
    /// alert.
    DeploymentId
}

impl DeploymentId {
    /// A name that no other deployment has.
    pub fn random() -> Self {
        Self(super::nonce::nonce())
    }
}
