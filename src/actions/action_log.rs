//! The log of actions: who did what. The newest [`ACTIONS_KEPT`] are kept.

use redis::RedisResult;

use crate::redis_client::Partitions;
use crate::types::Subject;

/// Number of actions that are kept, or a few more.
pub const ACTIONS_KEPT: usize = 10_000;

/// An action that was carried out.
#[derive(Debug, Clone, Copy)]
pub struct Action<'a> {
    /// Who did it: the name of a token, `cli:<user>`, or `portal`.
    pub by: &'a str,
    /// What was done: the id of the API's operation, such as `muteSubject`.
    pub action: &'a str,
    /// The subject that it was done to. Its erasure removes the entry.
    pub subject: Option<&'a Subject>,
    /// What it was done to beside the subject: the id of a contact, a delivery or a grant, or the destination
    /// and the state of deliveries. May be empty.
    pub target: &'a str,
    /// Number of things that were changed.
    pub count: u64,
}

/// Appends an action to the log.
///
/// # Errors
///
/// The error of Redis or of the connection: the action may be missing.
pub async fn record(partitions: &Partitions, action: &Action<'_>) -> RedisResult<()> {
    let Action { by, action, subject, target, count } = action;
    // In the first partition: an action may concern all of them.
    let first = partitions.first();
    let mut command = redis::cmd("XADD");
    command.arg(first.keys.actions()).arg("MAXLEN").arg("~").arg(ACTIONS_KEPT).arg("*");
    command.arg("by").arg(by).arg("action").arg(action).arg("count").arg(count);
    if let Some(subject) = subject {
        command.arg("subject").arg(subject.as_str());
    }
    if !target.is_empty() {
        command.arg("target").arg(target);
    }
    first.client.query::<String>(&command).await.map(drop)
}
