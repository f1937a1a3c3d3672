//! An outbox on its own server: tests raise alerts, set contacts and inspect deliveries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use quotabell::channels::Sample;
use quotabell::contacts::Contact;
use quotabell::outbox::lease::LEASE_MAX;
use quotabell::outbox::{
    DeliveryConfig, FanOutReply, FanOutRequest, FanOutSource, LeaseReply, LeaseRequest, LeaseTimes, LeasedDelivery,
    OutboxError, Recipients, SettleReply, SettleRequest, Settlement, Totals, lease, totals,
};
use quotabell::redis_client::{Partition, RedisClient};
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{
    Alert, AlertId, AlertKey, Channel, DeliveryId, DeploymentId, Destination, Keys, Outcome, OutcomeClass, Percent,
    Period, Secret, Subject, UnixMs,
};
use redis::{FromRedisValue, ToRedisArgs};

use super::eventually::WAIT_MAX;
use super::redis_server::RedisServer;

/// Leases that are longer than any test.
pub const LONG: LeaseTimes = LeaseTimes::all(Duration::from_secs(600));

/// Leases that end at once.
pub const SHORT: LeaseTimes = LeaseTimes::all(Duration::from_millis(1));

/// Maximum number of concurrent attempts per destination.
pub const PER_DESTINATION_MAX: u32 = 16;

/// How long deliveries are retried.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(3 * 86_400);

/// Delivery settings of tests.
pub const fn delivery_config(concurrency: u32) -> DeliveryConfig {
    DeliveryConfig {
        send: true,
        concurrency,
        per_destination_max: PER_DESTINATION_MAX,
        probe_first: Duration::from_secs(30),
        probe_max: Duration::from_secs(900),
        disable_after: Duration::from_secs(5 * 86_400),
    }
}

/// As many deliveries as one call leases, from any destination.
pub const fn all_due(token: &str, times: LeaseTimes) -> LeaseRequest<'_> {
    LeaseRequest {
        deliveries_max: LEASE_MAX,
        unhealthy_max: LEASE_MAX,
        per_destination_max: PER_DESTINATION_MAX,
        followers_max: 0,
        token,
        times,
        give_up_after: GIVE_UP_AFTER,
    }
}

/// Ends one lease.
pub async fn settle(
    client: &RedisClient,
    keys: &Keys,
    id: &DeliveryId,
    token: &str,
    settlement: &Settlement,
) -> Result<SettleReply, OutboxError> {
    let (id, token, settlement) = (id.clone(), token.to_owned(), settlement.clone());
    let end = SettleRequest {
        id,
        channel: Channel::Webhook,
        token,
        settlement,
        inherited: None,
        address: None,
        message_id: None,
    };
    let settled = quotabell::outbox::settle(client, keys, &delivery_config(1), &[&end]).await?;
    Ok(settled.answers[0])
}

/// Fans one alert out.
pub async fn fan_out(
    client: &RedisClient,
    keys: &Keys,
    source: FanOutSource<'_>,
    alert: &Alert,
    contacts: &[Contact],
) -> Result<FanOutReply, OutboxError> {
    let recipients = Recipients { contacts: contacts.to_vec(), waits: contacts.is_empty(), ..Recipients::default() };
    let json = serde_json::to_vec(alert).expect("JSON");
    let requests = [FanOutRequest { source, notification: alert.into(), json: &json, recipients: &recipients }];
    let mut answers = quotabell::outbox::fan_out(client, keys, &requests).await?;
    Ok(answers.remove(0))
}

/// A server, a client and the keys of one partition.
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

    pub fn partition(&self) -> Partition {
        Partition { client: Arc::clone(&self.client), keys: self.keys.clone() }
    }

    /// A client that logs in as a user of Redis, `name:password`.
    pub fn client_of(&self, user: &str) -> Arc<RedisClient> {
        let url = self.server.url().replace("redis://", &format!("redis://{user}@"));
        Arc::new(RedisClient::new(redis::Client::open(url).expect("a URL")))
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
    pub async fn fan_out_new(&self, alert: &Alert, contacts: &[Contact]) -> FanOutReply {
        let entry = self.raise(alert).await;
        self.fan_out(FanOutSource::Outbox { entry: &entry }, alert, contacts).await
    }

    pub async fn fan_out(&self, source: FanOutSource<'_>, alert: &Alert, contacts: &[Contact]) -> FanOutReply {
        fan_out(&self.client, &self.keys, source, alert, contacts).await.expect("fan-out works")
    }

    /// Leases due deliveries as if every destination were healthy; `token` distinguishes the calls.
    pub async fn lease(&self, token: &str, times: LeaseTimes) -> LeaseReply {
        let prefix = self.keys.due_prefix();
        let queues: Vec<String> = self.run("KEYS", format!("{prefix}*")).await;
        for queue in queues {
            self.trust(queue.trim_start_matches(&prefix)).await;
        }
        lease(&self.client, &self.keys, all_due(token, times)).await.expect("the lease works")
    }

    /// Marks the destination as healthy.
    pub async fn trust(&self, destination: &str) {
        let state = format!("{}{destination}", self.keys.destination_prefix());
        let bound = PER_DESTINATION_MAX.to_string();
        let () = self.run("HSET", &[state.as_str(), "bound", &bound, "failures", "0"]).await;
        self.look_at(destination).await;
    }

    /// Lets the next lease examine a destination.
    pub async fn look_at(&self, destination: &str) {
        for index in [self.keys.destinations(), self.keys.destinations_unhealthy()] {
            let () = self.run("ZADD", &[index.as_str(), "XX", "0", destination]).await;
        }
    }

    /// Leases the only due delivery.
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

    /// When the delivery is due; `None` if it is not scheduled.
    pub async fn due(&self, id: &DeliveryId) -> Option<i64> {
        self.run("ZSCORE", &[self.queue(id).await.as_str(), id.as_str()]).await
    }

    /// Makes a scheduled delivery due, as if time had passed.
    pub async fn let_time_pass(&self, id: &DeliveryId) {
        let destination = self.field(id, "destination").await.expect("the delivery is there");
        let leased = format!("{}{destination}", self.keys.leased_prefix());
        for key in [self.queue(id).await, leased] {
            let () = self.run("ZADD", &[key.as_str(), "XX", "0", id.as_str()]).await;
        }
        self.look_at(&destination).await;
    }

    /// The queue of a delivery.
    pub async fn queue(&self, id: &DeliveryId) -> String {
        let destination = self.field(id, "destination").await.expect("the delivery is there");
        self.keys.due(&Destination::from_stored(&destination))
    }

    /// Every delivery that is in a queue.
    pub async fn queued(&self) -> BTreeSet<String> {
        let queues: Vec<String> = self.run("KEYS", format!("{}*", self.keys.due_prefix())).await;
        let mut ids = BTreeSet::new();
        for queue in queues {
            ids.extend(self.run::<Vec<String>>("ZRANGE", &[queue.as_str(), "0", "-1"]).await);
        }
        ids
    }

    /// Everything in the server, to prove that nothing was written.
    pub async fn dump(&self) -> BTreeMap<String, Vec<u8>> {
        let names: BTreeSet<String> = self.run("KEYS", "*").await;
        let mut dump = BTreeMap::new();
        for name in names {
            let kind: String = self.run("TYPE", &name).await;
            let value: Vec<u8> = match kind.as_str() {
                // A hash has no order.
                "hash" => {
                    let fields: BTreeMap<Vec<u8>, Vec<u8>> = self.run("HGETALL", &name).await;
                    fields.into_iter().flat_map(|(field, value)| [field, vec![0], value, vec![0]].concat()).collect()
                }
                _ => self.run("DUMP", &name).await,
            };
            dump.insert(name, value);
        }
        dump
    }

    /// I4: made = ended + pending at this moment. Each delivery is listed under its subject as long as its hash exists.
    pub async fn assert_balanced(&self) -> Totals {
        self.assert_listed_by_subject().await;
        let totals = self.totals().await;
        let ended = totals.delivered + totals.dead + totals.muted + totals.expired + totals.cancelled;
        assert_eq!(totals.made, ended + totals.pending, "{totals:?}");
        totals
    }
}

impl Outbox {
    async fn assert_listed_by_subject(&self) {
        let keys: Vec<String> = self.run("KEYS", format!("{}*", self.keys.delivery_prefix())).await;
        let mut pipeline = redis::pipe();
        for key in &keys {
            pipeline.cmd("HGET").arg(key).arg("subject");
        }
        // A test may replace a hash by another type.
        let subjects: Vec<redis::RedisResult<Option<String>>> =
            self.client.pipe(pipeline.ignore_errors()).await.expect("answered");
        let hashes: Vec<(&String, String)> =
            keys.iter().zip(subjects).filter_map(|(key, subject)| Some((key, subject.ok()??))).collect();
        if hashes.is_empty() {
            return;
        }
        // In one transaction, because a daemon may be running.
        let mut pipeline = redis::pipe();
        pipeline.atomic();
        for (key, subject) in &hashes {
            let id = key.trim_start_matches(&self.keys.delivery_prefix());
            pipeline.cmd("HGET").arg(*key).arg("state").cmd("PEXPIRETIME").arg(*key);
            pipeline.cmd("ZSCORE").arg(format!("{}{subject}", self.keys.subject_deliveries_prefix())).arg(id);
        }
        // A full server refuses a transaction.
        let Ok(stored) = self.client.pipe::<Vec<redis::Value>>(&pipeline).await else { return };
        let parse = "a state, a time and a score";
        let of_each = stored.chunks_exact(3).map(|three| {
            let state: Option<String> = redis::from_redis_value_ref(&three[0]).expect(parse);
            let expires: i64 = redis::from_redis_value_ref(&three[1]).expect(parse);
            let score: Option<i64> = redis::from_redis_value_ref(&three[2]).expect(parse);
            (state, expires, score)
        });
        for ((key, _), (state, expires, score)) in hashes.iter().zip(of_each) {
            let Some(state) = state else { continue };
            let is_pending = state == "pending";
            let is_listed =
                score.is_some_and(|score| if is_pending { score == (1 << 53) - 1 } else { score >= expires });
            assert!(is_listed, "{key} is {state}, expires at {expires} and is listed with {score:?}");
        }
    }
}

pub fn subject(text: &str) -> Subject {
    text.parse().expect("a legal subject")
}

/// End of the period of a test's alert: in the year 2100, so that none expires before its test runs.
pub const RESETS_AT: UnixMs = UnixMs(4_102_444_800_000);

/// When such an alert expires if its subject has no contact.
pub const EXPIRES_AT: UnixMs = RESETS_AT.plus(48 * 3_600_000);

/// The alert of this subject and percentage; the same id every time.
pub fn alert(subject: &Subject, percent: u16) -> Alert {
    let percent = Percent::new(percent).expect("a legal percentage");
    let sample = Sample { zone: quotabell::zones::Zone::UTC, ..Sample::for_subject(subject.clone()) };
    Alert { used: 4000, resets_at: Some(Rfc3339(RESETS_AT)), ..sample.alert(percent, UnixMs(1_795_250_000_123)) }
}

/// The same alert in another period.
pub fn in_period(alert: Alert, period: impl Into<Period>) -> Alert {
    let period = period.into();
    let id = AlertId::derive(&DeploymentId::from_stored("sample"), &AlertKey { period, ..alert.key() });
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
    DeliveryId::derive(&alert.id, &contact.id)
}

/// The id of this alert's delivery without contact.
pub fn waiting_delivery(alert: &Alert) -> DeliveryId {
    DeliveryId::derive(&alert.id, &quotabell::types::ContactId::from_stored("none"))
}

pub fn outcome(class: OutcomeClass) -> Outcome {
    let error = (class != OutcomeClass::Delivered).then(|| "receiver answered 503".to_owned());
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
    tokio::time::timeout(WAIT_MAX, held).await.unwrap_or_else(|_| panic!("never happened: {what}"));
}
