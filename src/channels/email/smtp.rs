//! One SMTP conversation, step by step, so that a refusal is judged by the step it answers.
//!
//! lettre's own `send` hides the step, and a 535 that answers AUTH must not kill a mail as a 550 that answers RCPT does. Owns the
//! connections, idle ones included. Knows no deadline: [`super::mailer`] sets one for all of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lettre::Address;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::DEFAULT_MECHANISMS;
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt, Rset};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::{Response, Severity};
use tokio::sync::Mutex;

use super::error::EmailError;
use super::smtp_url::{Protection, SmtpServer};
use crate::channels::connection_error::{self, ConnectionError};
use crate::types::Class;
use crate::types::outcome::printable_reply;

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
    pub(super) class: Class,
    pub(super) status: Option<u16>,
    pub(super) error: String,
    /// What the operator can do about it.
    pub(super) hint: Option<&'static str>,
    /// What the server said.
    pub(super) reply: Option<String>,
    /// Whether the connection is still good for another mail.
    connection: Connection,
}

impl Refusal {
    /// Whether the server refuses us, and not one recipient: it wants AUTH or TLS, does not relay (5.7.x), or could not be understood.
    fn is_about_us(&self) -> bool {
        let policy = self.error.split_whitespace().any(|word| word.starts_with("5.7.") || word.starts_with("4.7."));
        policy || self.status.is_none_or(|code| matches!(code, 421 | 530 | 534 | 535 | 538))
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

/// A mail on its way: the envelope, the bytes, and how far it came.
#[derive(Debug, Clone, Copy)]
struct Outgoing<'a> {
    envelope: Envelope<'a>,
    bytes: &'a [u8],
    content_sent: &'a AtomicBool,
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
    /// [`EmailError::Tls`].
    pub(super) fn new(server: SmtpServer, authorities: Vec<Certificate>) -> Result<Self, EmailError> {
        let tls = match server.protection {
            Protection::Plain => None,
            Protection::Opportunistic | Protection::StartTls | Protection::Tls => {
                let builder = TlsParameters::builder(server.host.clone());
                let builder = authorities.into_iter().fold(builder, |all, one| all.add_root_certificate(one));
                Some(builder.build_rustls().map_err(EmailError::Tls)?)
            }
        };
        let hello = server.hello_name.clone().map_or_else(ClientId::default, ClientId::Domain);
        Ok(Self { server, hello, tls, idle: Mutex::new(Vec::new()) })
    }

    /// Hands a mail over and returns the code of the server's last answer.
    ///
    /// `content_sent` becomes true before the first of the bytes leaves: from then on the mail may have been taken, also where nobody
    /// waits for the end of the conversation.
    ///
    /// # Errors
    ///
    /// [`Refusal`]. The mail may have been taken where the answer to the final dot was lost.
    pub(super) async fn send(
        &self,
        envelope: Envelope<'_>,
        bytes: &[u8],
        content_sent: &AtomicBool,
    ) -> Result<u16, Refusal> {
        let outgoing = Outgoing { envelope, bytes, content_sent };
        if let Some(mut connection) = self.alive_idle().await {
            match converse(&mut connection, outgoing).await {
                // It died under the first command: nothing was sent, so a new connection may try in its place.
                Err((Step::Mail, refusal)) if refusal.connection == Connection::Broken => {}
                other => return self.finish(connection, other).await,
            }
        }
        let mut connection = self.connect().await?;
        let ended = converse(&mut connection, outgoing).await;
        self.finish(connection, ended).await
    }

    /// Connects, protects and authenticates as for a mail, names sender and recipient, takes both back, and closes the connection.
    ///
    /// A server that wants TLS or a password says so only here. That it does not know this recipient is no failure.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub(super) async fn check(&self, envelope: Envelope<'_>) -> Result<(), Refusal> {
        let mut connection = self.connect().await?;
        let announced = announce(&mut connection, envelope, ContentKind::Ascii).await;
        let _ = tokio::time::timeout(QUIT_WITHIN, connection.command(Rset)).await;
        let _ = tokio::time::timeout(QUIT_WITHIN, connection.quit()).await;
        match announced {
            Err((Step::Rcpt, refusal)) if !refusal.is_about_us() => Ok(()),
            announced => announced.map_err(|(_, refusal)| refusal),
        }
    }

    /// Closes the idle connections.
    pub(super) async fn close(&self) {
        let idle = std::mem::take(&mut *self.idle.lock().await);
        for mut kept in idle {
            let _ = tokio::time::timeout(QUIT_WITHIN, kept.connection.quit()).await;
        }
    }

    /// Keeps the connection for the next mail if it is sound.
    async fn finish(
        &self,
        connection: AsyncSmtpConnection,
        ended: Result<u16, (Step, Refusal)>,
    ) -> Result<u16, Refusal> {
        let sound = !ended.as_ref().is_err_and(|(_, refusal)| refusal.connection == Connection::Broken);
        if sound && !connection.has_broken() {
            let mut idle = self.idle.lock().await;
            if idle.len() < IDLE_MAX {
                idle.push(Idle { connection, since: Instant::now() });
            }
        }
        ended.map_err(|(_, refusal)| refusal)
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
        if let Some(tls) = self.start_tls_with(&connection)? {
            let upgraded = connection.starttls(tls, &self.hello).await;
            upgraded.map_err(|error| refusal(Step::StartTls, &error))?;
        }
        if let Some(credentials) = credentials {
            let known = connection.auth(DEFAULT_MECHANISMS, credentials).await;
            known.map_err(|error| refusal(Step::Auth, &error))?;
        }
        Ok(connection)
    }

    /// What STARTTLS is to be done with; `None` where the conversation goes on as it is.
    fn start_tls_with(&self, connection: &AsyncSmtpConnection) -> Result<Option<TlsParameters>, Refusal> {
        match self.server.protection {
            Protection::Plain | Protection::Tls => Ok(None),
            Protection::Opportunistic => Ok(self.tls.clone().filter(|_| connection.can_starttls())),
            Protection::StartTls if connection.can_starttls() => Ok(self.tls.clone()),
            Protection::StartTls => Err(transient("STARTTLS is required, the mail server does not offer it")),
        }
    }
}

impl std::fmt::Debug for SmtpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SmtpClient").field("protection", &self.server.protection).finish_non_exhaustive()
    }
}

/// MAIL, RCPT, DATA, content, dot.
async fn converse(connection: &mut AsyncSmtpConnection, outgoing: Outgoing<'_>) -> Result<u16, (Step, Refusal)> {
    let Outgoing { envelope, bytes, content_sent } = outgoing;
    let at = |step: Step| move |error: Error| (step, refusal(step, &error));
    let kind = if bytes.is_ascii() { ContentKind::Ascii } else { ContentKind::EightBit };
    announce(connection, envelope, kind).await?;
    let answer = connection.command(Data).await.map_err(at(Step::Data))?;
    expect(Step::Data, Severity::PositiveIntermediate, &answer)?;
    content_sent.store(true, Ordering::Relaxed);
    let answer = connection.message(bytes).await.map_err(at(Step::Data))?;
    expect(Step::Data, Severity::PositiveCompletion, &answer)
}

/// MAIL and RCPT.
async fn announce(
    connection: &mut AsyncSmtpConnection,
    envelope: Envelope<'_>,
    kind: ContentKind,
) -> Result<(), (Step, Refusal)> {
    let at = |step: Step| move |error: Error| (step, refusal(step, &error));
    let parameters = parameters(connection, envelope, kind).map_err(|refusal| (Step::Mail, refusal))?;
    let mail = Mail::new(Some(envelope.from.clone()), parameters);
    let answer = connection.command(mail).await.map_err(at(Step::Mail))?;
    expect(Step::Mail, Severity::PositiveCompletion, &answer)?;
    let answer = connection.command(Rcpt::new(envelope.to.clone(), Vec::new())).await.map_err(at(Step::Rcpt))?;
    expect(Step::Rcpt, Severity::PositiveCompletion, &answer).map(drop)
}

/// Whether the content needs 8BITMIME.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContentKind {
    Ascii,
    EightBit,
}

/// What MAIL must announce about the envelope and the content.
fn parameters(
    connection: &AsyncSmtpConnection,
    envelope: Envelope<'_>,
    kind: ContentKind,
) -> Result<Vec<MailParameter>, Refusal> {
    let mut parameters = Vec::new();
    let ascii = |address: &Address| AsRef::<str>::as_ref(address).is_ascii();
    if !ascii(envelope.from) || !ascii(envelope.to) {
        if !connection.server_info().supports_feature(Extension::SmtpUtfEight) {
            let mut refusal = transient("the mail server takes no addresses beyond ASCII (SMTPUTF8)");
            refusal.connection = Connection::Sound;
            return Err(refusal);
        }
        parameters.push(MailParameter::SmtpUtfEight);
    }
    if kind == ContentKind::EightBit && connection.server_info().supports_feature(Extension::EightBitMime) {
        parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    Ok(parameters)
}

/// lettre takes any 2xx or 3xx for a yes. DATA answered by 250 would make the content commands, and a 354 to the final dot would
/// pass for delivered: each step has one kind of yes.
fn expect(step: Step, kind: Severity, answer: &Response) -> Result<u16, (Step, Refusal)> {
    let code = u16::from(answer.code());
    if answer.code().severity == kind {
        return Ok(code);
    }
    let said: Vec<&str> = answer.message().collect();
    let refusal = transient(&format!("SMTP {code} to {}", step.as_str()));
    Err((step, Refusal { status: Some(code), reply: printable_reply(said.join(" ").as_bytes()), ..refusal }))
}

/// A refusal that may pass. What the server says next is unknown.
fn transient(error: &str) -> Refusal {
    let error = error.to_owned();
    Refusal { class: Class::Transient, status: None, error, hint: None, reply: None, connection: Connection::Broken }
}

/// The class of a refusal: by step, then by code.
///
/// Source of the codes: RFC 4954 (530, 534, 535, 538 are about AUTH and may answer any command) and RFC 5321 (421: the server
/// is about to close).
fn refusal(step: Step, error: &Error) -> Refusal {
    let Some(code) = error.status().map(u16::from) else {
        let found = connection_error::find(error, step_failed(step, error));
        let hint = (found == ConnectionError::Untrusted).then_some(UNTRUSTED);
        return Refusal { hint, ..transient(&found.to_string()) };
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
    let error = format!("SMTP {code}{detail} to {}", step.as_str());
    Refusal { class, status: Some(code), error, hint: None, reply: printable_reply(said.as_bytes()), connection }
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
