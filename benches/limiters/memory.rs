//! Memory of a key of each limiter: after the first call, after some calls, and when the limit is reached.

use quotabell::redis_client::RedisClient;
use quotabell_throttle::{Cooldown, ExpiringSet, FixedWindow, Gcra, Lease, Rate, SlidingWindow, one_time_token};

use crate::Size;
use crate::figures::Series;
use crate::load::WINDOW;
use crate::redis_server::RedisServer;

/// The limit of limiters that have one.
const LIMIT: u32 = 1_000;
/// Numbers of calls after which a key is measured.
const AFTER: [u32; 3] = [1, 60, LIMIT];

/// A limiter whose keys are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limiter {
    Fixed,
    Sliding,
    Gcra,
    Set,
    Token,
    Cooldown,
    Lease,
}

impl Limiter {
    const ALL: [Self; 7] =
        [Self::Fixed, Self::Sliding, Self::Gcra, Self::Set, Self::Token, Self::Cooldown, Self::Lease];

    const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed window",
            Self::Sliding => "sliding window",
            Self::Gcra => "GCRA",
            Self::Set => "expiring set, members of 16 bytes",
            Self::Token => "one-time token with 12 bytes of metadata; then consumed",
            Self::Cooldown => "cooldown",
            Self::Lease => "lease",
        }
    }

    /// Makes the call with this number for one key.
    async fn call(self, client: &RedisClient, key: &str, number: u32) -> anyhow::Result<()> {
        let rate = Rate::new(u64::from(LIMIT), WINDOW)?;
        let client = &mut client.connection();
        match self {
            Self::Fixed => drop(FixedWindow::new(rate).take(client, key, 1).await?),
            Self::Sliding => drop(SlidingWindow::new(rate)?.take(client, key, 1).await?),
            Self::Gcra => drop(Gcra::new(rate).take(client, key, 1).await?),
            Self::Set => drop(ExpiringSet::new(LIMIT)?.add(client, key, &format!("{number:016x}"), WINDOW).await?),
            Self::Token if number == 0 => drop(one_time_token::create(client, key, b"c_0123456789", WINDOW).await?),
            Self::Token => drop(one_time_token::consume(client, key, "0123456789abcdef").await?),
            Self::Cooldown => drop(Cooldown::new(WINDOW).try_start(client, key).await?),
            Self::Lease => drop(Lease::new("node-1", WINDOW).acquire(client, key).await?),
        }
        Ok(())
    }
}

/// Measures and prints.
pub async fn run(size: Size, server: &RedisServer) -> anyhow::Result<()> {
    let keys = size.pick(50, 2);
    let client = RedisClient::new(server.sync_client());
    println!("\n## Memory a key: MEMORY USAGE, average of {keys} keys of 20 bytes, key and entry included\n");
    println!("| calls admitted, where it admits several | {} | {} | {} |", AFTER[0], AFTER[1], AFTER[2]);
    println!("|---|---|---|---|");
    for (place, limiter) in Limiter::ALL.into_iter().enumerate() {
        let mut bytes = AFTER.map(|_| Series::default());
        for number in 0..keys {
            let key = format!("limit:{place}:user-{number:07}");
            for call in 0..LIMIT {
                limiter.call(&client, &key, call).await?;
                if let Some(column) = AFTER.iter().position(|after| *after == call + 1) {
                    bytes[column].push(usage(&client, &key).await?);
                }
            }
        }
        let [first, some, all] = bytes.map(|bytes| format!("{:.0} B", bytes.mean()));
        println!("| {} | {first} | {some} | {all} |", limiter.name());
    }
    Ok(())
}

/// Bytes of a key; counts every member instead of a sample.
async fn usage(client: &RedisClient, key: &str) -> anyhow::Result<f64> {
    Ok(client.query(redis::cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0)).await?)
}
