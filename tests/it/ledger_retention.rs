//! Lifetime of counters on a real server.

use std::time::Duration;

use crate::support::redis_server::RedisServer;
use quotabell::ledger::history::HistoryConfig;
use quotabell::ledger::retention::PeriodArchiver;
use quotabell::redis_client::RedisClient;
use quotabell::types::{Day, Keys, Metric, Period, StreamId, UnixMs};

const LATE_MAX: Duration = Duration::from_secs(5 * 3600);
const BUCKET: u8 = 7;
const COUNTER_TTL_S: i64 = 14 * 86_400;
const CLOSED_TTL_S: i64 = 48 * 3600 + 10 * BUCKET as i64;

struct Books {
    _server: RedisServer,
    client: RedisClient,
    keys: Keys,
}

impl Books {
    fn open() -> Self {
        let server = RedisServer::start();
        Self { client: server.client(), _server: server, keys: Keys::new("usage") }
    }

    fn counter(&self, period: impl Into<Period>) -> String {
        self.keys.usage(&Metric::default(), period, BUCKET)
    }

    /// Writes a counter and a record as a commit does.
    async fn write(&self, period: impl Into<Period>) {
        let period = period.into();
        let mut pipeline = redis::pipe();
        let metrics = self.keys.metrics(period);
        pipeline.sadd(&metrics, Metric::default().as_str()).ignore().expire(&metrics, COUNTER_TTL_S).ignore();
        for key in [self.counter(period), self.keys.raised(&Metric::default(), period, BUCKET)] {
            pipeline.hset(&key, "alice", 1).ignore().expire(&key, COUNTER_TTL_S).ignore();
        }
        let () = self.client.pipe(&pipeline).await.expect("they are written");
    }

    async fn ttl_s(&self, key: &str) -> i64 {
        self.client.query(redis::cmd("TTL").arg(key)).await.expect("redis answers")
    }

    /// Closes everything that can be closed at this time.
    async fn close(&self, retention: &mut PeriodArchiver, at: &str) -> Vec<String> {
        let at = chrono::DateTime::parse_from_rfc3339(at).expect("RFC 3339").timestamp_millis();
        let checkpoint = StreamId { ms: u64::try_from(at).expect("after 1970"), seq: 0 };
        let mut closed = Vec::new();
        loop {
            let periods = retention.close_periods(&self.client, checkpoint, UnixMs(at)).await.expect("redis answers");
            if periods.is_empty() {
                return closed;
            }
            closed.extend(periods.iter().map(ToString::to_string));
        }
    }
}

fn day(text: &str) -> Day {
    Day::parse(text).expect("a date")
}

/// Counters of a past day would otherwise occupy memory for two weeks; those of the current day must survive an outage.
#[tokio::test]
async fn a_day_that_is_over_everywhere_lives_48_hours_more() {
    let books = Books::open();
    let (over, open) = (day("2026-11-20"), day("2026-11-21"));
    books.write(over).await;
    books.write(open).await;
    // An earlier process wrote them.
    let mut retention = PeriodArchiver::new(books.keys.clone(), LATE_MAX, HistoryConfig { days: 0, alerts_days: 400 });
    let closed = books.close(&mut retention, "2026-11-21T17:00:00Z").await;
    assert!(closed.iter().any(|period| period == "2026-11-20"), "{closed:?}");
    for key in [books.counter(over), books.keys.raised(&Metric::default(), over, BUCKET)] {
        let ttl_s = books.ttl_s(&key).await;
        assert!((CLOSED_TTL_S - 5..=CLOSED_TTL_S).contains(&ttl_s), "{key}: {ttl_s}");
    }
    assert!(books.ttl_s(&books.keys.metrics(over)).await <= 48 * 3600 + 2560);
    assert!(books.ttl_s(&books.counter(open)).await > COUNTER_TTL_S - 5);
    assert_eq!(books.close(&mut retention, "2026-11-21T17:00:01Z").await, [""; 0], "each day once");
}

/// A daemon that is restarted daily must not keep each hour's counters for two weeks: seven times as many.
#[tokio::test]
async fn longer_and_shorter_periods_of_an_earlier_process_are_closed_too() {
    let books = Books::open();
    let period = |text: &str| Period::parse(text).expect("a period");
    let over =
        ["2026-11-20T05Z", "2026-11-05T23Z", "2026-W46", "2026-10-06M", "2026-10-15M", "2026-08-15Q", "2025-11-15Y"];
    let open = [
        "2026-11-21T10Z",
        "2026-W47",
        "2026-11",
        "2026-11-15M",
        "2026-Q4",
        "2026-08-25Q",
        "2026",
        "2025-11-25Y",
        "all",
    ];
    let (over, open) = (over.map(period), open.map(period));
    for period in over.into_iter().chain(open) {
        books.write(period).await;
    }
    let mut retention = PeriodArchiver::new(books.keys.clone(), LATE_MAX, HistoryConfig { days: 0, alerts_days: 400 });
    books.close(&mut retention, "2026-11-21T17:00:00Z").await;
    for period in over {
        let ttl_s = books.ttl_s(&books.counter(period)).await;
        assert!((CLOSED_TTL_S - 5..=CLOSED_TTL_S).contains(&ttl_s), "{period}: {ttl_s}");
    }
    for period in open {
        let ttl_s = books.ttl_s(&books.counter(period)).await;
        assert!(ttl_s > COUNTER_TTL_S - 5, "{period}: {ttl_s}");
    }
}

/// A stream of months that is read in a minute writes days that ended long ago.
#[tokio::test]
async fn days_of_an_old_stream_are_closed_too() {
    let books = Books::open();
    let old = day("2026-03-01");
    books.write(old).await;
    let mut retention = PeriodArchiver::new(books.keys.clone(), LATE_MAX, HistoryConfig { days: 0, alerts_days: 400 });
    retention.after_commit([old.into()].into());
    let closed = books.close(&mut retention, "2026-11-21T17:00:00Z").await;
    assert_eq!(closed.first().map(String::as_str), Some("2026-03-01"));
    assert!(books.ttl_s(&books.counter(old)).await <= CLOSED_TTL_S);
}

/// Closing a day again must not extend its remaining lifetime by 48 hours.
#[tokio::test]
async fn closing_again_prolongs_nothing() {
    let books = Books::open();
    let over = day("2026-11-20");
    books.write(over).await;
    let () = books.client.query(redis::cmd("EXPIRE").arg(books.counter(over)).arg(100)).await.expect("set");
    books
        .close(
            &mut PeriodArchiver::new(books.keys.clone(), LATE_MAX, HistoryConfig { days: 0, alerts_days: 400 }),
            "2026-11-21T17:00:00Z",
        )
        .await;
    assert!(books.ttl_s(&books.counter(over)).await <= 100);
}
