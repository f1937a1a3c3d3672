//! Catches mail: a small SMTP server that answers each phase of the conversation as it is told.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Running, WAITING_MAX};

mod session;
mod setup;

pub use setup::{CaughtMail, Phase, Reply, Security, SmtpSetup, Times, User};
use setup::{Programmed, ReplyScript, Shared};

/// A mail server. Gone when dropped.
#[derive(Debug)]
pub struct SmtpCatcher {
    address: SocketAddr,
    script: ReplyScript,
    caught: mpsc::Receiver<CaughtMail>,
    connections: Arc<AtomicU64>,
    _running: Running,
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
        let script = ReplyScript::default();
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
