//! The server that the daemon starts by itself, for `redis.url = "embedded"`.
//!
//! It outlives a daemon that is killed, and the next one adopts it: usage events that producers append meanwhile are
//! not lost. So it has a process group of its own (Ctrl-C in a terminal does not reach it) and is not killed when its
//! handle is dropped; only [`EmbeddedServer::stop`] ends it. Whether a listener is ours is decided by the run id in the
//! data folder, never by the port alone. Read next: `launch`, which finds and starts the binary.

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

/// Between two looks at an adopted server that is up.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The longest wait for the append-only file to be written anew.
const REWRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// How a server came to be ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EmbeddedStart {
    /// It was started just now.
    Started,
    /// It was still running from before.
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
    /// Only of a server that this process started; to be waited for when it ends.
    child: Option<Child>,
    /// While it lives no other daemon stops the server.
    in_use: FileLock,
}

/// What [`EmbeddedServer::stop`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopOutcome {
    /// It has ended.
    Stopped,
    /// It goes on: another daemon uses it.
    StillInUse,
}

impl EmbeddedServer {
    /// Makes sure that the server of `config.data_dir` runs on `config.embedded_port` and has loaded its data: adopts
    /// it where it still runs, else starts it, with the binary found on `PATH`. Creates the folder, readable by its
    /// owner only.
    ///
    /// Waits as long as a large file takes to load.
    ///
    /// # Errors
    ///
    /// See [`EmbeddedError`]. No server is left behind that was started here, but for one that has loaded its data and
    /// can't keep it: it may have taken events already.
    pub async fn ensure(config: &RedisConfig) -> Result<Self, EmbeddedError> {
        Self::ensure_from(config, &std::env::var_os("PATH").unwrap_or_default()).await
    }

    /// As [`Self::ensure`], with another list of folders to find the binary in, separated as in `PATH`.
    ///
    /// # Errors
    ///
    /// As [`Self::ensure`].
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
                // Whoever started it may have been killed before the file was written.
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

    /// Creates the data folder and the password, unless they exist, and returns them. A daemon does this before it
    /// builds clients, which read the password. Starts nothing.
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

    /// The program that [`Self::ensure`] would start; `None` where there is none on `PATH`.
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

    /// What it says of itself.
    pub const fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// The folder that holds its data and its log.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Ends the server and waits until its process is gone, unless another daemon uses it. Its append-only file is
    /// complete then. Nothing happens where it has ended already, whoever listens in its place.
    ///
    /// # Errors
    ///
    /// It refused, or did not end in time; it then still runs, and the next daemon adopts it.
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

    /// Waits until the server has ended, by itself or by another's hand. May be given up at any moment.
    pub async fn ended(&mut self) {
        if let Some(child) = &mut self.child {
            // What can't be waited for is looked at.
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

    /// Waits until its data is loaded. As long as it says that it is loading, that may take what it takes.
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
                // Another server answers in its place: the one that we saw has ended.
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

    /// Makes the server demand the password and keep an append-only file. A server that an older version started lacks
    /// the password; one that has loaded a snapshot lacks the file.
    async fn configure(&mut self) -> Result<(), EmbeddedError> {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("requirepass").arg(password_of(&self.node)).arg("appendonly").arg("yes");
        let client = RedisClient::new(self.node.client()?);
        client.query::<()>(&command).await.map_err(|source| EmbeddedError::Configure { source })?;
        if !std::mem::replace(&mut self.info.aof_enabled, true) {
            tracing::info!(data = %self.data_dir.display(), "the embedded redis has loaded a snapshot and now keeps an append-only file");
        }
        Ok(())
    }

    /// Has the server write its append-only file anew, unless it has done so since it was started, and waits until it
    /// has: at most [`REWRITE_TIMEOUT`], because a large file takes long and is whole meanwhile in all but a few cases.
    ///
    /// Where the file ended inside a transaction, the server has cut it off behind the last whole command, and the
    /// transaction's beginning is still there. All that is appended belongs to it at the next start: left out if the
    /// file is torn again, and back once a later transaction ends it.
    ///
    /// # Errors
    ///
    /// The server has loaded a snapshot, and there is no file of that yet. Without one all that is counted would be
    /// gone with the process, so it is waited for without an end.
    async fn rewrite_file(&self) -> Result<(), EmbeddedError> {
        let is_first = !launch::has_file(&self.data_dir);
        let mut written = std::pin::pin!(launch::file_written(&self.node, is_first));
        let log = launch::log_of(&self.data_dir);
        loop {
            match timeout(REWRITE_TIMEOUT, &mut written).await {
                Ok(Ok(true)) => tracing::debug!("the embedded server has written its append-only file anew"),
                Ok(Ok(false)) if is_first => return Err(EmbeddedError::NoFile { log }),
                Ok(Err(source)) if is_first => return Err(EmbeddedError::Configure { source }),
                Err(_) if is_first => {
                    tracing::warn!(log = %log.display(), "the embedded server still writes its first append-only file: waiting for it");
                    continue;
                }
                Ok(Ok(false)) => {
                    tracing::warn!(log = %log.display(), "the embedded server could not write its append-only file anew")
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the embedded server could not be told to write its append-only file anew");
                }
                Err(_) => {
                    tracing::warn!(timeout = ?REWRITE_TIMEOUT, "the embedded server still writes its append-only file anew: starting beside it")
                }
            }
            return Ok(());
        }
    }

    /// Kills a server that this process started and that never came up.
    async fn kill_unanswering(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill().await;
        }
    }
}

/// Starts the server and waits until it answers, loading or not.
async fn start(
    binary: &Path,
    port: u16,
    node: RedisNode,
    data_dir: PathBuf,
    in_use: FileLock,
) -> Result<EmbeddedServer, EmbeddedError> {
    let mut child = launch::spawn(binary, port, &password_of(&node), &data_dir)?;
    let pid = child.id().unwrap_or_default();
    // Written before it answers, so that a daemon killed from here on leaves a server that the next one knows.
    let mut record = ServerRecord { pid, port, run_id: None };
    let started = async {
        record.write(&data_dir)?;
        let begun = Instant::now();
        loop {
            // Whoever answers on the port is it only if it is the process that we started.
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

/// Asks the server to end, and waits for the end of its process.
async fn shut_down(node: &RedisNode) -> Result<(), ReadError> {
    let mut connection = match RawConnection::connect(node, None).await {
        // Somebody else has ended it.
        Err(ReadError::Connect { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
        connected => connected?,
    };
    // NOSAVE leaves out the snapshot; the append-only file is flushed all the same. The answer is the end of the
    // connection, which the system closes when the process is gone.
    match connection.ask("SHUTDOWN", &[b"SHUTDOWN", b"NOSAVE"]).await {
        Err(ReadError::Closed | ReadError::Io(_)) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn ping(client: &RedisClient) -> bool {
    match client.query::<String>(&redis::cmd("PING")).await {
        Ok(_) => true,
        // It answers; what it lacks is for others to judge.
        Err(error) => !matches!(error_kind(&error), ErrorKind::Unreachable | ErrorKind::NotReady),
    }
}
