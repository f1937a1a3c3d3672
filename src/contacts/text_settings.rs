//! The settings of texts to the contacts of a subject: its language and its name.

use redis::RedisResult;

use crate::redis_client::RedisClient;
use crate::subjects::record::{LOCALE, parse_locale, parse_name};
use crate::types::{DisplayName, Keys, Locale, Subject, meters};

/// The language of messages to a subject: its own, or that of the nearest level above that has one; `None` for the
/// default one.
pub async fn read_locale(client: &RedisClient, keys: &Keys, subject: &Subject) -> RedisResult<Option<Locale>> {
    let mut levels = vec![subject.clone()];
    levels.extend(keys.separator().ancestors(subject));
    let mut pipeline = redis::pipe();
    for level in &levels {
        pipeline.cmd("HGET").arg(keys.subject(level)).arg(LOCALE);
    }
    let stored: Vec<Option<Vec<u8>>> = client.pipe(&pipeline).await?;
    Ok(levels.iter().zip(stored).find_map(|(level, stored)| locale_of(level, stored)))
}

/// A locale that can't be read must not cost anybody an alert: the default one is used.
pub(super) fn locale_of(subject: &Subject, stored: Option<Vec<u8>>) -> Option<Locale> {
    let unreadable = |why: &String| {
        metrics::counter!(meters::SUBJECTS_UNREADABLE).increment(1);
        tracing::warn!(%subject, why, "locale is unreadable, the default one is used");
    };
    parse_locale(&stored?).inspect_err(unreadable).ok()
}

/// A name that can't be read must not cost anybody an alert: texts have the id alone.
pub(super) fn name_of(subject: &Subject, stored: Option<Vec<u8>>) -> Option<DisplayName> {
    let unreadable = |why: &String| {
        metrics::counter!(meters::SUBJECTS_UNREADABLE).increment(1);
        tracing::warn!(%subject, why, "name is unreadable, the id is shown alone");
    };
    parse_name(&stored?).inspect_err(unreadable).ok()
}
