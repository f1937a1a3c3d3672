//! The binary, the data folder and the process of the embedded server. Read next: [`embedded`](super::embedded), which
//! decides.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, PipeReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use redis::RedisResult;
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::client::RedisClient;
use super::embedded_error::EmbeddedError;
use super::embedded_listener::LOOK_EVERY;
use super::embedded_password::close_to_others;
use super::node::RedisNode;
use super::server::ServerInfo;

/// Names of the binary, the first found is taken.
const BINARIES: [&str; 2] = ["redis-server", "valkey-server"];
/// Where the server writes its log, in the data folder.
const LOG: &str = "redis.log";
/// Where we note which server is ours, in the data folder.
const RECORD: &str = "embedded.json";
/// What Redis and Valkey call a snapshot, and the list of the files that make up the append-only one.
const SNAPSHOT: &str = "dump.rdb";
const MANIFEST: &str = "appendonlydir/appendonly.aof.manifest";
/// How much of the log's end is looked at for an error message, and how many lines of it are shown.
const TAIL_BYTES: u64 = 4096;
const TAIL_LINES: usize = 3;

/// Which server is ours, as the data folder remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServerRecord {
    pub(super) pid: u32,
    pub(super) port: u16,
    /// Known once it has answered.
    pub(super) run_id: Option<String>,
}

impl ServerRecord {
    /// The record in the folder; `None` where there is none, or one that a crash left half-written.
    pub(super) fn read(data_dir: &Path) -> Result<Option<Self>, EmbeddedError> {
        let path = data_dir.join(RECORD);
        match fs::read(&path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(EmbeddedError::DataDir { path, source }),
        }
    }

    /// Replaces the record in one step.
    pub(super) fn write(&self, data_dir: &Path) -> Result<(), EmbeddedError> {
        let path = data_dir.join(RECORD);
        let new = path.with_extension("new");
        let written = serde_json::to_vec(self).map_err(io::Error::from).and_then(|json| {
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&json)?;
            fs::rename(&new, &path)
        });
        written.map_err(|source| EmbeddedError::DataDir { path, source })
    }

    /// Forgets the server.
    pub(super) fn remove(data_dir: &Path) -> Result<(), EmbeddedError> {
        let path = data_dir.join(RECORD);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(EmbeddedError::DataDir { path, source }),
            _ => Ok(()),
        }
    }

    /// Whether the server that says this of itself is the one of the record. The process id decides only where a daemon
    /// was killed before the server had told its run id.
    pub(super) fn is_of(&self, info: &ServerInfo) -> bool {
        match &self.run_id {
            Some(run_id) => *run_id == info.run_id,
            None => self.pid == info.process_id,
        }
    }
}

/// Creates the folder if it is missing, for its owner only, closes it to others, and returns its full path.
pub(super) fn prepare(data_dir: &Path) -> Result<PathBuf, EmbeddedError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
    let folder = made
        .and_then(|()| data_dir.canonicalize())
        .map_err(|source| EmbeddedError::DataDir { path: data_dir.to_path_buf(), source })?;
    close_to_others(&folder);
    Ok(folder)
}

/// The first binary in the folders of `search`, Redis before Valkey.
pub(super) fn find(search: &OsStr) -> Option<PathBuf> {
    let runs =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    BINARIES.iter().find_map(|name| std::env::split_paths(search).map(|folder| folder.join(name)).find(runs))
}

/// Whether the folder holds an append-only file.
pub(super) fn has_file(data_dir: &Path) -> bool {
    data_dir.join(MANIFEST).exists()
}

/// Whether the server has to load a snapshot: the folder holds one and no append-only file, as after a restore. A
/// server that keeps an append-only file ignores the snapshot and would start empty.
fn loads_snapshot(data_dir: &Path) -> bool {
    match (data_dir.join(SNAPSHOT), has_file(data_dir)) {
        (snapshot, _) if !snapshot.exists() => false,
        (_, false) => true,
        (snapshot, true) => {
            tracing::info!(
                snapshot = %snapshot.display(),
                "the embedded redis loads its append-only file and ignores the snapshot: remove appendonlydir to restore it"
            );
            false
        }
    }
}

/// Starts the server in the folder, without an append-only file if it has to load a snapshot. It is not ended when the
/// handle is dropped.
pub(super) fn spawn(binary: &Path, port: u16, password: &str, data_dir: &Path) -> Result<Child, EmbeddedError> {
    let append_only = if loads_snapshot(data_dir) { "no" } else { "yes" };
    // Paths are relative to the folder, because Redis takes its arguments for lines of a configuration file, where a
    // space or a quote in a path would need escaping.
    let spawned = |stdin: PipeReader| {
        Command::new(binary)
            // "-": the password comes by stdin, because every user can read the arguments of a process.
            .args(["-", "--port", &port.to_string(), "--bind", "127.0.0.1", "--dir", ".", "--logfile", LOG])
            .args(["--appendonly", append_only, "--appendfsync", "everysec", "--save", ""])
            .args(["--maxmemory-policy", "noeviction", "--daemonize", "no"])
            .current_dir(data_dir)
            .process_group(0)
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    };
    io::pipe()
        .and_then(|(reader, mut writer)| {
            // A pipe holds that much before anybody reads. The server reads until the writer is closed.
            writer.write_all(format!("requirepass \"{password}\"\n").as_bytes())?;
            drop(writer);
            spawned(reader)
        })
        .map_err(|source| EmbeddedError::Start { binary: binary.to_path_buf(), source })
}

/// Fails when the process has ended, with the end of its log.
pub(super) fn still_running(child: &mut Child, data_dir: &Path) -> Result<(), EmbeddedError> {
    match child.try_wait() {
        Ok(Some(status)) => {
            let log = log_of(data_dir);
            let log_end = tail(&log).unwrap_or_else(|_| "nothing".to_owned());
            Err(EmbeddedError::Ended { status, log, log_end })
        }
        // What can't be looked at is taken to run; the wait is bounded by its silence.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// How far the server is with writing its append-only file anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RewriteState {
    /// It was not asked to since it was started.
    Idle,
    /// It is writing, or about to.
    Running,
    /// It has.
    Written,
    /// It could not.
    Failed,
}

impl RewriteState {
    /// The state by `INFO persistence`. The first file of all is tried again without an end: it has failed when it has
    /// failed once.
    fn from_info(info: &str, is_first: bool) -> Self {
        let says = |what: &str| info.lines().any(|line| line == what);
        if is_first && says("aof_last_bgrewrite_status:err") {
            return Self::Failed;
        }
        if !says("aof_rewrite_in_progress:0") || !says("aof_rewrite_scheduled:0") {
            return Self::Running;
        }
        match says("aof_last_bgrewrite_status:ok") {
            _ if says("aof_last_rewrite_time_sec:-1") => Self::Idle,
            true => Self::Written,
            false => Self::Failed,
        }
    }
}

/// Has the server write its append-only file anew, unless it has done so since it was started. Says whether it could,
/// once it has ended trying.
pub(super) async fn file_written(node: &RedisNode, is_first: bool) -> RedisResult<bool> {
    let client = RedisClient::new(node.client()?);
    let mut is_asked = false;
    loop {
        let info: String = client.query(redis::cmd("INFO").arg("persistence")).await?;
        match RewriteState::from_info(&info, is_first) {
            RewriteState::Idle if !std::mem::replace(&mut is_asked, true) => {
                client.query::<redis::Value>(&redis::cmd("BGREWRITEAOF")).await?;
            }
            RewriteState::Idle | RewriteState::Running => {}
            RewriteState::Written => return Ok(true),
            RewriteState::Failed => return Ok(false),
        }
        sleep(LOOK_EVERY).await;
    }
}

/// The server's log.
pub(super) fn log_of(data_dir: &Path) -> PathBuf {
    data_dir.join(LOG)
}

/// The last lines of the log, on one line.
fn tail(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut end = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut end)?;
    let text = String::from_utf8_lossy(&end);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    Ok(lines[lines.len().saturating_sub(TAIL_LINES)..].join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder on PATH may hold a file of that name that is no program, and most folders hold none.
    #[test]
    fn the_first_program_on_the_path_is_found() {
        let folders: Vec<_> = (0..4).map(|_| tempfile::tempdir().expect("a folder")).collect();
        let file = |folder: usize, name: &str, mode| {
            let path = folders[folder].path().join(name);
            fs::write(&path, "").expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
            path
        };
        let search = std::env::join_paths(folders.iter().map(tempfile::TempDir::path)).expect("a path");
        assert_eq!(find(&search), None);
        let valkey = file(1, "valkey-server", 0o755);
        file(2, "redis-server", 0o644);
        assert_eq!(find(&search), Some(valkey));
        let redis = file(3, "redis-server", 0o755);
        assert_eq!(find(&search), Some(redis));
        assert_eq!(find(OsStr::new("")), None);
    }

    /// The first file after a snapshot could not be written: Redis tries again and again, and all that it counts
    /// meanwhile is lost with its process.
    #[test]
    fn a_first_file_that_fails_is_known() {
        use RewriteState::{Failed, Idle, Running, Written};
        for (progress, scheduled, seconds, status, file, first) in [
            (1, 0, -1, "ok", Running, Running),
            (0, 1, -1, "ok", Running, Running),
            (0, 0, -1, "ok", Idle, Idle),
            (0, 0, 2, "ok", Written, Written),
            (0, 0, 2, "err", Failed, Failed),
            (0, 1, 2, "err", Running, Failed),
            (1, 0, 2, "err", Running, Failed),
        ] {
            let info = format!(
                "aof_rewrite_in_progress:{progress}\r\naof_rewrite_scheduled:{scheduled}\r\n\
                 aof_last_rewrite_time_sec:{seconds}\r\naof_last_bgrewrite_status:{status}\r\n"
            );
            assert_eq!([false, true].map(|is_first| RewriteState::from_info(&info, is_first)), [file, first], "{info}");
        }
    }

    /// A record that a full disk cut short must not keep the daemon from starting.
    #[test]
    fn a_record_is_read_back_and_a_broken_one_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let record = ServerRecord { pid: 1, port: 2, run_id: Some("abc".to_owned()) };
        assert_eq!(ServerRecord::read(folder.path()).expect("readable"), None);
        record.write(folder.path()).expect("writable");
        assert_eq!(ServerRecord::read(folder.path()).expect("readable"), Some(record));
        fs::write(folder.path().join(RECORD), "{\"pid\":").expect("a file");
        assert_eq!(ServerRecord::read(folder.path()).expect("readable"), None);
        ServerRecord::remove(folder.path()).expect("removable");
        ServerRecord::remove(folder.path()).expect("nothing to remove");
    }
}
