//! The log of actions.

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use crate::events::parse::SOURCE_ARRIVAL;
use crate::redis_client::Partitions;
use crate::types::timestamp::Rfc3339;
use crate::types::{StreamId, UnixMs};

/// An action that a person or a platform carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ActionView {
    pub at: Rfc3339,
    /// Who: the name of a token, `cli:<user>`, or `portal`.
    pub by: String,
    /// What was done: the id of an operation of this document, or one of the command line alone.
    pub action: String,
    /// The subject that it was done to.
    pub subject: Option<String>,
    /// The contact, delivery or grant that it was done to.
    pub target: Option<String>,
    /// Number of things that were changed.
    pub count: u64,
}

/// The fields of an entry: names and values in turn.
type Fields = Vec<(String, String)>;

/// The newest `count` actions before an entry, newest first, and the entry before which more may follow.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn newest(
    partitions: &Partitions,
    before: Option<&StreamId>,
    count: usize,
) -> RedisResult<(Vec<ActionView>, Option<StreamId>)> {
    let first = partitions.first();
    let end = before.map_or_else(|| "+".to_owned(), |before| format!("({before}"));
    let mut command = redis::cmd("XREVRANGE");
    command.arg(first.keys.actions()).arg(end).arg("-").arg("COUNT").arg(count);
    let entries: Vec<(String, Fields)> = first.client.query(&command).await?;
    let next = entries.last().filter(|_| entries.len() == count).and_then(|(id, _)| StreamId::parse(id.as_bytes()));
    Ok((entries.into_iter().filter_map(|(id, fields)| view(&id, fields)).collect(), next))
}

/// Number of the newest actions among which one on a delivery is looked for.
const LOOKED_THROUGH: usize = 200;

/// The newest action on this target, if it is one of the newest thousand actions and the log names the target.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn newest_on(partitions: &Partitions, target: &str) -> RedisResult<Option<ActionView>> {
    let (actions, _) = newest(partitions, None, LOOKED_THROUGH).await?;
    let is_on = |action: &ActionView| action.target.iter().flat_map(|of| of.split(' ')).any(|one| one == target);
    Ok(actions.into_iter().find(is_on))
}

/// `None` for an entry of somebody else.
fn view(id: &str, fields: Fields) -> Option<ActionView> {
    let field = |name: &str| fields.iter().find(|(named, _)| named == name).map(|(_, value)| value.clone());
    let added = || i64::try_from(StreamId::parse(id.as_bytes())?.ms).ok();
    let at = field(SOURCE_ARRIVAL).and_then(|ms| ms.parse().ok()).or_else(added)?;
    Some(ActionView {
        at: Rfc3339(UnixMs(at)),
        by: field("by")?,
        action: field("action")?,
        subject: field("subject"),
        target: field("target"),
        count: field("count")?.parse().ok()?,
    })
}
