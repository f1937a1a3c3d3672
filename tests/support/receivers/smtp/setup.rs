//! What the mail server is told: how it protects itself, what it answers, and what it keeps of a mail.

use std::collections::VecDeque;
use std::time::Instant;

use tokio_rustls::TlsAcceptor;

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

/// A phase of the conversation whose reply can be programmed: what the client has just done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Greeting,
    Ehlo,
    StartTls,
    Auth,
    Mail,
    Rcpt,
    Data,
    Message,
    Rset,
    Quit,
}

/// What the server does in a phase instead of saying yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Sends this line (without CRLF). Unless its code is positive, the phase fails.
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
    /// Offers AUTH PLAIN and takes mail only from this user.
    pub user: Option<User>,
    /// Further lines of the reply to EHLO, such as `SMTPUTF8`.
    pub extensions: Vec<&'static str>,
}

/// What the server is told to say, and how many connections it has seen.
#[derive(Debug, Default)]
pub struct SmtpProgram {
    pub(super) replies: VecDeque<(Phase, Reply, Times)>,
    pub(super) connections: u64,
}

impl SmtpProgram {
    /// The reply of this phase; one that is given once is used up.
    pub(super) fn reply(&mut self, phase: Phase) -> Option<Reply> {
        let at = self.replies.iter().position(|(programmed, ..)| *programmed == phase)?;
        match &self.replies[at] {
            (_, reply, Times::Always) => Some(reply.clone()),
            (_, _, Times::Once) => self.replies.remove(at).map(|(_, reply, _)| reply),
        }
    }
}
