//! The settings of texts to the contacts of a subject: its language, its name and its zone.

use redis::RedisResult;

use crate::redis_client::RedisClient;
use crate::subjects::record::{LOCALE, parse_locale, parse_name};
use crate::types::{DisplayName, Keys, Locale, Subject, meters};
use crate::zones::Zone;

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

/// The zone of a subject is that of the nearest level with one, or UTC; `None` if it can't be read, which its counting
/// reports.
pub(super) fn zone_of(mut levels: impl Iterator<Item = Option<Vec<u8>>>) -> Option<Zone> {
    match levels.find_map(|stored| stored) {
        Some(name) => str::from_utf8(&name).ok()?.parse().ok(),
        None => Some(Zone::UTC),
    }
}

/// A name that can't be read must not cost anybody an alert: texts have the id alone.
pub(super) fn name_of(subject: &Subject, stored: Option<Vec<u8>>) -> Option<DisplayName> {
    let unreadable = |why: &String| {
        metrics::counter!(meters::SUBJECTS_UNREADABLE).increment(1);
        tracing::warn!(%subject, why, "name is unreadable, the id is shown alone");
    };
    parse_name(&stored?).inspect_err(unreadable).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A subject below a customer sleeps where the customer does.
    #[test]
    fn the_zone_is_that_of_the_nearest_level_with_one() {
        let of = |levels: &[Option<&str>]| {
            let stored = levels.iter().map(|name| name.map(|name| name.as_bytes().to_vec()));
            zone_of(stored).map(Zone::name)
        };
        assert_eq!(of(&[None, Some("Asia/Tokyo"), Some("UTC")]), Some("Asia/Tokyo"));
        assert_eq!(of(&[None]), Some("UTC"));
        assert_eq!(of(&[Some("Mars"), Some("UTC")]), None);
    }
}
