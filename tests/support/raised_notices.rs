//! The notices that were raised, as their deliveries have them.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::collections::HashMap;

use quotabell::outbox::totals;
use quotabell::redis_client::{Partition, Partitions};
use serde::de::DeserializeOwned;

/// A notice for one contact.
pub struct RaisedNotice<T> {
    pub notice: T,
    /// The state of its delivery.
    pub state: String,
}

/// The notices of a type, the field of their deliveries. Expects that nothing else but alerts was raised, and each
/// once: a notice that is raised twice has one delivery, so the entries of the outboxes are counted too.
pub async fn raised_once<T: DeserializeOwned>(partitions: &Partitions, field: &str) -> Vec<RaisedNotice<T>> {
    let found = raised(partitions, field).await;
    assert_eq!(entries_beside_alerts(partitions).await, found.len() as u64, "each is raised once");
    found
}

/// Number of entries that the outboxes got, without those of alerts.
pub async fn entries_beside_alerts(partitions: &Partitions) -> u64 {
    let mut entries = 0;
    for Partition { client, keys } in partitions.iter() {
        let outbox: HashMap<String, redis::Value> =
            client.query(redis::cmd("XINFO").arg("STREAM").arg(keys.outbox())).await.expect("answered");
        let added: u64 = redis::from_redis_value(outbox["entries-added"].clone()).expect("a number");
        entries += added - totals(client, keys).await.expect("answered").raised;
    }
    entries
}

/// The same so far.
pub async fn raised<T: DeserializeOwned>(partitions: &Partitions, field: &str) -> Vec<RaisedNotice<T>> {
    let mut found = Vec::new();
    for Partition { client, keys } in partitions.iter() {
        let pattern = format!("{}*", keys.delivery_prefix());
        let names: Vec<String> = client.query(redis::cmd("KEYS").arg(pattern)).await.expect("answered");
        for name in names {
            let fields = redis::cmd("HMGET").arg(name).arg(&[field, "state"]).to_owned();
            let (json, state): (Option<String>, Option<String>) = client.query(&fields).await.expect("answered");
            found.extend(
                json.zip(state).map(|(json, state)| RaisedNotice {
                    notice: serde_json::from_str(&json).expect("a notice"),
                    state,
                }),
            );
        }
    }
    found
}
