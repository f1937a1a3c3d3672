//! The server that the daemon starts itself, for `redis.url = "embedded"`.
//!
//! The server survives a daemon that is killed, and the next daemon adopts it, so that events of producers are not lost
//! meanwhile. Therefore it has its own process group (Ctrl-C in a terminal does not reach it) and survives the drop of
//! its handle; only [`EmbeddedServer::stop`] ends it. The run id in the data folder, never the port alone, decides
//! whether a listener is our server. Read next: `launch`, which finds and starts the binary.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::process::Child;
use tokio::time::{sleep, timeout};

use super::client::RedisClient;
use super::config::RedisConfig;
pub use super::embedded_error::EmbeddedError;
use super::embedded_error::{ANSWER_TIMEOUT, STOP_TIMEOUT};
use super::embedded_listener::{LOOK_EVERY, Listener, listener};
use super::embedded_password::{self, password_file};
use super::error_kind::{ErrorKind, error_kind};
use super::file_lock::FileLock;
use super::launch::{self, ServerRecord};
use super::node::RedisNode;
use super::raw::{RawConnection, ReadError};
use super::server::{ServerInfo, ServerReadiness, inspect};

/// Interval between two checks of a running adopted server.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Maximum time to wait for the rewrite of the append-only file.
const REWRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// How the daemon got the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EmbeddedStart {
    /// The daemon started it.
    Started,
    /// It was still running.
    Adopted,
}

/// The embedded server, running. Dropping it leaves the server running.
#[derive(Debug)]
pub struct EmbeddedServer {
    started: EmbeddedStart,
    info: ServerInfo,
    port: u16,
    /// Its address and password.
    node: RedisNode,
    data_dir: PathBuf,
    /// Only for a server that this process started: [`Self::stop`] waits for its end.
    child: Option<Child>,
    /// While this lock exists, no other daemon stops the server.
    in_use: FileLock,
}

/// What [`EmbeddedServer::stop`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopOutcome {
    /// It has ended.
    Stopped,
    /// It still runs: another daemon uses it.
    StillInUse,
}

impl EmbeddedServer {
    /// Ensures that the server of `config.data_dir` runs on `config.embedded_port` and has loaded its data: adopts a
    /// running server, or starts one with the binary found on `PATH`. Creates the folder, readable by its owner only.
    ///
    /// Waits as long as a large file takes to load.
    ///
    /// # Errors
    ///
    /// See [`EmbeddedError`]. After an error no server that this call started is left running, except one that has
    /// loaded its data and can't store it: that server may already have taken events.
    pub async fn ensure(config: &RedisConfig) -> Result<Self, EmbeddedError> {
        Self::ensure_from(config, &std::env::var_os("PATH").unwrap_or_default()).await
    }

    /// Like [`Self::ensure`], with another list of folders for the binary, separated as in `PATH`.
    ///
    /// # Errors
    ///
    /// Like [`Self::ensure`].
    pub async fn ensure_from(config: &RedisConfig, search: &OsStr) -> Result<Self, EmbeddedError> {
        let port = config.embedded_port;
        let (data_dir, node) = Self::prepare(config)?;
        let in_use = FileLock::in_use(&data_dir).await?;
        let starting = FileLock::starting(&data_dir).await?;
        let record = ServerRecord::read(&data_dir)?;
        match listener(&node).await? {
            Listener::Nobody => {}
            Listener::Server(info) if record.as_ref().is_some_and(|record| record.is_of(&info)) => {
                let adopted =
                    Self { started: EmbeddedStart::Adopted, info: *info, port, node, data_dir, child: None, in_use };
                let mut adopted = adopted.loaded().await?;
                adopted.configure().await?;
                // The process that started it may have been killed before it wrote the file.
                drop(starting);
                adopted.rewrite_file().await?;
                return Ok(adopted);
            }
            Listener::Server(_) | Listener::Unknown => return Err(EmbeddedError::Foreign { port, data_dir }),
        }
        if let Some(record) = record.filter(|record| record.port != port)
            && let Listener::Server(info) =
                listener(&RedisNode { login: node.login.clone(), ..RedisNode::local(record.port) }).await?
            && record.is_of(&info)
        {
            return Err(EmbeddedError::OtherPort { data_dir, running: record.port, wanted: port });
        }
        let binary = launch::find(search).ok_or(EmbeddedError::NoBinary)?;
        let started = start(&binary, port, node, data_dir, in_use).await?;
        drop(starting);
        let mut started = started.loaded().await?;
        started.configure().await?;
        started.rewrite_file().await?;
        Ok(started)
    }

    /// Creates the data folder and the password if they are missing, and returns them. A daemon calls this before it
    /// builds clients, because clients read the password. Starts nothing.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError::DataDir`]
    pub fn prepare(config: &RedisConfig) -> Result<(PathBuf, RedisNode), EmbeddedError> {
        let data_dir = launch::prepare(&config.data_dir)?;
        let password = embedded_password::ensure(&data_dir)
            .map_err(|source| EmbeddedError::DataDir { path: password_file(&data_dir), source })?;
        let node = embedded_password::node(config.embedded_port, &data_dir, Some(password));
        Ok((data_dir, node))
    }

    /// The program that [`Self::ensure`] would start; `None` if `PATH` has none.
    pub fn binary() -> Option<PathBuf> {
        launch::find(&std::env::var_os("PATH").unwrap_or_default())
    }

    /// Whether it was started or adopted.
    pub const fn started(&self) -> EmbeddedStart {
        self.started
    }

    /// Its process id.
    pub const fn pid(&self) -> u32 {
        self.info.process_id
    }

    /// The port, on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its address and password.
    pub const fn node(&self) -> &RedisNode {
        &self.node
    }

    /// The server's description of itself.
    pub const fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// The folder that holds its data and its log.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Stops the server and waits until its process has ended, unless another daemon uses it. The append-only file is
    /// then complete. Does nothing if the server has already ended, even if another process listens on its port.
    ///
    /// # Errors
    ///
    /// The server refused, or did not end in time; it then still runs, and the next daemon adopts it.
    pub async fn stop(mut self) -> Result<StopOutcome, EmbeddedError> {
        if !self.in_use.is_last() {
            return Ok(StopOutcome::StillInUse);
        }
        let pid = self.pid();
        if self.runs().await? {
            timeout(STOP_TIMEOUT, shut_down(&self.node))
                .await
                .map_err(|_| EmbeddedError::StillRunning { pid })?
                .map_err(|source| EmbeddedError::Stop { pid, source })?;
        }
        if let Some(child) = &mut self.child {
            let ended = timeout(STOP_TIMEOUT, child.wait()).await.map_err(|_| EmbeddedError::StillRunning { pid })?;
            ended.map_err(|error| EmbeddedError::Stop { pid, source: ReadError::Io(error) })?;
        }
        if ServerRecord::read(&self.data_dir)?.is_some_and(|record| record.is_of(&self.info)) {
            ServerRecord::remove(&self.data_dir)?;
        }
        Ok(StopOutcome::Stopped)
    }

    /// Waits until the server ends for any reason. Safe to cancel at any time.
    pub async fn ended(&mut self) {
        if let Some(child) = &mut self.child {
            // If the process can't be waited for, look at it instead.
            if child.wait().await.is_ok() {
                return;
            }
        }
        while self.runs().await.unwrap_or(true) {
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Whether the server that answers on the port is still this one.
    async fn runs(&mut self) -> Result<bool, EmbeddedError> {
        if let Some(child) = &mut self.child {
            return Ok(matches!(child.try_wait(), Ok(None)));
        }
        match listener(&self.node).await? {
            Listener::Nobody => Ok(false),
            Listener::Server(info) => Ok(info.run_id == self.info.run_id),
            Listener::Unknown => Err(EmbeddedError::StillRunning { pid: self.pid() }),
        }
    }

    /// Waits until the data is loaded. There is no time limit while the server reports that it is loading.
    async fn loaded(mut self) -> Result<Self, EmbeddedError> {
        let client = RedisClient::new(self.node.client()?);
        let mut last_answer = Instant::now();
        loop {
            match inspect(&client).await {
                Ok(info) if info.run_id == self.info.run_id => {
                    last_answer = Instant::now();
                    self.info = info;
                    if self.info.readiness() != ServerReadiness::Loading && ping(&client).await {
                        return Ok(self);
                    }
                }
                // Another server answers on the port: ours has ended.
                Ok(_) => return Err(EmbeddedError::Foreign { port: self.port, data_dir: self.data_dir }),
                Err(_) => {}
            }
            if let Some(child) = &mut self.child {
                launch::still_running(child, &self.data_dir)?;
            }
            if last_answer.elapsed() > ANSWER_TIMEOUT {
                self.kill_unanswering().await;
                return Err(EmbeddedError::Silent { port: self.port, log: launch::log_of(&self.data_dir) });
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Makes the server require the password and write an append-only file. A server started by an older version lacks
    /// the password; a server that has loaded a snapshot lacks the file.
    async fn configure(&mut self) -> Result<(), EmbeddedError> {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("requirepass").arg(password_of(&self.node)).arg("appendonly").arg("yes");
        let client = RedisClient::new(self.node.client()?);
        client.query::<()>(&command).await.map_err(|source| EmbeddedError::Configure { source })?;
        if !std::mem::replace(&mut self.info.aof_enabled, true) {
            tracing::info!(data = %self.data_dir.display(), "the embedded redis loaded a snapshot and now writes an append-only file");
        }
        Ok(())
    }

    /// Makes the server rewrite its append-only file, unless it has done so since its start. Waits at most
    /// [`REWRITE_TIMEOUT`], because a large file takes long and is nearly always intact meanwhile.
    ///
    /// If the file ended inside a transaction, the server has cut it off behind the last whole command, and the
    /// beginning of the transaction is still there. Everything appended then belongs to that transaction at the next
    /// start: the server drops it if the file is torn again, and restores it if a later transaction ends it.
    ///
    /// # Errors
    ///
    /// The server has loaded a snapshot and has no file for it yet. Without the file all counts would be lost with the
    /// process, so this case waits without a time limit.
    async fn rewrite_file(&self) -> Result<(), EmbeddedError> {
        let is_first = !launch::has_file(&self.data_dir);
        let mut written = std::pin::pin!(launch::file_written(&self.node, is_first));
        let log = launch::log_of(&self.data_dir);
        loop {
            match timeout(REWRITE_TIMEOUT, &mut written).await {
                Ok(Ok(true)) => tracing::debug!("the embedded server rewrote its append-only file"),
                Ok(Ok(false)) if is_first => return Err(EmbeddedError::NoFile { log }),
                Ok(Err(source)) if is_first => return Err(EmbeddedError::Configure { source }),
                Err(_) if is_first => {
                    tracing::warn!(log = %log.display(), "the embedded server is still writing its first append-only file: waiting for it");
                    continue;
                }
                Ok(Ok(false)) => {
                    tracing::warn!(log = %log.display(), "the embedded server could not rewrite its append-only file")
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the daemon could not ask the embedded server to rewrite its append-only file");
                }
                Err(_) => {
                    tracing::warn!(timeout = ?REWRITE_TIMEOUT, "the embedded server is still rewriting its append-only file: starting meanwhile")
                }
            }
            return Ok(());
        }
    }

    /// Kills a server that this process started and that never answered.
    async fn kill_unanswering(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill().await;
        }
    }
}

/// Starts the server and waits until it answers, even if it is still loading.
async fn start(
    binary: &Path,
    port: u16,
    node: RedisNode,
    data_dir: PathBuf,
    in_use: FileLock,
) -> Result<EmbeddedServer, EmbeddedError> {
    let mut child = launch::spawn(binary, port, &password_of(&node), &data_dir)?;
    let pid = child.id().unwrap_or_default();
    // Written before the server answers: if the daemon is killed from here on, the next daemon knows the server.
    let mut record = ServerRecord { pid, port, run_id: None };
    let started = async {
        record.write(&data_dir)?;
        let begun = Instant::now();
        loop {
            // A server that answers on the port is ours only if it is the process that we started.
            if let Listener::Server(info) = listener(&node).await?
                && info.process_id == pid
            {
                record.run_id = Some(info.run_id.clone());
                record.write(&data_dir)?;
                return Ok(info);
            }
            launch::still_running(&mut child, &data_dir)?;
            if begun.elapsed() > ANSWER_TIMEOUT {
                return Err(EmbeddedError::Silent { port, log: launch::log_of(&data_dir) });
            }
            sleep(LOOK_EVERY).await;
        }
    };
    match started.await {
        Ok(info) => Ok(EmbeddedServer {
            started: EmbeddedStart::Started,
            info: *info,
            port,
            node,
            data_dir,
            child: Some(child),
            in_use,
        }),
        Err(error) => {
            let _ = child.kill().await;
            let _ = ServerRecord::remove(&data_dir);
            Err(error)
        }
    }
}

fn password_of(node: &RedisNode) -> String {
    node.login.current().map_or_else(String::new, |login| login.password)
}

/// Asks the server to stop and waits for the end of its process.
async fn shut_down(node: &RedisNode) -> Result<(), ReadError> {
    let mut connection = match RawConnection::connect(node, None).await {
        // Another process has already stopped it.
        Err(ReadError::Connect { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
        connected => connected?,
    };
    // NOSAVE skips the snapshot; the server still flushes the append-only file. The reply is the end of the connection,
    // which the system closes when the process ends.
    match connection.ask("SHUTDOWN", &[b"SHUTDOWN", b"NOSAVE"]).await {
        Err(ReadError::Closed | ReadError::Io(_)) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn ping(client: &RedisClient) -> bool {
    match client.query::<String>(&redis::cmd("PING")).await {
        Ok(_) => true,
        // It answers; the callers judge what it lacks.
        Err(error) => !matches!(error_kind(&error), ErrorKind::Unreachable | ErrorKind::NotReady),
    }
}
