//! Stores what a notice tells, before its first attempt: the wrapper of `told.lua`.
//!
//! A notice tells what is true when it is first sent. Receivers know its id, so later attempts tell the same.

use std::sync::LazyLock;

use super::error::{Operation, OutboxError};
use super::lease::LeasedDelivery;
use crate::redis_client::{RedisClient, Script};
use crate::types::{Keys, Notification};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("told.lua")));

/// Whether it is stored. `false` if the lease is lost: somebody else may attempt it.
///
/// # Errors
///
/// [`OutboxError`]; it may be stored.
pub async fn store_told(
    client: &RedisClient,
    keys: &Keys,
    leased: &LeasedDelivery,
    told: &Notification,
) -> Result<bool, OutboxError> {
    let call = SCRIPT.call().key(keys.delivery(&leased.id)).arg(&leased.token);
    let call = call.arg(told.kind().as_str()).arg(told.to_json());
    let answer: String = call.run(client).await.map_err(OutboxError::redis(Operation::StoreTold, keys.stream()))?;
    Ok(answer == "stored")
}
