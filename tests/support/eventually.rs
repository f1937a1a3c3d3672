//! Waiting for a condition, bounded. Each look is a round trip to a real server, so there is nothing to sleep for.

use std::future::Future;
use std::time::Duration;

/// No condition of a test takes longer, unless something is broken.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// Looks again and again until `look` finds something, and returns it.
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
