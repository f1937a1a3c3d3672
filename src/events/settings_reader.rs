//! Settings of subjects, as fresh as they have to be: read where they are not held, and again where they have changed.

use crate::subjects::Plans;
use crate::subjects::watch::{ChangeFeed, SubjectChanges};
use crate::types::Keys;
use crate::wire::RedisClient;

use super::held_state::HeldState;
use super::report::WorkerReport;
use super::session_error::SessionError;

/// Settings that change while they are read are read again, this often at most; then the next batch sees them.
const READ_AGAIN_MAX: u32 = 3;

/// Reads settings.
#[derive(Debug)]
pub(super) struct SettingsReader {
    keys: Keys,
    plans: Plans,
    changes: ChangeFeed,
}

impl SettingsReader {
    /// With these plans; `changes` tells which subjects have changed.
    pub(super) const fn new(keys: Keys, plans: Plans, changes: ChangeFeed) -> Self {
        Self { keys, plans, changes }
    }

    /// Reads the settings of these subjects until none of them changed while it was read: a change is noticed after the reading it
    /// came too late for.
    pub(super) async fn read(
        &self,
        client: &RedisClient,
        held: &mut HeldState,
        report: &WorkerReport,
        mut subjects: Vec<u32>,
    ) -> Result<(), SessionError> {
        subjects.sort_unstable();
        subjects.dedup();
        for again in 0..=READ_AGAIN_MAX {
            let missing: Vec<u32> =
                subjects.iter().copied().filter(|slot| held.cache.slot(*slot).profile().is_none()).collect();
            if missing.is_empty() {
                return Ok(());
            }
            let unreadable = held
                .cache
                .read(client, &self.keys, &self.plans, &missing)
                .await
                .map_err(|source| SessionError::Redis { operation: "read the settings of subjects", source })?;
            report.unreadable(&unreadable);
            // Somebody who writes a subject all the time must not stop the counting: what changes during the last reading is left
            // for the next batch, which comes well within the second that a change may take.
            if again < READ_AGAIN_MAX && self.changes.is_live() {
                self.take_changes(held, report);
            }
        }
        Ok(())
    }

    /// Notices what has changed.
    pub(super) fn take_changes(&self, held: &mut HeldState, report: &WorkerReport) {
        match self.changes.take() {
            SubjectChanges::Any => held.cache.changed_all(),
            SubjectChanges::Of(subjects) => subjects.iter().for_each(|subject| held.cache.changed(subject)),
        }
        report.cached(held.cache.len());
    }
}
