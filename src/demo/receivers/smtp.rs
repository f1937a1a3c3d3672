//! Catches mail: a small SMTP server that answers each phase of the conversation as it is told.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::{Running, WAITING_MAX};

mod session;

/// One mail as it arrived.
#[derive(Debug, Clone)]
pub struct CaughtMail {
    /// The address of MAIL FROM, without brackets.
    pub from: String,
    /// The addresses of RCPT TO, without brackets.
    pub to: Vec<String>,
    /// The message as it was written: CRLF line ends, dots unstuffed, without the final dot.
    pub raw: Vec<u8>,
    /// How the conversation was protected.
    pub security: Security,
    /// The user who authenticated.
    pub user: Option<String>,
    /// Which connection it came over, 1 for the first.
    pub connection: u64,
    /// When its final dot arrived.
    pub arrived: Instant,
}

impl CaughtMail {
    /// The message as text. Ours are ASCII.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }
}

/// How a conversation is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// Readable on the way.
    Plain,
    /// Encrypted.
    Tls,
}

/// A phase of the conversation whose reply can be programmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// After the connection.
    Greeting,
    /// EHLO or HELO.
    Ehlo,
    /// STARTTLS.
    StartTls,
    /// AUTH.
    Auth,
    /// MAIL FROM.
    Mail,
    /// RCPT TO.
    Rcpt,
    /// DATA.
    Data,
    /// The final dot.
    Message,
    /// RSET.
    Rset,
    /// NOOP.
    Noop,
    /// QUIT.
    Quit,
}

/// What the server does in a phase instead of saying yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Says this line (without CRLF). Any but a positive code leaves the phase undone.
    Say(&'static str),
    /// Says nothing and goes on listening to nobody, until the client leaves.
    Hang,
    /// Closes the connection.
    Close,
}

/// How often a programmed reply is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// Once; then the next one, or yes.
    Once,
    /// From then on.
    Always,
}

/// A user who may authenticate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

/// What the server offers.
#[derive(Clone, Default)]
pub struct SmtpSetup {
    /// Offers STARTTLS with this certificate.
    pub start_tls: Option<TlsAcceptor>,
    /// Speaks TLS from the first byte with this certificate.
    pub tls: Option<TlsAcceptor>,
    /// Offers AUTH (PLAIN and LOGIN) and takes mail only from this user.
    pub user: Option<User>,
    /// Further lines of the answer to EHLO, as `SMTPUTF8`.
    pub extensions: Vec<&'static str>,
}

impl std::fmt::Debug for SmtpSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SmtpSetup").field("extensions", &self.extensions).finish_non_exhaustive()
    }
}

/// A mail server. Gone when dropped.
#[derive(Debug)]
pub struct SmtpCatcher {
    address: SocketAddr,
    script: Script,
    caught: mpsc::Receiver<CaughtMail>,
    connections: Arc<AtomicU64>,
    _running: Running,
}

/// The programmed replies, in the order in which they were programmed.
#[derive(Debug, Clone, Default)]
struct Script(Arc<Mutex<VecDeque<Programmed>>>);

#[derive(Debug, Clone)]
struct Programmed {
    phase: Phase,
    reply: Reply,
    times: Times,
}

impl Script {
    /// What was programmed for this phase; uses up a reply that is given once.
    fn take(&self, phase: Phase) -> Option<Reply> {
        let mut replies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = replies.iter().position(|programmed| programmed.phase == phase)?;
        match replies[at].times {
            Times::Always => Some(replies[at].reply.clone()),
            Times::Once => replies.remove(at).map(|programmed| programmed.reply),
        }
    }
}

impl SmtpCatcher {
    /// Starts a server on a free port of 127.0.0.1 that says yes to everything, until [`Self::program`] says otherwise.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start(setup: SmtpSetup) -> io::Result<Self> {
        Self::start_on((Ipv4Addr::LOCALHOST, 0).into(), setup).await
    }

    /// As [`Self::start`], on this address.
    ///
    /// # Errors
    ///
    /// When the address can't be bound.
    pub async fn start_on(address: SocketAddr, setup: SmtpSetup) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (sender, caught) = mpsc::channel(WAITING_MAX);
        let script = Script::default();
        let connections = Arc::new(AtomicU64::new(0));
        let shared = Shared { setup, script: script.clone(), caught: sender };
        let running = Running(tokio::spawn(accept(listener, shared, connections.clone())));
        Ok(Self { address, script, caught, connections, _running: running })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// `smtp://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("smtp://{}", self.address)
    }

    /// From now on gives this reply in this phase.
    pub fn program(&self, phase: Phase, reply: Reply, times: Times) {
        let programmed = Programmed { phase, reply, times };
        self.script.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(programmed);
    }

    /// The next mail; waits for it. Safe to drop while it waits.
    pub async fn next(&mut self) -> CaughtMail {
        self.caught.recv().await.expect("the server holds the sender for as long as this handle lives")
    }

    /// The next mail, if one has arrived.
    pub fn try_next(&mut self) -> Option<CaughtMail> {
        self.caught.try_recv().ok()
    }

    /// How many connections have been made so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
struct Shared {
    setup: SmtpSetup,
    script: Script,
    caught: mpsc::Sender<CaughtMail>,
}

async fn accept(listener: TcpListener, shared: Shared, connections: Arc<AtomicU64>) {
    // Dropped with this task, and ends the conversations with it.
    let mut sessions = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while sessions.try_join_next().is_some() {}
        let number = connections.fetch_add(1, Ordering::Relaxed) + 1;
        sessions.spawn(serve(stream, shared.clone(), number));
    }
}

async fn serve(stream: TcpStream, shared: Shared, number: u64) {
    // A client that breaks off is not our trouble.
    let _ = match shared.setup.tls.clone() {
        None => session::run(stream, Security::Plain, shared, number).await,
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => session::run(stream, Security::Tls, shared, number).await,
            Err(error) => Err(error),
        },
    };
}
