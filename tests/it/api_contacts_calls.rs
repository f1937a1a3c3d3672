//! How often Redis is asked about contacts: for one that is there as often as for one that is not, since time tells too.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::support::outbox::{Outbox, subject};
use quotabell::contacts::Contact;
use quotabell::types::{ContactId, Secret};
use quotabell::verification::{Candidate, Desk, DeskParts, Guessed, VerificationConfig};

/// A desk on a server that nobody else asks.
struct Counted {
    outbox: Outbox,
    desk: Desk,
}

type Calls = BTreeMap<String, u64>;

impl Counted {
    fn open() -> Self {
        let outbox = Outbox::start();
        let config =
            VerificationConfig { requests: "100/1h".parse().expect("a rate"), lifetime: Duration::from_secs(600) };
        let client = Arc::new(OnceLock::from(Arc::clone(&outbox.client)));
        let parts = DeskParts { client, keys: outbox.keys.clone(), config };
        let (desk, waiting) = Desk::new(parts).expect("few requests");
        // Nobody sends: what waits only has to find room.
        std::mem::forget(waiting);
        Self { outbox, desk }
    }

    /// Calls since the server began, of the commands that are sent. What scripts run by themselves is no round trip: there one more
    /// member is some microseconds.
    async fn calls(&self) -> Calls {
        let told: String = self.outbox.run("INFO", "commandstats").await;
        let calls = told.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let calls = rest.split(',').next()?.parse().ok()?;
            ["evalsha", "set", "hget", "hmget", "unlink"].contains(&name).then(|| (name.to_owned(), calls))
        });
        calls.collect()
    }

    /// What one call at the desk costs.
    async fn cost(&self, call: impl Future<Output = ()>) -> Calls {
        let before = self.calls().await;
        call.await;
        let mut cost = self.calls().await;
        cost.retain(|name, calls| {
            *calls -= before.get(name).copied().unwrap_or_default();
            *calls > 0
        });
        cost
    }

    async fn add(&self, of: &str, contact: Contact) -> Calls {
        self.cost(async { self.desk.add(subject(of), contact).await.expect("taken") }).await
    }

    async fn resend(&self, of: &str, id: &str) -> Calls {
        let candidate = candidate(of, id);
        self.cost(async { self.desk.resend(candidate).await.expect("taken") }).await
    }

    async fn remove(&self, of: &str, id: &str) -> Calls {
        let candidate = candidate(of, id);
        self.cost(async { self.desk.remove(&candidate).await.expect("taken") }).await
    }

    async fn show(&self, of: &str, id: &str) -> Calls {
        let candidate = candidate(of, id);
        let refused =
            async { assert_eq!(self.desk.verify(&candidate, "x").await.expect("an answer"), Guessed::Refused) };
        self.cost(refused).await
    }
}

fn candidate(of: &str, id: &str) -> Candidate {
    Candidate { subject: subject(of), contact: ContactId::from_stored(id) }
}

/// A round trip less is time less, by which anybody learns who is there.
#[tokio::test]
async fn known_and_unknown_contacts_cost_the_same_calls() {
    let counted = Counted::open();
    let stored = r#"[{"id":"main","channel":"email","address":"Known@b.test","verified":false},
        {"channel":"email","address":"verified@b.test"},
        {"channel":"webhook","url":"https://b.test/","secret":"s"}]"#;
    counted.outbox.set_contacts(&subject("alice"), stored).await;
    // The first calls make the scripts known.
    counted.add("warm", Contact::email("warm@b.test")).await;
    counted.resend("warm", "c_0").await;
    counted.show("warm", "c_0").await;

    let hook = || Contact::webhook("https://b.test/", Secret::new("s".to_owned()));
    for contact in [Contact::email("Known@b.test"), Contact::email("verified@b.test"), hook()] {
        let known = counted.add("alice", contact.clone()).await;
        let unknown = counted.add("nobody", contact.clone()).await;
        assert!(known["evalsha"] > 1, "{known:?}");
        assert_eq!(known, unknown, "{contact:?}");
        let again = counted.add("alice", contact.clone()).await;
        assert_eq!(again, counted.add("nobody", contact.clone()).await, "again: {contact:?}");
    }
    let stored: String = counted.outbox.run("HGET", &["quota_subject:alice", "contacts"]).await;
    assert!(stored.contains("\n"), "what was there already was written again");
    let derived = Contact::email("Known@b.test").id;
    for (of, id) in [("alice", "main"), ("bob", derived.as_str())] {
        assert_eq!(counted.resend(of, id).await, counted.resend("carol", id).await, "{id}");
        assert_eq!(counted.show(of, id).await, counted.show("carol", id).await, "{id}");
        let known = counted.remove(of, id).await;
        assert_eq!(known["unlink"], 2, "{known:?}");
        assert_eq!(known, counted.remove("carol", id).await, "{id}");
    }
}
