//! Copies all stored data to another deployment, optionally with another number of partitions, while no daemon runs.
//!
//! It may be interrupted and run again: it first removes the copies of an earlier run, so that the target matches the
//! source's current data, and appends uncounted events once. It marks both deployments before it copies. Scripts that
//! count or send check the marks (`moved_away` in `prelude.lua`), so a daemon that was paused or cut off counts and
//! sends nothing. Read next: [`marks`]; [`source`], which divides keys among partitions; [`target`] and [`surplus`],
//! which write and compare them; [`append`] and [`compare`], the streams; [`undo`].

mod append;
mod clear;
mod compare;
mod endpoints;
mod error;
mod in_flight;
mod key_chunk;
mod marks;
mod source;
mod surplus;
mod target;
mod undo;

use crate::ledger::commit_settings::FORMAT;
use crate::outbox::{Totals, totals};
use crate::redis_client::{Partition, RedisClient};
use crate::types::{Keys, StreamId, keys};

pub use endpoints::Migration;
pub use error::MigrationError;
pub use marks::COPYING;

use append::CopiedStream;
use compare::EntryComparison;
use marks::{SourceState, TargetState, ensure_no_daemon};
use source::Source;
use target::{Purpose, Target};

/// What was copied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationSummary {
    /// Number of compared fields and members of all keys: counters, flags, records, deliveries and others.
    pub elements: u64,
    /// Number of stream entries that this run appended: uncounted events, pending alerts, refused events.
    pub entries: u64,
}

impl Migration<'_> {
    /// Copies, compares, and puts the target into effect; calls `say` at each step. If the migration was complete
    /// already, only copies events that reached the source since; a daemon may then run at the target.
    ///
    /// # Errors
    ///
    /// [`MigrationError`]. The source is unchanged except for a mark that keeps daemons from working there;
    /// [`Self::undo`] removes it.
    pub async fn run(&self, mut say: impl FnMut(&str)) -> Result<MigrationSummary, MigrationError> {
        let state = self.source_state().await?;
        let is_marked = self.ensure_not_moved().await?;
        ensure_no_daemon(self.from).await?;
        let mut migrated = MigrationSummary::default();
        let target = self.target_state(&state).await?;
        if target == TargetState::Complete {
            if !is_marked {
                return Err(MigrationError::Unmarked(self.from.first().keys.checkpoint()));
            }
            say("everything was copied before: copying events that came since");
            migrated.entries = self.copy_stream(CopiedStream::Usage, &state).await?;
            return Ok(migrated);
        }
        ensure_no_daemon(self.to).await?;
        self.mark(&state, target).await?;
        // A paused daemon may have committed before the mark.
        let state = self.source_state().await?;
        in_flight::wait(self.from, &mut say).await?;
        self.ensure_counted_as_before(&state).await?;
        self.clear_copies().await?;
        self.begin_streams(&state).await?;
        say("copying the settings of subjects, counters, flags, records and deliveries");
        let copied = self.transfer(Purpose::Copy).await?;
        self.remove_other_subjects(&copied).await?;
        say("copying entries of streams");
        for stream in self.streams().await? {
            migrated.entries += self.copy_stream(stream, &state).await?;
        }
        say("comparing");
        migrated.elements = self.compare(&state).await?;
        self.complete(&state).await?;
        Ok(migrated)
    }

    /// Sets the first ids of the target's streams after the counted entries.
    async fn begin_streams(&self, source: &SourceState) -> Result<(), MigrationError> {
        let counted = source.last_counted();
        if counted == StreamId::ZERO {
            return Ok(());
        }
        for Partition { client, keys } in self.to.iter() {
            let stream = keys.stream();
            let redis = MigrationError::redis(format!("begin {stream}"));
            let mut create = redis::cmd("XGROUP");
            create.arg("CREATE").arg(stream).arg(keys::GROUP).arg(counted.to_string()).arg("MKSTREAM");
            match client.query::<()>(&create).await {
                Err(error) if error.code() == Some("BUSYGROUP") => {}
                created => created.map_err(&redis)?,
            }
            let old = redis::cmd("XRANGE").arg(stream).arg("-").arg(counted.to_string()).arg("COUNT").arg(1).to_owned();
            let old: Vec<redis::Value> = client.query(&old).await.map_err(&redis)?;
            if !old.is_empty() {
                return Err(MigrationError::OldEntries { stream: stream.to_owned(), checkpoint: counted });
            }
            let length: u64 = client.query(redis::cmd("XLEN").arg(stream)).await.map_err(&redis)?;
            if length == 0 {
                let set = redis::cmd("XSETID").arg(stream).arg(counted.to_string()).to_owned();
                let () = client.query(&set).await.map_err(&redis)?;
            }
        }
        Ok(())
    }

    async fn transfer(&self, purpose: Purpose) -> Result<Target<'_>, MigrationError> {
        let mut target = Target::new(self.to, purpose);
        let Partition { client, keys } = self.from.first();
        source::transfer_subjects(client, keys, &self.to.first().keys, &mut target).await?;
        for partition in self.from.iter() {
            Source::new(partition, self.to).transfer(&mut target).await?;
        }
        Ok(target)
    }

    async fn streams(&self) -> Result<Vec<CopiedStream>, MigrationError> {
        let now = self.from.first().client.server_time().await;
        Ok(CopiedStream::all(now.map_err(MigrationError::redis("read the server's clock"))?))
    }

    async fn copy_stream(&self, stream: CopiedStream, source: &SourceState) -> Result<u64, MigrationError> {
        let mut appended = 0;
        for (partition, counted) in self.from.iter().zip(&source.counted) {
            let copied = stream.copy(partition, stream.begin(*counted), self.to).await;
            appended +=
                copied.map_err(MigrationError::redis(format!("copy entries of {}", stream.key(&partition.keys))))?;
        }
        Ok(appended)
    }

    /// Whether the target has exactly the source's data. Returns the number of compared fields and members.
    async fn compare(&self, source: &SourceState) -> Result<u64, MigrationError> {
        let mut compared = self.transfer(Purpose::Compare).await?;
        compared.compare_back().await?;
        for subject in compared.other_subjects().await? {
            compared.differs(&subject);
        }
        if compared.differences > 0 {
            let named = compared.differing.join(", ");
            return Err(MigrationError::Differs { count: compared.differences, named });
        }
        for stream in self.streams().await? {
            let count = self.compare_stream(stream, source).await?.differences();
            if count > 0 {
                return Err(MigrationError::Differs { count, named: format!("entries of {stream}") });
            }
        }
        Ok(compared.elements)
    }

    async fn compare_stream(
        &self,
        stream: CopiedStream,
        source: &SourceState,
    ) -> Result<EntryComparison, MigrationError> {
        let redis = MigrationError::redis(format!("compare entries of {stream}"));
        let mut comparison = EntryComparison::new(stream, self.to);
        for (partition, counted) in self.from.iter().zip(&source.counted) {
            comparison.take_source(partition, stream.begin(*counted), self.to).await.map_err(&redis)?;
        }
        comparison.take_target(self.to).await.map_err(&redis)?;
        Ok(comparison)
    }

    /// Writes totals and checkpoints, with the marks last.
    async fn complete(&self, source: &SourceState) -> Result<(), MigrationError> {
        let mut whole = Totals::default();
        for Partition { client, keys } in self.from.iter() {
            whole.add(&totals(client, keys).await?);
        }
        // Each partition gets the pending and the replayable deliveries of its subjects. The owners of ended deliveries
        // are unknown, so the first partition gets those and all counts.
        for Partition { client, keys } in self.to.iter().skip(1) {
            let Totals { pending, dead_kept, .. } = totals(client, keys).await?;
            let paused_ms = whole.paused_ms;
            let own = Totals { made: pending + dead_kept, dead: dead_kept, paused_ms, ..Totals::default() };
            whole.made = whole.made.saturating_sub(own.made);
            whole.dead = whole.dead.saturating_sub(own.dead);
            write_totals(client, keys, &own).await?;
        }
        let Partition { client, keys } = self.to.first();
        write_totals(client, keys, &whole).await?;
        let counted = source.last_counted();
        for Partition { client, keys } in self.to.iter() {
            let mut set = redis::cmd("HSET");
            set.arg(keys.checkpoint()).arg("format").arg(FORMAT).arg("partitions").arg(self.to.count());
            set.arg("instance").arg(&source.instance).arg("fingerprint").arg(&source.fingerprint);
            if counted != StreamId::ZERO {
                set.arg("id").arg(counted.to_string()).arg("entries_read").arg(0);
            }
            set.arg("migration").arg(source.mark_of_complete());
            client.query::<()>(&set).await.map_err(MigrationError::redis("write the checkpoint"))?;
        }
        Ok(())
    }
}

async fn write_totals(client: &RedisClient, keys: &Keys, totals: &Totals) -> Result<(), MigrationError> {
    let mut set = redis::cmd("HSET");
    set.arg(keys.totals());
    for (name, count) in totals.counts() {
        set.arg(name).arg(count);
    }
    client.query(&set).await.map_err(MigrationError::redis(format!("write {}", keys.totals())))
}
