//! Catches mail: a small SMTP server that answers each phase of the conversation as it is told.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::catcher::{Catcher, Shared, locked};

mod session;
mod setup;

pub use setup::{CaughtMail, Phase, Reply, Security, SmtpProgram, SmtpSetup, Times, User};

/// A mail server.
pub type SmtpCatcher = Catcher<CaughtMail, SmtpProgram>;

impl SmtpCatcher {
    /// Starts a server on a free port of 127.0.0.1 that says yes to everything, until [`Self::program`] says otherwise.
    pub async fn start(setup: SmtpSetup) -> io::Result<Self> {
        Self::start_on((Ipv4Addr::LOCALHOST, 0).into(), setup).await
    }

    /// As [`Self::start`], on this address.
    pub async fn start_on(address: SocketAddr, setup: SmtpSetup) -> io::Result<Self> {
        Self::bind(address, SmtpProgram::default(), |listener, shared| accept(listener, shared, setup)).await
    }

    /// `smtp://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("smtp://{}", self.address())
    }

    /// From now on gives this reply in this phase.
    pub fn program(&self, phase: Phase, reply: Reply, times: Times) {
        locked(&self.program).replies.push_back((phase, reply, times));
    }

    /// How many connections have been made so far.
    pub fn connections(&self) -> u64 {
        locked(&self.program).connections
    }
}

async fn accept(listener: TcpListener, (program, caught): Shared<CaughtMail, SmtpProgram>, setup: SmtpSetup) {
    // Dropped with this task, and ends the conversations with it.
    let mut sessions = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while sessions.try_join_next().is_some() {}
        let connection = {
            let mut program = locked(&program);
            program.connections += 1;
            program.connections
        };
        // A client that breaks off is not our trouble.
        sessions.spawn(session::serve(stream, setup.clone(), (program.clone(), caught.clone()), connection));
    }
}
