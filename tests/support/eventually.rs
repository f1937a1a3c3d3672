//! Waits for a condition, with a bound. Each check is a round trip to a real server, so it needs no sleep.

use std::future::Future;
use std::time::Duration;

/// Maximum wait of a test: conditions need less unless something is broken.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// Repeats `look` until it returns something, and returns that.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let searching = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_MAX, searching).await.unwrap_or_else(|_| panic!("not within {WAIT_MAX:?}: {what}"))
}
