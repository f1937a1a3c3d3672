//! Stores in `redis.data_dir` which deployment a Redis holds, so that a daemon that starts on an emptied Redis waits
//! for the operator instead of starting a new deployment.
//!
//! No count, alert or delivery depends on the file: without it a daemon starts as on a new Redis. The daemon does not
//! create the folder for it, because a daemon with an external Redis may have no writable folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::events::stored_deployment;
use crate::redis_client::Partitions;
use crate::types::DeploymentId;

/// The file in the data folder.
const FILE: &str = "quotabell-deployments.json";
/// How often the daemon compares the record with Redis.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The record of one stream on one Redis.
#[derive(Debug, Clone)]
pub(super) struct DeploymentRecord {
    path: PathBuf,
    /// Address and stream, because several daemons may share the folder.
    place: String,
}

impl DeploymentRecord {
    /// The record of this stream on the Redis at this address, without its password.
    pub(super) fn new(data_dir: &Path, redis: &str, stream: &str) -> Self {
        Self { path: data_dir.join(FILE), place: format!("{redis} {stream}") }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The recorded deployment; `None` if there is no record.
    ///
    /// # Errors
    ///
    /// The file can't be read, or is damaged: it may have held a record.
    pub(super) fn read(&self) -> io::Result<Option<DeploymentId>> {
        Ok(self.all()?.remove(&self.place).map(|instance| DeploymentId::from_stored(&instance)))
    }

    /// Keeps the record up to date until stopped, with a last check at the end. If the file can't be written, logs that
    /// and stops.
    pub(super) async fn keep(self, partitions: Partitions, stop: CancellationToken) {
        loop {
            let is_last = stop.is_cancelled();
            if let Some(instance) = deployment_of(&partitions).await
                && let Err(error) = self.write(&instance)
            {
                tracing::info!(
                    path = %self.path.display(), %error,
                    "could not record the deployment: the next start may not notice an emptied Redis"
                );
                return stop.cancelled().await;
            }
            if is_last {
                return;
            }
            stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await;
        }
    }

    /// Writes the deployment, unless the record already has it. Never replaces an unreadable file, which may hold the
    /// records of other streams.
    fn write(&self, instance: &DeploymentId) -> io::Result<()> {
        let mut all = self.all()?;
        if all.insert(self.place.clone(), instance.as_str().to_owned()).as_deref() == Some(instance.as_str()) {
            return Ok(());
        }
        let new = self.path.with_extension(format!("new-{}", std::process::id()));
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&all)?)?;
        // Without this, a crash of the machine could leave an empty file.
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    fn all(&self) -> io::Result<BTreeMap<String, String>> {
        match fs::read(&self.path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }
}

/// The deployment that has counted in any partition.
async fn deployment_of(partitions: &Partitions) -> Option<DeploymentId> {
    for partition in partitions.iter() {
        if let Ok(Some(instance)) = stored_deployment(&partition.client, &partition.keys.checkpoint()).await {
            return Some(instance);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Daemons on different servers may share a folder: neither must wait because of the other's record.
    #[test]
    fn records_of_several_servers_lie_side_by_side() {
        let folder = tempfile::tempdir().expect("a folder");
        let records = ["redis://a", "redis://b"].map(|redis| DeploymentRecord::new(folder.path(), redis, "usage"));
        assert_eq!(records[0].read().expect("readable"), None);
        for (record, name) in records.iter().zip(["one", "other"]) {
            record.write(&DeploymentId::from_stored(name)).expect("written");
        }
        let read = records.map(|record| record.read().expect("readable").map(|name| name.as_str().to_owned()));
        assert_eq!(read, [Some("one".to_owned()), Some("other".to_owned())]);
    }

    /// If a file left empty by a crash counted as missing, the next write would remove the records of other streams.
    #[test]
    fn a_damaged_file_is_not_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let record = DeploymentRecord::new(folder.path(), "redis://a", "usage");
        for damaged in ["", "{\"redis://b usage\":\"oth"] {
            fs::write(record.path(), damaged).expect("written");
            assert!(record.read().is_err() && record.write(&DeploymentId::from_stored("one")).is_err());
            assert_eq!(fs::read_to_string(record.path()).expect("it is there"), damaged);
        }
    }
}
