//! A receiver for many contacts: each contact has its path, its secret and its behavior. It checks in Redis that no
//! success was recorded before an attempt arrived, and delays each response by a few round trips, so that kills happen
//! in the middle of sends.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::support::receivers::CaughtRequest;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use quotabell::redis_client::RedisClient;
use quotabell::types::{AlertId, ContactId, DeliveryId, Keys};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::webhook_receiver::verify;

/// Number of round trips to Redis before a response.
const HELD_ROUND_TRIPS: u32 = 4;

/// Behavior of a contact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerMode {
    /// Accepts everything.
    Good,
    /// Fails at the first attempt of each alert.
    Flaky,
    /// Refuses everything.
    Refuses,
    /// Returns 410.
    Gone,
}

/// A contact of this receiver.
#[derive(Debug, Clone)]
pub struct ReceivingContact {
    pub id: String,
    pub secret: String,
    pub mode: AnswerMode,
}

/// The requests for one alert at one contact.
#[derive(Debug, Clone, Default)]
pub struct Arrived {
    pub requests: u64,
    pub accepted: u64,
    /// The first body; later bodies were compared with it.
    pub body: serde_json::Value,
}

/// One alert at one contact.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlertAtContact {
    pub contact: String,
    pub alert: String,
}

/// The receiver on a free port. Stops on drop.
#[derive(Debug)]
pub struct ContactReceiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    client: RedisClient,
    keys: Keys,
    contacts: Mutex<BTreeMap<String, ReceivingContact>>,
    arrived: Mutex<BTreeMap<AlertAtContact, Arrived>>,
    requests: watch::Sender<u64>,
    faults: Mutex<Vec<String>>,
}

impl ContactReceiver {
    pub async fn start(client: RedisClient, keys: Keys) -> Self {
        // On every address of this machine; each is another destination.
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            client,
            keys,
            contacts: Mutex::default(),
            arrived: Mutex::default(),
            requests: watch::Sender::new(0),
            faults: Mutex::default(),
        });
        let router = Router::new().fallback(take).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { address, shared, task }
    }

    /// Adds a contact and returns its JSON.
    pub fn add_contact(&self, contact: ReceivingContact) -> serde_json::Value {
        self.add_contact_at("127.0.0.1", contact)
    }

    /// The same at another address of this machine.
    pub fn add_contact_at(&self, host: &str, contact: ReceivingContact) -> serde_json::Value {
        let url = format!("http://{host}:{}/{}", self.address.port(), contact.id);
        let json = serde_json::json!({"id": contact.id, "channel": "webhook", "url": url, "secret": contact.secret});
        lock(&self.shared.contacts).insert(format!("/{}", contact.id), contact);
        json
    }

    /// All requests so far.
    pub fn arrived(&self) -> BTreeMap<AlertAtContact, Arrived> {
        lock(&self.shared.arrived).clone()
    }

    /// Number of requests so far; changes before a request is answered.
    pub fn requests(&self) -> watch::Receiver<u64> {
        self.shared.requests.subscribe()
    }

    /// Unexpected events.
    pub fn faults(&self) -> Vec<String> {
        lock(&self.shared.faults).clone()
    }
}

impl Drop for ContactReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn take(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, [(&'static str, &'static str); 1]) {
    // The header matters only if the status is a failure.
    let answer = |status| (status, [("webhook-delivery", "abort-message")]);
    let Some(contact) = lock(&shared.contacts).get(uri.path()).cloned() else {
        lock(&shared.faults).push(format!("a request to {uri}"));
        return answer(StatusCode::NOT_FOUND);
    };
    let request = CaughtRequest { method, uri, headers, body, status: 200, arrived: Instant::now() };
    let verified = match std::panic::catch_unwind(|| verify(&request, &contact.secret)) {
        Ok(verified) => verified,
        Err(_) => {
            lock(&shared.faults).push(format!("{}: not verified: {request:?}", contact.id));
            return answer(StatusCode::BAD_REQUEST);
        }
    };
    let delivery = DeliveryId::derive(&AlertId::from_stored(&verified.id), &ContactId::from_stored(&contact.id));
    let mut look = redis::cmd("HGET");
    look.arg(shared.keys.delivery(&delivery)).arg("state");
    let state: Option<String> = shared.client.query(&look).await.expect("redis answers");
    if state.as_deref() != Some("pending") {
        lock(&shared.faults).push(format!("{delivery}: an attempt while the state was {state:?}"));
    }
    let status = {
        let mut arrived = lock(&shared.arrived);
        let alert = AlertAtContact { contact: contact.id.clone(), alert: verified.id };
        let so_far = arrived.entry(alert).or_default();
        so_far.requests += 1;
        if so_far.requests == 1 {
            so_far.body = verified.body;
        } else if so_far.body != verified.body {
            lock(&shared.faults).push(format!("{delivery}: another body: {} and {}", so_far.body, verified.body));
        }
        match contact.mode {
            // Without the header: the delivery must be retried.
            AnswerMode::Flaky if so_far.requests == 1 => StatusCode::SERVICE_UNAVAILABLE,
            AnswerMode::Refuses => StatusCode::UNPROCESSABLE_ENTITY,
            AnswerMode::Gone => StatusCode::GONE,
            AnswerMode::Good | AnswerMode::Flaky => {
                so_far.accepted += 1;
                StatusCode::NO_CONTENT
            }
        }
    };
    shared.requests.send_modify(|requests| *requests += 1);
    for _ in 0..HELD_ROUND_TRIPS {
        let () = shared.client.query(&redis::cmd("PING")).await.expect("redis answers");
    }
    match status {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GONE => (status, [("retry-after", "0")]),
        _ => answer(status),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
