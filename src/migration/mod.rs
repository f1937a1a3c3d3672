//! Copies everything that is stored to another deployment, perhaps with another number of partitions, while no daemon
//! runs.
//!
//! May be interrupted and run again: what was written is written again, and entries of streams are appended once. Both
//! deployments are marked, so that no daemon starts on one that is half copied, or on one that everything has left.
//! Read next: [`source`], how keys are divided among partitions; [`target`], how they are written and compared;
//! [`append`] and [`compare`], the streams.

mod append;
mod compare;
mod error;
mod key_chunk;
mod source;
mod target;

use redis::RedisResult;

use crate::ledger::commit_settings::FORMAT;
use crate::outbox::{Totals, totals};
use crate::types::{KeyFamily, Keys, StreamId, keys};
use crate::wire::{Partition, Partitions, RedisClient, Scan};

pub use error::MigrationError;

use append::CopiedStream;
use compare::EntryComparison;
use source::Source;
use target::{Purpose, Target};

/// What the checkpoint's field `migration` begins with while a deployment is being copied to.
pub const COPYING: &str = "copying";
/// What it begins with afterwards.
const DONE: &str = "done";

/// The field of the source's checkpoint that says where everything has gone.
const MOVED_TO: &str = "moved_to";

/// From where to where.
#[derive(Debug)]
pub struct Migration<'a> {
    /// What is copied.
    pub from: &'a Partitions,
    /// Where to.
    pub to: &'a Partitions,
    /// The same as people read it.
    pub to_shown: &'a str,
}

/// What was copied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationSummary {
    /// Counters, flags, records, deliveries and whatever else lies in keys: fields and members, that were compared.
    pub elements: u64,
    /// Entries of streams that were appended by this run: events that nobody had counted, alerts on their way, refused
    /// events.
    pub entries: u64,
}

/// What the checkpoints of the source say together.
#[derive(Debug)]
struct SourceState {
    instance: String,
    fingerprint: String,
    /// Of each partition, up to where events are counted.
    counted: Vec<StreamId>,
}

/// How far the target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetState {
    /// Nothing is there, or a part of this source.
    ToBeCopied,
    /// Everything is there: only events that reached the source afterwards are not.
    Done,
}

impl Migration<'_> {
    /// Copies, compares, and puts the target into effect; `say` is told of each step. Where that was done before, only
    /// events are copied that reached the source since: then a daemon may run at the target.
    ///
    /// # Errors
    ///
    /// [`MigrationError`]. The source is as it was but for a mark that keeps daemons from starting there.
    pub async fn run(&self, mut say: impl FnMut(&str)) -> Result<MigrationSummary, MigrationError> {
        let state = self.source_state().await?;
        self.ensure_not_moved().await?;
        ensure_no_daemon(self.from).await?;
        let mut migrated = MigrationSummary::default();
        if self.target_state(&state).await? == TargetState::Done {
            say("everything was copied before: copying events that came since");
            migrated.entries = self.copy_stream(CopiedStream::Usage, &state).await?;
            return Ok(migrated);
        }
        ensure_no_daemon(self.to).await?;
        self.begin(&state).await?;
        say("copying the settings of subjects, counters, flags, records and deliveries");
        self.transfer(Purpose::Copy).await?;
        say("copying entries of streams");
        for stream in CopiedStream::ALL {
            migrated.entries += self.copy_stream(stream, &state).await?;
        }
        say("comparing");
        let mut compared = self.transfer(Purpose::Compare).await?;
        compared.compare_sizes().await?;
        migrated.elements = compared.elements;
        if compared.differences > 0 {
            let named = compared.differing.join(", ");
            return Err(MigrationError::Differs { count: compared.differences, named });
        }
        self.compare_streams(&state).await?;
        self.complete(&state).await?;
        Ok(migrated)
    }

    async fn source_state(&self) -> Result<SourceState, MigrationError> {
        let mut state = SourceState { instance: String::new(), fingerprint: String::new(), counted: Vec::new() };
        for Partition { client, keys } in self.from.iter() {
            let checkpoint = keys.checkpoint();
            let mut read = redis::cmd("HMGET");
            read.arg(&checkpoint).arg(&["id", "format", "instance", "fingerprint"]);
            type Stored = (Option<String>, Option<String>, Option<String>, Option<String>);
            let read: RedisResult<Stored> = client.query(&read).await;
            let (id, format, instance, fingerprint) =
                read.map_err(MigrationError::redis(format!("read {checkpoint}")))?;
            if let Some(format) = format.filter(|format| format != FORMAT) {
                return Err(MigrationError::Format { checkpoint, format });
            }
            state.instance = instance.unwrap_or(state.instance);
            state.fingerprint = fingerprint.unwrap_or(state.fingerprint);
            state.counted.push(id.and_then(|id| id.parse().ok()).unwrap_or(StreamId::ZERO));
        }
        if state.instance.is_empty() {
            return Err(MigrationError::NothingStored(self.from.first().keys.checkpoint()));
        }
        Ok(state)
    }

    /// Two targets of one source would both send its alerts, under the same ids.
    async fn ensure_not_moved(&self) -> Result<(), MigrationError> {
        let here = self.moved_to();
        for Partition { client, keys } in self.from.iter() {
            let checkpoint = keys.checkpoint();
            let read = redis::cmd("HGET").arg(&checkpoint).arg(MOVED_TO).to_owned();
            let moved_to: RedisResult<Option<String>> = client.query(&read).await;
            let moved_to = moved_to.map_err(MigrationError::redis(format!("read {checkpoint}")))?;
            if let Some(moved_to) = moved_to.filter(|moved_to| *moved_to != here) {
                return Err(MigrationError::MovedElsewhere { checkpoint, moved_to });
            }
        }
        Ok(())
    }

    /// The mark of the source: under another number of partitions the target would be another deployment.
    fn moved_to(&self) -> String {
        format!("{} with stream.partitions = {}", self.to_shown, self.to.count())
    }

    async fn target_state(&self, source: &SourceState) -> Result<TargetState, MigrationError> {
        let of_source = |state: &str| state.split_once(' ').is_some_and(|(_, instance)| instance == source.instance);
        let (mut is_done, mut is_begun) = (true, false);
        for Partition { client, keys } in self.to.iter() {
            let checkpoint = keys.checkpoint();
            let redis = MigrationError::redis(format!("look whether {checkpoint} is at the target"));
            let read = redis::cmd("HGET").arg(&checkpoint).arg("migration").to_owned();
            let state: Option<String> = client.query(&read).await.map_err(&redis)?;
            match state {
                Some(state) if of_source(&state) => (is_done, is_begun) = (is_done && state.starts_with(DONE), true),
                Some(_) => return Err(MigrationError::NotEmpty(checkpoint)),
                None => {
                    is_done = false;
                    if let Some(key) = any_key(client, keys).await.map_err(&redis)? {
                        return Err(MigrationError::NotEmpty(key));
                    }
                }
            }
        }
        if !is_begun {
            source::ensure_no_other_subjects(self.from.first(), self.to.first()).await?;
        }
        Ok(if is_done { TargetState::Done } else { TargetState::ToBeCopied })
    }

    /// Marks both deployments, and lets the streams of the target begin behind what was counted.
    async fn begin(&self, source: &SourceState) -> Result<(), MigrationError> {
        set_in_checkpoints(self.to, "migration", &format!("{COPYING} {}", source.instance), "mark the target").await?;
        set_in_checkpoints(self.from, MOVED_TO, &self.moved_to(), "mark the source").await?;
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

    /// Whether the target has the events that nobody had counted, the alerts on their way and the refused events.
    async fn compare_streams(&self, source: &SourceState) -> Result<(), MigrationError> {
        for stream in CopiedStream::ALL {
            let redis = MigrationError::redis(format!("compare entries of {stream}"));
            let mut comparison = EntryComparison::new(stream, self.to);
            for (partition, counted) in self.from.iter().zip(&source.counted) {
                comparison.take_source(partition, stream.begin(*counted), self.to).await.map_err(&redis)?;
            }
            comparison.take_target(self.to).await.map_err(&redis)?;
            let count = comparison.differences();
            if count > 0 {
                return Err(MigrationError::Differs { count, named: format!("entries of {stream}") });
            }
        }
        Ok(())
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
            let own = Totals { made: pending + dead_kept, dead: dead_kept, ..Totals::default() };
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
            set.arg("migration").arg(format!("{DONE} {}", source.instance));
            client.query::<()>(&set).await.map_err(MigrationError::redis("write the checkpoint"))?;
        }
        Ok(())
    }
}

impl SourceState {
    /// The newest entry that any partition has counted. Entries of the target are newer.
    fn last_counted(&self) -> StreamId {
        self.counted.iter().copied().max().unwrap_or(StreamId::ZERO)
    }
}

async fn set_in_checkpoints(
    partitions: &Partitions,
    field: &str,
    value: &str,
    what: &str,
) -> Result<(), MigrationError> {
    for Partition { client, keys } in partitions.iter() {
        let set = redis::cmd("HSET").arg(keys.checkpoint()).arg(field).arg(value).to_owned();
        client.query::<()>(&set).await.map_err(MigrationError::redis(what))?;
    }
    Ok(())
}

async fn write_totals(client: &RedisClient, keys: &Keys, totals: &Totals) -> Result<(), MigrationError> {
    let mut set = redis::cmd("HSET");
    set.arg(keys.totals());
    for (name, count) in totals.counts() {
        set.arg(name).arg(count);
    }
    client.query(&set).await.map_err(MigrationError::redis(format!("write {}", keys.totals())))
}

/// A key of the partition that is there, but for the stream.
async fn any_key(client: &RedisClient, keys: &Keys) -> RedisResult<Option<String>> {
    let server = client.primary().await?;
    let mut scan = Scan::keys(keys.pattern());
    while let Some(found) = scan.next::<String>(&server).await? {
        if let Some(key) = found.into_iter().find(|key| KeyFamily::of(keys, key).is_some()) {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

async fn ensure_no_daemon(partitions: &Partitions) -> Result<(), MigrationError> {
    for Partition { client, keys } in partitions.iter() {
        let lease = keys.lease();
        let holder: RedisResult<Option<String>> = client.query(redis::cmd("GET").arg(&lease)).await;
        let redis = MigrationError::redis(format!("look whether a daemon holds {lease}"));
        if let Some(holder) = holder.map_err(redis)? {
            return Err(MigrationError::Daemon { lease, holder });
        }
    }
    Ok(())
}
