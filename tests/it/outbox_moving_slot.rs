//! Deliveries whose hash slot moves to another node of the cluster: neither node has all of their keys.

use quotabell::outbox::{FanOutSource, OutboxError, SettleReply, Settlement, lease, totals, wake_subject};
use quotabell::redis_client::config::RedisConfig;
use quotabell::redis_client::{ErrorKind, RedisClient, RedisEndpoint};
use quotabell::types::{DeliveryId, Destination, Keys, OutcomeClass};
use redis::{FromRedisValue, ToRedisArgs};

use crate::support::outbox::{LONG, alert, all_due, email, fan_out, outcome, settle, subject};
use crate::support::redis_cluster::{Move, RedisCluster};

/// Deliveries to contacts, and one that waits for a contact.
const DELIVERIES: u16 = 6;

struct MovingOutbox {
    cluster: RedisCluster,
    client: RedisClient,
    keys: Keys,
}

impl MovingOutbox {
    async fn start() -> Self {
        let cluster = RedisCluster::start().await;
        let config = RedisConfig {
            url: cluster.url("").into(),
            url_file: None,
            data_dir: "unused".into(),
            embedded_port: 1,
            ca_file: None,
        };
        let endpoint = RedisEndpoint::from_config(&config).expect("a good URL");
        let client = endpoint.client("usage").expect("a client");
        let moving = Self { cluster, client, keys: Keys::new("usage") };
        // Every node knows the scripts, so that none is refused for another reason.
        for _ in 0..3 {
            moving.lease("none").await.expect("nothing is due");
            wake_subject(&moving.client, &moving.keys, &subject("nobody")).await.expect("nobody waits");
            let delivered = Settlement::Delivered(outcome(OutcomeClass::Delivered));
            let unknown = DeliveryId::from_stored("unknown");
            let stale = settle(&moving.client, &moving.keys, &unknown, "none", &delivered).await;
            assert_eq!(stale.expect("an answer"), SettleReply::Stale);
            moving.cluster.end_move(moving.begin_move().await).await;
        }
        // As if the mail server were healthy.
        let state = format!("{}email", moving.keys.destination_prefix());
        let () = moving.run("HSET", &[state.as_str(), "bound", "16", "failures", "0"]).await;
        for n in 0..DELIVERIES {
            moving.make(&format!("s{n}"), Some("a")).await;
        }
        moving.make("waiting", None).await;
        moving
    }

    async fn run<T: FromRedisValue>(&self, name: &str, arguments: impl ToRedisArgs) -> T {
        let mut command = redis::cmd(name);
        command.arg(arguments);
        self.client.query(&command).await.expect("the command works")
    }

    async fn make(&self, of: &str, contact: Option<&str>) {
        let alert = alert(&subject(of), 80);
        let json = serde_json::to_string(&alert).expect("JSON");
        let entry: String = self.run("XADD", &[self.keys.outbox().as_str(), "*", "alert", &json]).await;
        let source = FanOutSource::Outbox { entry: &entry };
        let contacts: Vec<_> = contact.into_iter().map(email).collect();
        fan_out(&self.client, &self.keys, source, &alert, &contacts).await.expect("it is fanned out");
    }

    async fn lease(&self, token: &str) -> Result<Vec<(DeliveryId, String)>, OutboxError> {
        let answer = lease(&self.client, &self.keys, all_due(token, LONG)).await?;
        assert_eq!(answer.dropped, [], "no delivery is lost");
        Ok(answer.leased.into_iter().map(|leased| (leased.id, leased.token)).collect())
    }

    async fn begin_move(&self) -> Move {
        let to = (self.cluster.primary_of("usage").await + 1) % 3;
        self.cluster.begin_move("usage", to).await
    }

    async fn hashes(&self) -> Vec<String> {
        let ids: Vec<String> = self.run("ZRANGE", &[self.keys.deliveries().as_str(), "0", "-1"]).await;
        ids.iter().map(|id| self.keys.delivery(&DeliveryId::from_stored(id))).collect()
    }

    fn schedule(&self) -> Vec<String> {
        let Self { keys, .. } = self;
        let queues = ["email", "none"].map(|name| keys.due(&Destination::from_stored(name)));
        let lists =
            [keys.destinations(), keys.destinations_unhealthy(), keys.pending(), keys.waiting(), keys.deliveries()];
        [queues.as_slice(), &lists, &[keys.totals()]].concat()
    }
}

fn kind(result: Result<impl std::fmt::Debug, OutboxError>) -> ErrorKind {
    result.expect_err("half of the keys are elsewhere").error_kind()
}

/// A delivery whose hash has already moved looks lost. If it were dropped, the alert would be lost.
#[tokio::test]
async fn deliveries_whose_hashes_have_moved_ahead_are_not_dropped() {
    let outbox = MovingOutbox::start().await;
    let hashes = outbox.hashes().await;
    let moving = outbox.begin_move().await;
    outbox.cluster.move_these(&moving, &hashes[2..4]).await;
    assert_eq!(kind(outbox.lease("early").await), ErrorKind::NotReady);
    outbox.cluster.move_these(&moving, &hashes[4..]).await;
    assert_eq!(kind(wake_subject(&outbox.client, &outbox.keys, &subject("waiting")).await), ErrorKind::NotReady);
    assert_eq!(kind(outbox.lease("again").await), ErrorKind::NotReady);
    outbox.cluster.end_move(moving).await;
    assert_eq!(outbox.lease("late").await.expect("all are here").len(), usize::from(DELIVERIES));
    assert_eq!(totals(&outbox.client, &outbox.keys).await.expect("totals").pending, u64::from(DELIVERIES) + 1);
}

/// The reverse: the schedule has moved, and the hashes follow.
#[tokio::test]
async fn deliveries_whose_schedule_has_moved_ahead_are_not_dropped() {
    let outbox = MovingOutbox::start().await;
    let moving = outbox.begin_move().await;
    outbox.cluster.move_these(&moving, &outbox.schedule()).await;
    assert_eq!(kind(outbox.lease("early").await), ErrorKind::NotReady);
    assert_eq!(kind(wake_subject(&outbox.client, &outbox.keys, &subject("waiting")).await), ErrorKind::NotReady);
    outbox.cluster.end_move(moving).await;
    assert_eq!(outbox.lease("late").await.expect("all are here").len(), usize::from(DELIVERIES));
}

/// An outcome that can't be recorded while the slot moves is recorded afterwards, once.
#[tokio::test]
async fn outcomes_are_recorded_once_the_slot_has_moved() {
    let outbox = MovingOutbox::start().await;
    let leased = outbox.lease("t").await.expect("leased");
    let hashes = outbox.hashes().await;
    let moving = outbox.begin_move().await;
    outbox.cluster.move_these(&moving, &hashes[..4]).await;
    let delivered = Settlement::Delivered(outcome(OutcomeClass::Delivered));
    let mut settled = 0;
    for (id, token) in &leased {
        match settle(&outbox.client, &outbox.keys, id, token, &delivered).await {
            Ok(answer) => settled += u64::from(matches!(answer, SettleReply::Done(_))),
            Err(error) => assert_eq!(error.error_kind(), ErrorKind::NotReady, "{error}"),
        }
    }
    outbox.cluster.end_move(moving).await;
    for (id, token) in &leased {
        let answer = settle(&outbox.client, &outbox.keys, id, token, &delivered).await.expect("all are here");
        settled += u64::from(matches!(answer, SettleReply::Done(_)));
    }
    assert_eq!(settled, u64::from(DELIVERIES));
    let totals = totals(&outbox.client, &outbox.keys).await.expect("totals");
    assert_eq!(totals.pending, 1);
}
