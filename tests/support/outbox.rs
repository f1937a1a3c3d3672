//! An outbox on a server of its own: alerts in, contacts set, deliveries looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use quotabell::channels::Sample;
use quotabell::contacts::Contact;
use quotabell::outbox::{
    FanOutAnswer, FanOutSource, LeaseAnswer, LeaseRequest, LeaseTimes, LeasedDelivery, Totals, fan_out, lease, totals,
};
use quotabell::types::{
    Alert, AlertId, AlertKey, Class, DeliveryId, Instance, Keys, Outcome, Percent, Period, Secret, Subject, UnixMs,
};
use quotabell::wire::RedisClient;
use redis::{FromRedisValue, ToRedisArgs};

use super::redis_server::RedisServer;

/// Leases that outlive any test.
pub const LONG: LeaseTimes = LeaseTimes::all(Duration::from_secs(600));

/// Leases that end while a test looks.
pub const SHORT: LeaseTimes = LeaseTimes::all(Duration::from_millis(1));

/// A server, a link to it and the keys of one partition.
pub struct Outbox {
    pub server: RedisServer,
    pub client: Arc<RedisClient>,
    pub keys: Keys,
}

impl Outbox {
    pub fn start() -> Self {
        Self::on(RedisServer::start())
    }

    pub fn on(server: RedisServer) -> Self {
        let client = Arc::new(server.client());
        Self { server, client, keys: Keys::new("usage") }
    }

    /// Runs a command: a name and its arguments.
    pub async fn run<T: FromRedisValue>(&self, name: &str, arguments: impl ToRedisArgs) -> T {
        let mut command = redis::cmd(name);
        command.arg(arguments);
        self.client.query(&command).await.expect("the command works")
    }

    /// Puts an alert into the outbox as the commit does, and returns the entry's id.
    pub async fn raise(&self, alert: &Alert) -> String {
        let json = serde_json::to_string(alert).expect("JSON");
        self.run("XADD", &[self.keys.outbox().as_str(), "*", "alert", &json]).await
    }

    /// Raises an alert and fans it out.
    pub async fn fan_out_new(&self, alert: &Alert, contacts: &[Contact]) -> FanOutAnswer {
        let entry = self.raise(alert).await;
        self.fan_out(FanOutSource::Outbox { entry: &entry }, alert, contacts).await
    }

    pub async fn fan_out(&self, source: FanOutSource<'_>, alert: &Alert, contacts: &[Contact]) -> FanOutAnswer {
        fan_out(&self.client, &self.keys, source, alert, contacts).await.expect("fan-out works")
    }

    /// Leases what is due; `token` tells the calls apart.
    pub async fn lease(&self, token: &str, times: LeaseTimes) -> LeaseAnswer {
        let request = LeaseRequest { deliveries_max: 100, token, times };
        lease(&self.client, &self.keys, request).await.expect("the lease works")
    }

    /// Leases the one delivery that is due.
    pub async fn lease_one(&self, token: &str, times: LeaseTimes) -> LeasedDelivery {
        let mut leased = self.lease(token, times).await.leased;
        assert_eq!(leased.len(), 1, "one delivery is due");
        leased.remove(0)
    }

    pub async fn totals(&self) -> Totals {
        totals(&self.client, &self.keys).await.expect("totals can be read")
    }

    pub async fn set_contacts(&self, subject: &Subject, json: &str) {
        let () = self.run("HSET", &[Keys::new("usage").subject(subject).as_str(), "contacts", json]).await;
    }

    pub async fn field(&self, id: &DeliveryId, field: &str) -> Option<String> {
        self.run("HGET", &[self.keys.delivery(id).as_str(), field]).await
    }

    pub async fn state(&self, id: &DeliveryId) -> String {
        self.field(id, "state").await.expect("the delivery is there")
    }

    /// When the delivery is due, or `None` when it is not scheduled.
    pub async fn due(&self, id: &DeliveryId) -> Option<i64> {
        self.run("ZSCORE", &[self.keys.due().as_str(), id.as_str()]).await
    }

    /// Makes a scheduled delivery due, as the passing of time does.
    pub async fn let_time_pass(&self, id: &DeliveryId) {
        let () = self.run("ZADD", &[self.keys.due().as_str(), "XX", "0", id.as_str()]).await;
    }

    /// Everything under the server's keys, so that a test can see that nothing was written.
    pub async fn dump(&self) -> BTreeMap<String, Vec<u8>> {
        let names: BTreeSet<String> = self.run("KEYS", "*").await;
        let mut dump = BTreeMap::new();
        for name in names {
            let value: Vec<u8> = self.run("DUMP", &name).await;
            dump.insert(name, value);
        }
        dump
    }

    /// I4: made = ended + pending at this moment.
    pub async fn assert_balanced(&self) -> Totals {
        let totals = self.totals().await;
        let ended = totals.delivered + totals.dead + totals.muted + totals.expired + totals.cancelled;
        assert_eq!(totals.made, ended + totals.pending, "{totals:?}");
        totals
    }
}

pub fn subject(text: &str) -> Subject {
    text.parse().expect("a legal subject")
}

/// The alert of this subject and percentage; the same id every time.
pub fn alert(subject: &Subject, percent: u16) -> Alert {
    let percent = Percent::try_from(percent).expect("a legal percentage");
    let sample = Sample { zone: chrono_tz::Tz::UTC, ..Sample::of(subject.clone()) };
    Alert { used: 4000, ..sample.alert(percent, UnixMs(1_795_250_000_123)) }
}

/// The same alert in another period.
pub fn in_period(alert: Alert, period: impl Into<Period>) -> Alert {
    let period = period.into();
    let id = AlertId::of(&Instance::from_stored("sample"), &AlertKey { period, ..alert.key() });
    Alert { id, window: period.window(), period, ..alert }
}

pub fn email(name: &str) -> Contact {
    Contact::email(&format!("{name}@b.test"))
}

pub fn webhook(name: &str) -> Contact {
    Contact::webhook(&format!("https://{name}.test/"), Secret::new("whsec_x".into()))
}

/// The JSON of a subject's contacts.
pub fn json(contacts: &[Contact]) -> String {
    serde_json::to_string(contacts).expect("JSON")
}

/// The id of this alert's delivery to this contact.
pub fn delivery(alert: &Alert, contact: &Contact) -> DeliveryId {
    DeliveryId::of(&alert.id, &contact.id)
}

/// The id of this alert's delivery without contact.
pub fn waiting_delivery(alert: &Alert) -> DeliveryId {
    DeliveryId::of(&alert.id, &quotabell::types::ContactId::from_stored("none"))
}

pub fn outcome(class: Class) -> Outcome {
    let error = (class != Class::Delivered).then(|| "receiver answered 503".to_owned());
    Outcome { class, status: Some(503), error, took: Duration::from_millis(7), ..Outcome::delivered() }
}

/// Waits until `condition` holds, at most 20 s.
pub async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let held = async {
        while !condition().await {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), held).await.unwrap_or_else(|_| panic!("never happened: {what}"));
}
