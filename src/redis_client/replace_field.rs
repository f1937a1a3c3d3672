//! Changes the value of a hash's field without overwriting the change of another process: the wrapper of
//! `replace_field.lua`.

use std::sync::LazyLock;

use redis::RedisResult;

use super::{RedisClient, Script};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("replace_field.lua")));

/// Replaces the value of a field by what `shorten` makes of it; `None` means that it needs no change. If somebody else
/// changes the value meanwhile, `shorten` gets the new value. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection; the value may be replaced.
pub async fn replace_field(
    client: &RedisClient,
    key: &str,
    field: &str,
    shorten: impl Fn(&str) -> Option<String>,
) -> RedisResult<()> {
    let mut read = redis::cmd("HGET");
    read.arg(key).arg(field);
    // Values are replaced by erasures, which shorten them, and by the few alerts of a threshold, so this loop ends.
    while let Some(stored) = client.query::<Option<String>>(&read).await? {
        let Some(changed) = shorten(&stored) else { break };
        let answer: String = SCRIPT.call().key(key).arg(field).arg(stored).arg(changed).run(client).await?;
        if answer == "replaced" {
            break;
        }
    }
    Ok(())
}
