//! Copies everything that is stored to another deployment, perhaps with another number of partitions, while no daemon
//! runs.
//!
//! May be interrupted and run again: what an earlier run copied is removed first, so that the target has what the
//! source has now, and events that nobody has counted are appended once. Both deployments are marked before anything is
//! copied. Scripts that count or send look at the marks (`moved_away` in `prelude.lua`), so a daemon that was paused or
//! cut off changes nothing either. Read next: [`marks`]; [`source`], how keys are divided among partitions; [`target`]
//! and [`surplus`], how they are written and compared; [`append`] and [`compare`], the streams; [`undo`].

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
    /// Counters, flags, records, deliveries and whatever else lies in keys: fields and members, that were compared.
    pub elements: u64,
    /// Entries of streams that were appended by this run: events that nobody had counted, alerts on their way, refused
    /// events.
    pub entries: u64,
}

impl Migration<'_> {
    /// Copies, compares, and puts the target into effect; `say` is told of each step. Where that was done before, only
    /// events are copied that reached the source since: then a daemon may run at the target.
    ///
    /// # Errors
    ///
    /// [`MigrationError`]. The source is as it was but for a mark that keeps daemons from working there;
    /// [`Self::undo`] takes it away.
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
        // A daemon that was paused may have committed up to the mark.
        let state = self.source_state().await?;
        in_flight::wait(self.from, &mut say).await?;
        self.ensure_counted_as_before(&state).await?;
        self.clear_copies().await?;
        self.begin_streams(&state).await?;
        say("copying the settings of subjects, counters, flags, records and deliveries");
        let copied = self.transfer(Purpose::Copy).await?;
        self.remove_other_subjects(&copied).await?;
        say("copying entries of streams");
        for stream in CopiedStream::ALL {
            migrated.entries += self.copy_stream(stream, &state).await?;
        }
        say("comparing");
        migrated.elements = self.compare(&state).await?;
        self.complete(&state).await?;
        Ok(migrated)
    }

    /// Lets the streams of the target begin behind what was counted.
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

    async fn copy_stream(&self, stream: CopiedStream, source: &SourceState) -> Result<u64, MigrationError> {
        let mut appended = 0;
        for (partition, counted) in self.from.iter().zip(&source.counted) {
            let copied = stream.copy(partition, stream.begin(*counted), self.to).await;
            appended +=
                copied.map_err(MigrationError::redis(format!("copy entries of {}", stream.key(&partition.keys))))?;
        }
        Ok(appended)
    }

    /// Whether the target has what the source has, and nothing else. Returns how many fields and members that are.
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
        for stream in CopiedStream::ALL {
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

    /// Writes totals and checkpoints, the marks last.
    async fn complete(&self, source: &SourceState) -> Result<(), MigrationError> {
        let mut whole = Totals::default();
        for Partition { client, keys } in self.from.iter() {
            whole.add(&totals(client, keys).await?);
        }
        // Each partition has those deliveries that may still end otherwise, by a replay too. Whose the others were is
        // not known any more: the first partition has them, with all that was counted.
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
