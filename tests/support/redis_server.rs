//! A real Redis server for one test: on a free port of 127.0.0.1, in a temporary folder, killed on drop.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// The environment variable with another server binary (`make test-matrix` sets it).
const BINARY: &str = "QUOTABELL_TEST_REDIS";

/// A running server.
#[derive(Debug)]
pub struct RedisServer {
    child: Child,
    port: u16,
    directory: TempDir,
    options: Vec<String>,
}

impl RedisServer {
    /// A server without persistence.
    pub fn start() -> Self {
        Self::start_with(&["--save", "", "--appendonly", "no"])
    }

    /// A server with an append-only file, so that [`Self::restart`] loses nothing.
    pub fn start_durable() -> Self {
        Self::start_with(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
    }

    /// A server without persistence that serves a replica at once; by default it waits 5 s for more replicas.
    pub fn start_to_be_followed() -> Self {
        Self::start_with(&["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"])
    }

    /// A server without persistence on this port, which must be free.
    pub fn start_on(port: u16) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let options: Vec<String> = ["--save", "", "--appendonly", "no"].iter().map(ToString::to_string).collect();
        let child = launch(port, directory.path(), &options).expect("the port is free");
        Self { child, port, directory, options }
    }

    /// A server with these options beside port, folder and socket.
    pub fn start_with(options: &[&str]) -> Self {
        Self::start_with_each(|| options.iter().map(ToString::to_string).collect())
    }

    /// As [`Self::start_with`], with options that are computed for each attempt, because they contain another port.
    pub fn start_with_each(options: impl Fn() -> Vec<String>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        // Another process may take the port between the check and the server's bind: try again.
        for _ in 0..20 {
            let (port, options) = (free_port(), options());
            if let Some(child) = launch(port, directory.path(), &options) {
                return Self { child, port, directory, options };
            }
        }
        panic!("redis-server did not start on any of 20 free ports");
    }

    /// `redis://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its Unix socket.
    pub fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// Its data folder.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The process id, to stop it with a signal.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A client of the redis crate.
    pub fn sync_client(&self) -> redis::Client {
        redis::Client::open(self.url()).expect("a valid URL")
    }

    /// Kills the server with SIGKILL, as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().expect("the server was running");
        self.child.wait().expect("the server can be waited for");
    }

    /// Waits for its end after somebody else has killed it.
    pub fn reap(&mut self) {
        self.child.wait().expect("the server can be waited for");
    }

    /// Truncates its append-only file by this number of bytes, after [`Self::kill`].
    pub fn tear_file(&self, bytes: u64) {
        tear_newest(&self.directory.path().join("appendonlydir"), bytes);
    }

    /// Adds an option for the next [`Self::restart`].
    pub fn set_option(&mut self, name: &str, value: &str) {
        self.options.extend([name.to_owned(), value.to_owned()]);
    }

    /// The options of the next [`Self::restart`].
    pub fn options(&self) -> Vec<String> {
        self.options.clone()
    }

    /// Replaces the options for the next [`Self::restart`].
    pub fn set_options(&mut self, options: Vec<String>) {
        self.options = options;
    }

    /// Starts it again on the same port and in the same folder, after [`Self::kill`].
    pub fn restart(&mut self) {
        self.child = launch(self.port, self.directory.path(), &self.options).expect("the port is still free");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Truncates the newest append-only file in this folder by this number of bytes.
pub fn tear_newest(folder: &Path, bytes: u64) {
    let files = std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path());
    let newest = files.filter(|file| file.to_string_lossy().ends_with(".incr.aof")).max().expect("an append-only file");
    let file = std::fs::OpenOptions::new().write(true).open(newest).expect("a file");
    let length = file.metadata().expect("its length").len();
    file.set_len(length - bytes).expect("it is cut");
}

/// A TCP port without a listener at this moment.
///
/// It is below the range from which systems take the ports of outgoing connections (32768 on Linux), because such a
/// port may be in use between a server's death and its restart.
pub fn free_port() -> u16 {
    loop {
        let port = 10_000 + rand::random::<u16>() % 22_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The server binary of the tests.
pub fn server_binary() -> String {
    std::env::var(BINARY).unwrap_or_else(|_| "redis-server".to_owned())
}

/// Starts the server and reads its log until it accepts connections; `None` if it ended.
fn launch(port: u16, directory: &Path, options: &[String]) -> Option<Child> {
    let binary = server_binary();
    let mut child = Command::new(&binary)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--unixsocket", "redis.sock", "--dir"])
        .arg(directory)
        .args(options)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!(
                "cannot start {binary}: {error}; install it (apt-get install redis-server) or name another in {BINARY}"
            )
        });
    let mut log = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut line = String::new();
    while log.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        if line.contains("Ready to accept connections unix") || line.contains("ready to accept connections at") {
            // The server writes its log until its end, so a thread has to read it.
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            return Some(child);
        }
        line.clear();
    }
    let _ = child.wait();
    None
}
