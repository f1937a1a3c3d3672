//! Events for daemons that follow each other on one server: appends them, and waits until they are counted.

use std::time::{Duration, Instant};

use quotabell::types::Keys;
use redis::Connection;

use crate::load::STREAM;

/// Entries per pipeline.
pub const AT_ONCE: usize = 1000;
const WAIT_MAX: Duration = Duration::from_secs(1_800);

/// Appends events of the default metric: subjects and units.
pub fn append(connection: &mut Connection, events: impl Iterator<Item = (String, u64)>) -> anyhow::Result<()> {
    let events: Vec<(String, u64)> = events.collect();
    for part in events.chunks(AT_ONCE) {
        let mut pipeline = redis::pipe();
        for (subject, units) in part {
            let event = pipeline.cmd("XADD").arg(STREAM).arg("*").arg("subject").arg(subject);
            event.arg("units").arg(units).ignore();
        }
        let () = pipeline.query(connection)?;
    }
    Ok(())
}

/// Removes the lease of a killed daemon, for which the next one would wait.
pub fn remove_lease(connection: &mut Connection) -> anyhow::Result<()> {
    Ok(redis::cmd("DEL").arg(Keys::new(STREAM).lease()).query(connection)?)
}

/// Waits until everything that was appended is counted.
pub fn wait_until_counted(connection: &mut Connection) -> anyhow::Result<()> {
    let checkpoint = Keys::new(STREAM).checkpoint();
    wait_for(connection, |connection| {
        type Entries = Vec<(String, Vec<String>)>;
        let last: Entries =
            redis::cmd("XREVRANGE").arg(STREAM).arg("+").arg("-").arg("COUNT").arg(1).query(connection)?;
        let counted: Option<String> = redis::cmd("HGET").arg(&checkpoint).arg("id").query(connection)?;
        Ok(last.first().is_none_or(|(last, _)| counted.as_deref() == Some(last)))
    })
}

/// Waits until the condition holds, at most half an hour.
pub fn wait_for(
    connection: &mut Connection,
    is_done: impl Fn(&mut Connection) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    while !is_done(connection)? {
        anyhow::ensure!(began.elapsed() < WAIT_MAX, "not done after {WAIT_MAX:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
