//! What the log and the metrics say of an audit.

use metrics::counter;

use crate::ledger::audit::AuditFinding;
use crate::types::{StreamId, meters};

/// Logs and counts what an audit found, as of this checkpoint.
pub(super) fn report_audit(stream: &str, at: StreamId, finding: AuditFinding) {
    match finding {
        AuditFinding::Gap(entries) => {
            counter!(meters::ENTRIES_LOST).increment(entries);
            tracing::error!(stream, entries, "entries were trimmed or deleted by others before they were counted");
        }
        AuditFinding::Returned(entries) => {
            counter!(meters::ENTRIES_RETURNED).increment(entries);
            tracing::error!(
                stream,
                entries,
                checkpoint = %at,
                "entries that were not there before lie at or before the checkpoint, so they are not counted: \
                 the server has loaded a damaged append-only file, or somebody has restored the stream"
            );
        }
        AuditFinding::Rewound(entries) => {
            tracing::error!(
                stream,
                entries,
                "the stream counts fewer entries than were read: it was made again, or a failover took some"
            );
        }
        AuditFinding::Recreated => {
            tracing::error!(stream, "the stream was made again with lower ids: counting starts at its beginning");
        }
        // The session that follows says it.
        AuditFinding::Stale(_) | AuditFinding::Even | AuditFinding::Unread => {}
    }
}
