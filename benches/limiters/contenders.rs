//! What the benchmark measures: plain commands as an upper bound, and each limiter through the public API.

use std::sync::LazyLock;

use anyhow::Context as _;
use quotabell::redis_client::{RedisClient, Script};
use quotabell_throttle::{
    Cooldown, CooldownDecision, ExpiringSet, ExpiringSetDecision, FixedWindow, Gcra, Lease, LeaseDecision,
    SlidingWindow, one_time_token,
};

use crate::load::{CALLS_A_KEY, LIMIT, Load, WINDOW, rate};
use crate::peers::Peer;

/// A script of one line: an upper bound for a limiter that is a script.
static ONE_LINE: LazyLock<Script> = LazyLock::new(|| Script::new("#!lua\nreturn redis.call('INCR', KEYS[1])"));

/// A measured command or limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// INCR alone.
    Incr,
    /// EVALSHA of one line.
    OneLine,
    /// The same script, called in the way in which a limiter calls its script.
    OneLineCalled,
    Fixed,
    Sliding,
    Gcra,
    ExpiringSet,
    Token,
    Cooldown,
    Lease,
    /// A limiter of another project, in its own process.
    Peer(Peer),
}

impl Contender {
    /// All, in the order of measuring and printing.
    pub const ALL: [Self; 13] = [
        Self::Incr,
        Self::OneLine,
        Self::OneLineCalled,
        Self::Fixed,
        Self::Sliding,
        Self::Gcra,
        Self::ExpiringSet,
        Self::Token,
        Self::Cooldown,
        Self::Lease,
        Self::Peer(Peer::LimitsFixed),
        Self::Peer(Peer::LimitsMoving),
        Self::Peer(Peer::Flexible),
    ];

    /// Name in the output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incr => "INCR, the ceiling",
            Self::OneLine => "EVALSHA of one line",
            Self::OneLineCalled => "the same line, called as ours are",
            Self::Fixed => "fixed window",
            Self::Sliding => "sliding window",
            Self::Gcra => "GCRA",
            Self::ExpiringSet => "expiring set",
            Self::Token => "one-time token, create and consume",
            Self::Cooldown => "cooldown",
            Self::Lease => "lease, hold and release",
            Self::Peer(peer) => peer.name(),
        }
    }

    /// Number of calls that must be admitted.
    pub const fn admitted(self, load: &Load) -> usize {
        match self {
            Self::Incr | Self::OneLine | Self::OneLineCalled | Self::Lease => load.calls(),
            Self::Fixed | Self::Sliding | Self::Gcra | Self::ExpiringSet | Self::Peer(_) => load.keys * LIMIT,
            // Created once and consumed once.
            Self::Token => load.keys * 2,
            Self::Cooldown => load.keys,
        }
    }

    /// Makes the call with this number; returns whether it was admitted.
    pub async fn call(self, redis: &RedisClient, load: &Load, number: usize) -> anyhow::Result<bool> {
        let key = load.key(number);
        let (round, client) = (number / load.keys, &mut redis.connection());
        Ok(match self {
            Self::Incr => redis.query::<u64>(redis::cmd("INCR").arg(key)).await? > 0,
            Self::OneLine => {
                let mut command = redis::cmd("EVALSHA");
                redis.query::<u64>(command.arg(ONE_LINE.sha1()).arg(1).arg(key)).await? > 0
            }
            Self::OneLineCalled => ONE_LINE.call().key(key).run::<u64>(redis).await? > 0,
            Self::Fixed => FixedWindow::new(rate()).take(client, &key, 1).await?.is_admitted(),
            Self::Sliding => SlidingWindow::new(rate())?.take(client, &key, 1).await?.is_admitted(),
            Self::Gcra => Gcra::new(rate()).take(client, &key, 1).await?.is_admitted(),
            Self::ExpiringSet => {
                let set = ExpiringSet::new(LIMIT as u32)?;
                matches!(set.add(client, &key, &number.to_string(), WINDOW).await?, ExpiringSetDecision::Added { .. })
            }
            Self::Token if round == 0 => {
                one_time_token::create(client, &key, b"alice", WINDOW).await? == one_time_token::TokenCreation::Created
            }
            Self::Token => one_time_token::consume(client, &key, &round.to_string()).await?.is_some(),
            Self::Cooldown => Cooldown::new(WINDOW).try_start(client, &key).await? == CooldownDecision::Started,
            Self::Lease => {
                let lease = Lease::new("bench", WINDOW);
                // Rounds alternate, so that a release finds an acquired lease.
                match round % 2 {
                    0 => lease.acquire(client, &key).await? == LeaseDecision::Acquired,
                    _ => lease.release(client, &key).await.map(|()| true)?,
                }
            }
            Self::Peer(_) => anyhow::bail!("a peer calls by itself"),
        })
    }

    /// Loads all scripts before the first measured call.
    pub async fn prepare(client: &RedisClient) -> anyhow::Result<()> {
        let mut command = redis::cmd("SCRIPT");
        let _: String = client.query(command.arg("LOAD").arg(ONE_LINE.source())).await.context("load the script")?;
        // The first call of a limiter loads its script.
        let warm = Load { prefix: "warm".to_owned(), keys: 1 };
        for contender in Self::ALL {
            for number in 0..CALLS_A_KEY {
                if !matches!(contender, Self::Peer(_)) {
                    let load = Load { prefix: format!("warm:{}", contender.name()), ..warm.clone() };
                    contender.call(client, &load, number).await?;
                }
            }
        }
        Ok(())
    }
}
