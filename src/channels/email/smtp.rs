//! One SMTP conversation, step by step, so that a refusal is judged by the step it answers.
//!
//! lettre's own `send` hides the step, and a 535 that answers AUTH must not kill a mail as a 550 that answers RCPT does. Owns the
//! connections, idle ones included. Knows no deadline: [`super::mailer`] sets one for all of it.

use std::fmt::Display;
use std::time::{Duration, Instant};

use lettre::Address;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::DEFAULT_MECHANISMS;
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt, Rset};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::{Response, Severity};
use tokio::sync::Mutex;

use super::smtp_url::{Protection, SmtpServer};
use crate::channels::connection_error;
use crate::channels::error::ChannelError;
use crate::types::outcome::printable_reply;
use crate::types::{Class, Outcome};

/// The most connections that are kept for the next mail.
const IDLE_MAX: usize = 8;
/// How long one is kept. Servers close idle connections after five minutes or later.
const IDLE_FOR: Duration = Duration::from_secs(60);
/// How long an idle connection may take to show that it is alive before a new one is made.
const ALIVE_WITHIN: Duration = Duration::from_secs(3);
/// How long QUIT may take.
const QUIT_WITHIN: Duration = Duration::from_secs(1);

/// What to do about a certificate that is not trusted.
const UNTRUSTED: &str = "if the certificate authority is your own, name its PEM file as email.ca_file";

/// The step of the conversation that went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Connection, greeting and EHLO.
    Connect,
    /// STARTTLS and its handshake.
    StartTls,
    /// AUTH.
    Auth,
    /// MAIL FROM.
    Mail,
    /// RCPT TO.
    Rcpt,
    /// DATA, the content and the final dot.
    Data,
}

impl Step {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connection",
            Self::StartTls => "STARTTLS",
            Self::Auth => "AUTH",
            Self::Mail => "MAIL",
            Self::Rcpt => "RCPT",
            Self::Data => "DATA",
        }
    }
}

/// Why a mail was not taken.
#[derive(Debug)]
pub(super) struct Refusal {
    /// How the attempt ended.
    pub(super) outcome: Outcome,
    step: Step,
    /// Whether the connection is still good for another mail.
    connection: Connection,
}

impl Refusal {
    /// Whether the server knows no mailbox of this address, which says nothing of other addresses: a refusal of RCPT that is not about
    /// a policy (RFC 3463, 5.7) and does not speak of relaying.
    pub(super) fn is_of_an_unknown_mailbox(&self) -> bool {
        let Outcome { status, error, reply, .. } = &self.outcome;
        let policy = error.iter().any(|error| error.contains(" 5.7."))
            || reply.iter().any(|reply| reply.to_lowercase().contains("relay"));
        self.step == Step::Rcpt && matches!(status, Some(550 | 551 | 553)) && !policy
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connection {
    /// The server refused one mail and goes on listening.
    Sound,
    /// It closed, or nobody knows which answer comes next.
    Broken,
}

/// Sender and recipient, as the server is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope<'a> {
    pub(super) from: &'a Address,
    pub(super) to: &'a Address,
}

/// The mail server, with the connections that wait for the next mail.
pub(super) struct SmtpClient {
    server: SmtpServer,
    hello: ClientId,
    tls: Option<TlsParameters>,
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    connection: AsyncSmtpConnection,
    since: Instant,
}

impl SmtpClient {
    /// Prepares TLS. Connects nowhere.
    ///
    /// # Errors
    ///
    /// TLS does not start.
    pub(super) fn new(server: SmtpServer, authorities: Vec<Certificate>) -> Result<Self, ChannelError> {
        let tls = match server.protection {
            Protection::Plain => None,
            Protection::Opportunistic | Protection::StartTls | Protection::Tls => {
                let builder = TlsParameters::builder(server.host.clone());
                let builder = authorities.into_iter().fold(builder, |all, one| all.add_root_certificate(one));
                let failed = |error| ChannelError::of_machine("build TLS for the mail server", error);
                Some(builder.build_rustls().map_err(failed)?)
            }
        };
        let hello = server.hello_name.clone().map_or_else(ClientId::default, ClientId::Domain);
        Ok(Self { server, hello, tls, idle: Mutex::new(Vec::new()) })
    }

    /// Hands a mail over and returns the code of the server's last answer.
    ///
    /// # Errors
    ///
    /// [`Refusal`]. The mail may have been taken where the answer to the final dot was lost.
    pub(super) async fn send(&self, envelope: Envelope<'_>, bytes: &[u8]) -> Result<u16, Refusal> {
        if let Some(mut connection) = self.alive_idle().await {
            match converse(&mut connection, envelope, bytes).await {
                // It died under the first command: nothing was sent, so a new connection may try in its place.
                Err(Refusal { step: Step::Mail, connection: Connection::Broken, .. }) => {}
                other => return self.finish(connection, other).await,
            }
        }
        let mut connection = self.connect().await?;
        let ended = converse(&mut connection, envelope, bytes).await;
        self.finish(connection, ended).await
    }

    /// Connects, protects and authenticates as for a mail, announces one, takes it back (RSET), and closes the connection.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub(super) async fn check(&self, envelope: Envelope<'_>) -> Result<(), Refusal> {
        let mut connection = self.connect().await?;
        let announced = announce(&mut connection, envelope, &[]).await;
        let closing = async {
            let _ = connection.command(Rset).await;
            connection.quit().await
        };
        let _ = tokio::time::timeout(QUIT_WITHIN, closing).await;
        announced
    }

    /// Closes the idle connections.
    pub(super) async fn close(&self) {
        let idle = std::mem::take(&mut *self.idle.lock().await);
        for mut kept in idle {
            let _ = tokio::time::timeout(QUIT_WITHIN, kept.connection.quit()).await;
        }
    }

    /// Keeps the connection for the next mail if it is sound.
    async fn finish(&self, connection: AsyncSmtpConnection, ended: Result<u16, Refusal>) -> Result<u16, Refusal> {
        let sound = !ended.as_ref().is_err_and(|refusal| refusal.connection == Connection::Broken);
        if sound && !connection.has_broken() {
            let mut idle = self.idle.lock().await;
            if idle.len() < IDLE_MAX {
                idle.push(Idle { connection, since: Instant::now() });
            }
        }
        ended
    }

    /// An idle connection that answers. RSET rather than NOOP asks it, as Postfix does: it also clears what a refused mail left.
    async fn alive_idle(&self) -> Option<AsyncSmtpConnection> {
        loop {
            let Idle { mut connection, since } = self.idle.lock().await.pop()?;
            if since.elapsed() > IDLE_FOR {
                continue;
            }
            if let Ok(Ok(_)) = tokio::time::timeout(ALIVE_WITHIN, connection.command(Rset)).await {
                return Some(connection);
            }
        }
    }

    /// A connection that is protected and authenticated as the URL asks.
    async fn connect(&self) -> Result<AsyncSmtpConnection, Refusal> {
        let SmtpServer { host, port, protection, credentials, .. } = &self.server;
        let from_the_start = self.tls.clone().filter(|_| *protection == Protection::Tls);
        let address = (host.as_str(), *port);
        let connected = AsyncSmtpConnection::connect_tokio1(address, None, &self.hello, from_the_start, None).await;
        let mut connection = connected.map_err(|error| refusal(Step::Connect, &error))?;
        let is_upgraded = match protection {
            Protection::Plain | Protection::Tls => false,
            Protection::StartTls if !connection.can_starttls() => {
                return Err(transient(Step::StartTls, "STARTTLS is required, the mail server does not offer it"));
            }
            Protection::Opportunistic | Protection::StartTls => connection.can_starttls(),
        };
        if let Some(tls) = self.tls.clone().filter(|_| is_upgraded) {
            let upgraded = connection.starttls(tls, &self.hello).await;
            upgraded.map_err(|error| refusal(Step::StartTls, &error))?;
        }
        if let Some(credentials) = credentials {
            let known = connection.auth(DEFAULT_MECHANISMS, credentials).await;
            known.map_err(|error| refusal(Step::Auth, &error))?;
        }
        Ok(connection)
    }
}

impl std::fmt::Debug for SmtpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SmtpClient").field("protection", &self.server.protection).finish_non_exhaustive()
    }
}

/// MAIL, RCPT, DATA, content, dot.
async fn converse(connection: &mut AsyncSmtpConnection, envelope: Envelope<'_>, bytes: &[u8]) -> Result<u16, Refusal> {
    announce(connection, envelope, bytes).await?;
    command(connection, Step::Data, Data, Severity::PositiveIntermediate).await?;
    let answer = connection.message(bytes).await.map_err(|error| refusal(Step::Data, &error))?;
    let code = u16::from(answer.code());
    unexpected(Step::Data, Severity::PositiveCompletion, &answer).map_or(Ok(code), Err)
}

/// MAIL and RCPT for a mail of these bytes.
async fn announce(connection: &mut AsyncSmtpConnection, envelope: Envelope<'_>, bytes: &[u8]) -> Result<(), Refusal> {
    let Envelope { from, to } = envelope;
    let supports = |feature| connection.server_info().supports_feature(feature);
    let mut parameters = Vec::new();
    if ![from, to].into_iter().all(|address| AsRef::<str>::as_ref(address).is_ascii()) {
        if !supports(Extension::SmtpUtfEight) {
            let refusal = transient(Step::Mail, "the mail server takes no addresses beyond ASCII (SMTPUTF8)");
            return Err(Refusal { connection: Connection::Sound, ..refusal });
        }
        parameters.push(MailParameter::SmtpUtfEight);
    }
    if !bytes.is_ascii() && supports(Extension::EightBitMime) {
        parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    let mail = Mail::new(Some(from.clone()), parameters);
    command(connection, Step::Mail, mail, Severity::PositiveCompletion).await?;
    let rcpt = Rcpt::new(to.clone(), Vec::new());
    command(connection, Step::Rcpt, rcpt, Severity::PositiveCompletion).await
}

async fn command(
    connection: &mut AsyncSmtpConnection,
    step: Step,
    command: impl Display,
    yes: Severity,
) -> Result<(), Refusal> {
    let answer = connection.command(command).await.map_err(|error| refusal(step, &error))?;
    unexpected(step, yes, &answer).map_or(Ok(()), Err)
}

/// lettre takes any 2xx or 3xx for a yes. DATA answered by 250 would make the content commands, and a 354 to the final dot would
/// pass for delivered: each step has one kind of yes.
fn unexpected(step: Step, yes: Severity, answer: &Response) -> Option<Refusal> {
    if answer.code().severity == yes {
        return None;
    }
    let code = u16::from(answer.code());
    let said: Vec<&str> = answer.message().collect();
    let Refusal { outcome, connection, .. } = transient(step, format!("SMTP {code} to {}", step.as_str()));
    let reply = printable_reply(said.join(" ").as_bytes());
    Some(Refusal { outcome: Outcome { status: Some(code), reply, ..outcome }, step, connection })
}

/// A refusal that may pass. What the server says next is unknown.
fn transient(step: Step, error: impl Into<String>) -> Refusal {
    Refusal { outcome: Outcome::failed(Class::Transient, error), step, connection: Connection::Broken }
}

/// The class of a refusal: by step, then by code.
///
/// Source of the codes: RFC 4954 (530, 534, 535, 538 are about AUTH and may answer any command) and RFC 5321 (421: the server
/// is about to close).
fn refusal(step: Step, error: &Error) -> Refusal {
    let Some(code) = error.status().map(u16::from) else {
        let found = connection_error::find(error, step_failed(step, error));
        let Refusal { outcome, connection, .. } = transient(step, found);
        let hint = (found == connection_error::UNTRUSTED).then_some(UNTRUSTED);
        return Refusal { outcome: Outcome { hint, ..outcome }, step, connection };
    };
    let about_this_mail = matches!(step, Step::Mail | Step::Rcpt | Step::Data);
    let about_us = matches!(code, 530 | 534 | 535 | 538);
    let class = match code {
        500..=599 if about_this_mail && !about_us => Class::Permanent,
        _ => Class::Transient,
    };
    let connection = if about_this_mail && code != 421 { Connection::Sound } else { Connection::Broken };
    let said = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let detail = enhanced_status(&said).map(|status| format!(" {status}")).unwrap_or_default();
    let failed = Outcome::failed(class, format!("SMTP {code}{detail} to {}", step.as_str()));
    let outcome = Outcome { status: Some(code), reply: printable_reply(said.as_bytes()), ..failed };
    Refusal { outcome, step, connection }
}

fn step_failed(step: Step, error: &Error) -> &'static str {
    let source = std::error::Error::source(error).map(ToString::to_string);
    match step {
        // lettre's words for an answer that ended before its line did.
        _ if source.as_deref() == Some("incomplete response") => "connection closed early",
        Step::Connect => "connect: the mail server does not speak SMTP",
        Step::StartTls => "STARTTLS failed",
        Step::Auth if error.is_client() => "AUTH: the mail server offers neither PLAIN nor LOGIN",
        Step::Auth => "AUTH failed",
        Step::Mail | Step::Rcpt | Step::Data => "the mail server's answer is not SMTP",
    }
}

/// The enhanced status code (RFC 3463, as `5.1.1`) at the beginning of a refusal. The rest of the text may hold addresses.
fn enhanced_status(said: &str) -> Option<&str> {
    let word = said.split_whitespace().next()?;
    let parts: Vec<&str> = word.split('.').collect();
    let digits = |part: &&str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    (parts.len() == 3 && parts.iter().all(digits)).then_some(word)
}
