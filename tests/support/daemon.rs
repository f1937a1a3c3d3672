//! The real binary as a daemon: `quotabell run` in a separate environment, observed through its log and its HTTP port,
//! killed on drop.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::eventually::{WAIT_MAX, eventually};

/// The log line when everything runs.
pub const READY: &str = "quotabell is ready";
/// The log line's text before the address of the HTTP port.
const LISTENS: &str = "http listens address=";
/// The same of the console.
const CONSOLE_LISTENS: &str = "the console listens address=";
/// A data folder that does not exist.
pub const NO_FOLDER: &str = "/nonexistent/data";
/// Number of log lines that a failing test shows.
const LAST_LINES: usize = 60;

/// The settings of a daemon that is not started yet.
#[derive(Debug, Clone)]
pub struct DaemonSetup {
    variables: Vec<Variable>,
    /// Options after `run`.
    arguments: Vec<String>,
    /// Maximum number of file descriptors; `None`: the same as the tests.
    descriptors: Option<u32>,
}

#[derive(Debug, Clone)]
struct Variable {
    name: String,
    value: String,
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    log: watch::Receiver<Vec<String>>,
}

/// A response of its HTTP port.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: u16,
    pub body: String,
}

/// An HTTP address for daemons that start again at the same one: `127.x.y.z` at random, so that no other process takes
/// it while they are dead.
pub fn own_address() -> SocketAddr {
    let [x, y, z] = rand::random::<[u8; 3]>();
    // 127.0.0.0/24 is where everything else of this machine listens.
    SocketAddr::from(([127, x.max(1), y, z.clamp(1, 254)], 9464))
}

impl DaemonSetup {
    /// On this Redis, with a free HTTP port, with receivers on this machine allowed, and with short retries. It
    /// inherits only PATH from the tests' environment.
    pub fn on(redis_url: &str) -> Self {
        let setup = Self { variables: Vec::new(), arguments: Vec::new(), descriptors: None };
        setup
            .env("PATH", std::env::var("PATH").as_deref().unwrap_or_default())
            .env("QUOTABELL__REDIS__URL", redis_url)
            // A developer's folder would record the deployments of tests.
            .env("QUOTABELL__REDIS__DATA_DIR", NO_FOLDER)
            .env("QUOTABELL__HTTP__LISTEN", "127.0.0.1:0")
            // Tests run at once, and each console would want the same port.
            .env("QUOTABELL__CONSOLE__LISTEN", "off")
            .env("QUOTABELL__WEBHOOK__ALLOW_HTTP", "true")
            .env("QUOTABELL__WEBHOOK__ALLOW_PRIVATE_NETWORKS", "true")
            .env("QUOTABELL__RETRY__FIRST", "50ms")
            .env("QUOTABELL__RETRY__MAX_INTERVAL", "200ms")
            .env("QUOTABELL__DELIVERY__PROBE_FIRST", "100ms")
            .env("QUOTABELL__DELIVERY__PROBE_MAX", "200ms")
    }

    /// Listens for HTTP at this address.
    pub fn at(self, address: SocketAddr) -> Self {
        self.env("QUOTABELL__HTTP__LISTEN", &address.to_string())
    }

    /// Sets a variable; the last value counts.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.variables.push(Variable { name: name.to_owned(), value: value.to_owned() });
        self
    }

    /// Adds an option after `run`.
    pub fn argument(mut self, option: &str) -> Self {
        self.arguments.push(option.to_owned());
        self
    }

    /// Limits its file descriptors.
    pub fn descriptors(self, descriptors: u32) -> Self {
        Self { descriptors: Some(descriptors), ..self }
    }

    /// Starts the process without waiting.
    pub fn spawn(&self) -> Daemon {
        let mut command = self.command();
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
        let (told, log) = watch::channel(Vec::new());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                told.send_modify(|log| log.push(line));
            }
        });
        Daemon { child, log }
    }

    /// Starts the process with a log that the test does not read. Its HTTP port must be known.
    pub fn spawn_with_stderr(&self, stderr: impl Into<Stdio>) -> Daemon {
        let child = self.command().stderr(stderr).spawn().expect("the binary starts");
        Daemon { child, log: watch::channel(Vec::new()).1 }
    }

    fn command(&self) -> Command {
        let binary = env!("CARGO_BIN_EXE_quotabell");
        let mut command = match self.descriptors {
            None => Command::new(binary),
            Some(descriptors) => {
                let mut shell = Command::new("/bin/sh");
                shell.arg("-c").arg(format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")).arg(binary);
                shell
            }
        };
        command.arg("run").args(&self.arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        command.kill_on_drop(true);
        for Variable { name, value } in &self.variables {
            command.env(name, value);
        }
        command
    }

    /// Starts it and waits until it is ready.
    pub async fn start(&self) -> Daemon {
        let mut daemon = self.spawn();
        daemon.says(READY).await;
        daemon
    }

    /// Starts it, waits for its end, and returns exit code and log.
    pub async fn run_to_its_end(&self) -> Ended {
        self.spawn().ended().await
    }
}

/// The result of a daemon.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub log: String,
}

impl Ended {
    /// Expects that it ended by itself with this code and logged these texts.
    pub fn expect_code(&self, code: i32, said: &[&str]) {
        assert_eq!(self.status.code(), Some(code), "{}", self.log);
        for text in said {
            assert!(self.log.contains(text), "{text:?} is not in:\n{}", self.log);
        }
    }
}

impl Daemon {
    /// Waits for a log line with this text, and returns it; an earlier line counts.
    pub async fn says(&mut self, text: &str) -> String {
        self.says_again(text, 0).await
    }

    /// As [`Self::says`], for lines after the first `after` ones.
    pub async fn says_again(&mut self, text: &str, after: usize) -> String {
        let found = |log: &Vec<String>| log.iter().skip(after).find(|line| line.contains(text)).cloned();
        let mut log = self.log.clone();
        let said = tokio::time::timeout(WAIT_MAX, log.wait_for(|log| found(log).is_some())).await;
        match said {
            Ok(Ok(log)) => found(&log).expect("just seen"),
            Ok(Err(_)) => panic!("the daemon ended without saying {text:?}: {:?}", self.log.borrow().last()),
            Err(_) => panic!("the daemon did not say {text:?} within {WAIT_MAX:?}"),
        }
    }

    /// The log after its first `after` lines.
    pub fn lines_after(&self, after: usize) -> Vec<String> {
        self.log.borrow().iter().skip(after).cloned().collect()
    }

    /// Whether the log contains this text so far.
    pub fn has_said(&self, text: &str) -> bool {
        self.log.borrow().iter().any(|line| line.contains(text))
    }

    /// Number of log lines so far.
    pub fn lines(&self) -> usize {
        self.log.borrow().len()
    }

    /// The address of its HTTP port.
    pub async fn http(&mut self) -> SocketAddr {
        let line = self.says(LISTENS).await;
        let address = line.split_once(LISTENS).expect("just found").1;
        address.trim().parse().expect("an address")
    }

    /// The address of its console.
    pub async fn console(&mut self) -> SocketAddr {
        let line = self.says(CONSOLE_LISTENS).await;
        let address = line.split_once(CONSOLE_LISTENS).expect("just found").1;
        address.trim().parse().expect("an address")
    }

    /// Requests a path of its HTTP port.
    pub async fn get(&mut self, path: &str) -> HttpResponse {
        let address = self.http().await;
        http_get(address, path).await.expect("the daemon answers")
    }

    /// Waits until `/readyz` reports readiness: each part of a daemon notices separately that Redis is back.
    pub async fn becomes_ready(&mut self) {
        let address = self.http().await;
        eventually("the daemon is ready", || async {
            http_get(address, "/readyz").await.is_some_and(|page| page.status == 200).then_some(())
        })
        .await;
    }

    pub fn pid(&self) -> Pid {
        let id = self.child.id().expect("it runs");
        Pid::from_raw(i32::try_from(id).expect("a process id"))
    }

    pub fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(self.pid(), signal).expect("it runs");
    }

    /// Kills it as a crash would, and waits for its end. It must still have been running.
    pub async fn kill(mut self) {
        self.child.start_kill().expect("it runs");
        let status = self.child.wait().await.expect("it can be waited for");
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9),
            "it ended before it was killed: {status}"
        );
    }

    /// Waits for its end, at most [`WAIT_MAX`].
    pub async fn ended(mut self) -> Ended {
        let status = tokio::time::timeout(WAIT_MAX, self.child.wait()).await.expect("it ends in time");
        let status = status.expect("it can be waited for");
        // The reader ends when the pipe is closed: then the log is complete.
        while self.log.changed().await.is_ok() {}
        let log = self.log.borrow().join("\n");
        Ended { status, log }
    }

    /// Signals it repeatedly until that ends it, because a signal soon after the first is ignored.
    pub async fn ended_by(mut self, signal: Signal) -> Ended {
        let address = self.http().await;
        eventually("a second signal ends it", || async {
            self.signal(signal);
            http_get(address, "/healthz").await;
            self.has_said("ended by a second signal").then_some(())
        })
        .await;
        self.ended().await
    }

    /// Drains it and expects success.
    pub async fn drain(self) {
        self.signal(Signal::SIGTERM);
        self.ended().await.expect_code(0, &["drained"]);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log.borrow();
            let from = log.len().saturating_sub(LAST_LINES);
            eprintln!("--- the daemon's last lines\n{}\n---", log[from..].join("\n"));
        }
    }
}

/// Requests a path; `None` if nobody answers.
pub async fn http_get(address: SocketAddr, path: &str) -> Option<HttpResponse> {
    let answer = client().get(format!("http://{address}{path}")).send().await.ok()?;
    let status = answer.status().as_u16();
    Some(HttpResponse { status, body: answer.text().await.ok()? })
}

fn client() -> reqwest::Client {
    // The daemon's own provider; a second test in this process finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(WAIT_MAX).build().expect("a client")
}
