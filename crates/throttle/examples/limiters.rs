//! Each limiter as an API node would use it: `cargo run --example limiters -- redis://127.0.0.1:6379`.
//!
//! Leaves nothing behind: every key has a TTL of at most 24 minutes. docs/limiters.md says which limiter to choose.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use quotabell_throttle::{
    Admission, Cooldown, CooldownDecision, ExpiringSet, ExpiringSetDecision, FixedWindow, Gcra, Lease, LeaseDecision,
    Rate, RateDecision, SlidingWindow, one_time_token,
};
use redis::aio::ConnectionLike;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1);
    let url = url.context("name a server: cargo run --example limiters -- redis://127.0.0.1:6379")?;
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    tour(&mut connection, &format!("example:{}", std::process::id())).await
}

/// Uses every limiter once or twice, under keys that begin with `prefix`.
///
/// # Errors
///
/// An error of Redis or of the connection, or a limiter that breaks its rule.
pub async fn tour(connection: &mut impl ConnectionLike, prefix: &str) -> anyhow::Result<()> {
    rates(connection, prefix).await?;
    password(connection, &format!("{prefix}:passwords:alice")).await?;
    confirm_link(connection, &format!("{prefix}:confirm:3f9c")).await?;
    button(connection, &format!("{prefix}:resend:alice")).await?;
    leader(connection, &format!("{prefix}:nightly-report")).await
}

/// Three limiters decide whether a request may proceed. Their replies have the same type.
async fn rates(connection: &mut impl ConnectionLike, prefix: &str) -> anyhow::Result<()> {
    let rate = Rate::new(3, MINUTE)?;
    let (fixed, sliding, gcra) = (FixedWindow::new(rate), SlidingWindow::new(rate)?, Gcra::new(rate));
    for request in 1..=4 {
        let fixed = fixed.take(connection, &format!("{prefix}:fixed:alice"), 1).await?;
        let sliding = sliding.take(connection, &format!("{prefix}:sliding:alice"), 1).await?;
        let gcra = gcra.take(connection, &format!("{prefix}:gcra:alice"), 1).await?;
        for (name, decision) in [("fixed window", fixed), ("sliding window", sliding), ("gcra", gcra)] {
            println!("request {request}, {name}: {}", told(&decision));
            ensure!(decision.is_admitted() == (request <= 3), "{name}: {decision:?}");
        }
    }
    // A large request takes several units, all of them or none. Asking takes nothing.
    let gcra = Gcra::new(Rate::new(1000, 60 * MINUTE)?);
    let key = format!("{prefix}:tokens:alice");
    gcra.take(connection, &key, 400).await?;
    println!("400 tokens of 1000/1h later: {}", told(&gcra.ask(connection, &key).await?));
    Ok(())
}

/// The values that an HTTP server would send in `RateLimit` and `Retry-After`.
fn told(decision: &RateDecision) -> String {
    let RateDecision { admission, limit, remaining, reset } = decision;
    let admission = match admission {
        Admission::Admitted => "admitted".to_owned(),
        Admission::Rejected { retry_after: Some(wait) } => format!("rejected, retry after {:.1} s", wait.as_secs_f64()),
        Admission::Rejected { retry_after: None } => "rejected, it asks for more than the limit".to_owned(),
    };
    format!("{admission}; {remaining} of {limit} remain, all of them again in {:.1} s", reset.as_secs_f64())
}

/// At most two passwords of a contact are valid at once; each expires by itself.
async fn password(connection: &mut impl ConnectionLike, key: &str) -> anyhow::Result<()> {
    let passwords = ExpiringSet::new(2)?;
    for (name, stays) in [("first", MINUTE / 2), ("second", MINUTE), ("third", MINUTE)] {
        match passwords.add(connection, key, name, stays).await? {
            ExpiringSetDecision::Added { remaining } => println!("{name} password sent, {remaining} more could be"),
            ExpiringSetDecision::Full { retry_after } => {
                println!("no {name} password for {:.1} s", retry_after.as_secs_f64())
            }
        }
    }
    Ok(())
}

/// A link that works once and names its owner.
async fn confirm_link(connection: &mut impl ConnectionLike, key: &str) -> anyhow::Result<()> {
    one_time_token::create(connection, key, b"alice", MINUTE).await?;
    let [first, again, second] = [
        one_time_token::consume(connection, key, "click 1").await?,
        // Sent again, as after a lost reply.
        one_time_token::consume(connection, key, "click 1").await?,
        one_time_token::consume(connection, key, "click 2").await?,
    ];
    println!("the link confirmed {:?}; a second click: {second:?}", first.as_deref().map(String::from_utf8_lossy));
    ensure!(first.as_deref() == Some(&b"alice"[..]) && again == first && second.is_none(), "consumed once");
    Ok(())
}

/// One email a minute, even if the button is pressed more often.
async fn button(connection: &mut impl ConnectionLike, key: &str) -> anyhow::Result<()> {
    let resend = Cooldown::new(MINUTE);
    for press in 1..=2 {
        match resend.try_start(connection, key).await? {
            CooldownDecision::Started => println!("press {press}: sent"),
            CooldownDecision::Active { retry_after } => {
                println!("press {press}: wait {:.1} s", retry_after.as_secs_f64())
            }
        }
    }
    Ok(())
}

/// One of several programs does the work. Another takes over when it releases the lease or dies.
async fn leader(connection: &mut impl ConnectionLike, key: &str) -> anyhow::Result<()> {
    let (first, second) = (Lease::new("node-1", MINUTE), Lease::new("node-2", MINUTE));
    ensure!(first.acquire(connection, key).await? == LeaseDecision::Acquired, "it was free");
    if let LeaseDecision::HeldByOther { expires_in } = second.acquire(connection, key).await? {
        println!("node-2 stands by: node-1 holds it for {:.1} s, unless it renews", expires_in.as_secs_f64());
    }
    first.release(connection, key).await?;
    ensure!(second.acquire(connection, key).await? == LeaseDecision::Acquired, "it was released");
    println!("node-2 took over");
    second.release(connection, key).await?;
    Ok(())
}
