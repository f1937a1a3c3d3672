//! A subject's settings, for the commands that show its usage.

use super::connect::CliConnection;
use crate::redis_client::Partition;
use crate::subjects::record::{BILLING_DAY, SubjectField, TIMEZONE};
use crate::subjects::{FieldError, Plans, StoredLevels};
use crate::terminal::output::say;
use crate::types::Subject;
use crate::views::{SubjectSettings, subject};

/// Reads the settings, and warns about unreadable ones and the values shown instead.
pub async fn read(redis: &CliConnection, subject: &Subject, plans: &Plans) -> anyhow::Result<SubjectSettings> {
    let settings = SubjectSettings::read(&read_levels(redis, subject).await?, plans);
    warn(subject, &settings.unreadable);
    warn_of_substitutes(&settings.unreadable);
    Ok(settings)
}

/// Reads the stored fields of the subject.
pub async fn read_fields(redis: &CliConnection, subject: &Subject) -> anyhow::Result<Vec<SubjectField>> {
    let fields = subject::read_fields(redis.partitions.first(), subject).await;
    redis.explained(format_args!("read subject {subject}"), fields)
}

/// Reads the stored fields of the subject and of the levels above it.
pub async fn read_levels(redis: &CliConnection, subject: &Subject) -> anyhow::Result<StoredLevels> {
    let Partition { client, keys } = redis.partitions.first();
    redis.explained(format_args!("read subject {subject}"), StoredLevels::read(client, keys, subject).await)
}

pub fn warn(subject: &Subject, unreadable: &[FieldError]) {
    for error in unreadable {
        say(format_args!("warning: subject {:?}: {error}", subject.as_str()));
    }
}

fn warn_of_substitutes(unreadable: &[FieldError]) {
    if unreadable.iter().any(|error| error.field == TIMEZONE) {
        say("warning: days and longer windows are shown as those of UTC");
    }
    if unreadable.iter().any(|error| error.field == BILLING_DAY) {
        say("warning: months are shown as those that begin on the first");
    }
    if !unreadable.is_empty() {
        say("warning: until this is corrected, alerts follow the last good values; without those, no alert is raised");
    }
}
