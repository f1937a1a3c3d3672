//! Handles entries that are too large for a normal reading: commits what was read before them, then reads them one by
//! one or refuses them. Read next: [`super::session`], the loop that finds them.

use crate::redis_client::TruncatedEntry;
use crate::redis_client::xread::StreamReader;

use super::parse::arrival_of;
use super::session::Session;
use super::session_error::SessionError;

impl Session<'_> {
    /// Commits what was read before a reading failed. If entries are too large for the server or the network, readings
    /// fail again and again, and the entries before them would never be counted.
    pub(super) async fn commit_rest(&mut self) -> Result<(), SessionError> {
        self.finish_commit().await?;
        loop {
            while self.ahead.add_some(&mut self.builder, &mut self.held) {}
            self.begin_loading()?;
            if self.settle_due_grants().await? {
                continue;
            }
            let is_due = self.builder.is_full() || self.ahead.is_empty();
            if is_due && self.may_commit() {
                self.commit().await?;
                self.finish_commit().await?;
            } else if self.builder.entries() == 0 && self.ahead.is_empty() {
                return Ok(());
            } else {
                let done = self.loader.finished().await;
                self.apply_read(done)?;
            }
        }
    }

    /// Reads and adds one entry without the server's limit, because it exceeded that limit.
    pub(super) async fn read_one(&mut self) -> Result<(), SessionError> {
        let parts = &self.worker.parts;
        let mut reader = StreamReader::connect_unbounded(&parts.endpoint, parts.keys.stream()).await?;
        reader.request(&self.after.to_string(), 1, None).await?;
        let reply = reader.receive().await?;
        let Some(last) = reply.last() else { return Ok(()) };
        if !self.builder.reads_from(reader.run_id()) {
            return Err(SessionError::Again("the server was replaced between two connections"));
        }
        self.worker.read_sizer.received(reply.entries().len(), reply.bytes());
        self.begin_reading()?;
        self.ahead.push(reply, &mut self.builder, &mut self.held);
        self.after = last;
        Ok(())
    }

    /// Commits an entry that is too large to be read as refused. It is the first entry after the committed ones.
    pub(super) async fn refuse_truncated(&mut self, entry: &TruncatedEntry) -> Result<(), SessionError> {
        let now = self.worker.parts.client.server_time().await;
        let now = now.map_err(|source| SessionError::Redis { operation: "read the server's clock", source })?;
        // The grants that expired before it.
        self.settle_grants(arrival_of(entry.id, now)).await?;
        self.builder.add_truncated(entry, now);
        self.commit().await?;
        self.finish_commit().await
    }
}
