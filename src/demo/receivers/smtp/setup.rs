//! What the mail server is told: how it protects itself, what it answers, and what it keeps of a mail.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc;
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

/// The programmed replies, in the order in which they were programmed.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplyScript(pub(super) Arc<Mutex<VecDeque<Programmed>>>);

#[derive(Debug, Clone)]
pub(super) struct Programmed {
    pub(super) phase: Phase,
    pub(super) reply: Reply,
    pub(super) times: Times,
}

impl ReplyScript {
    /// What was programmed for this phase; uses up a reply that is given once.
    pub(super) fn take(&self, phase: Phase) -> Option<Reply> {
        let mut replies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = replies.iter().position(|programmed| programmed.phase == phase)?;
        match replies[at].times {
            Times::Always => Some(replies[at].reply.clone()),
            Times::Once => replies.remove(at).map(|programmed| programmed.reply),
        }
    }
}

#[derive(Clone)]
pub(super) struct Shared {
    pub(super) setup: SmtpSetup,
    pub(super) script: ReplyScript,
    pub(super) caught: mpsc::Sender<CaughtMail>,
}
