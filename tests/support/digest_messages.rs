//! The digests that a webhook receiver got.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::receivers::CaughtRequest;

/// One alert, as a receiver of digests knows it: subject, window and percentage.
pub type Told = (String, String, u64);

/// What a receiver keeps that drops known ids: of each message the first that it accepted. Repetitions tell the same.
pub fn messages<'a>(caught: impl IntoIterator<Item = &'a CaughtRequest>) -> BTreeMap<String, BTreeSet<Told>> {
    let (mut sent, mut kept) = (BTreeMap::new(), BTreeMap::new());
    for request in caught {
        let id = request.headers["webhook-id"].to_str().expect("ASCII").to_owned();
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        assert_eq!(body["type"], "quota.digest");
        let told: BTreeSet<Told> = body["data"]["items"].as_array().expect("a list").iter().map(told).collect();
        let before = sent.entry(id.clone()).or_insert_with(|| told.clone());
        assert_eq!(*before, told, "{id} changed between two attempts");
        if request.status < 300 {
            kept.entry(id).or_insert(told);
        }
    }
    kept
}

/// The alert of an item.
pub fn told(item: &Value) -> Told {
    assert_eq!(item["type"], "quota.threshold_reached");
    let text = |name: &str| item["data"][name].as_str().expect("text").to_owned();
    (text("subject"), text("window"), item["data"]["threshold_percent"].as_u64().expect("a percentage"))
}
