//! The common keys and arguments of all scripts of deliveries, for `schedule.lua`, which is inserted into each of them.

use crate::redis_client::Script;
use crate::redis_client::script::ScriptCall;
use crate::types::Keys;

/// A script that uses the functions of `schedule.lua`.
pub(super) fn script(source: &'static str) -> Script {
    Script::with_preludes(source, include_str!("schedule.lua"))
}

/// Starts a call with the keys and arguments that each of these scripts takes first. The stored bounds apply.
pub(super) fn call<'a>(script: &'a Script, keys: &Keys) -> ScriptCall<'a> {
    bounded_call(script, keys, u32::MAX)
}

/// The same with a maximum of attempts in flight per destination, which also limits the stored bounds.
pub(super) fn bounded_call<'a>(script: &'a Script, keys: &Keys, per_destination_max: u32) -> ScriptCall<'a> {
    let call = script.call().key(keys.destinations()).key(keys.destinations_unhealthy()).key(keys.pending());
    let call = call.key(keys.waiting()).key(keys.deliveries()).key(keys.dead()).key(keys.totals());
    let call = call.key(keys.circuits()).key(keys.grouped());
    let call = call.arg(keys.due_prefix()).arg(keys.leased_prefix()).arg(keys.destination_prefix());
    call.arg(keys.delivery_prefix())
        .arg(per_destination_max)
        .arg(keys.subject_deliveries_prefix())
        .arg(keys.alert_log_prefix())
}
