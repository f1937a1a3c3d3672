//! One SMTP conversation, phase by phase, so that each reply is judged by its phase.
//!
//! Owns the connections, including idle ones. Sets no deadline: [`super::mailer`] sets one for the whole conversation.
//! Read next: [`super::smtp_connection`], the protocol; [`super::outcomes`], the meaning of refusals.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lettre::Address;
use lettre::transport::smtp::commands::{Data, Mail, Quit, Rcpt, Rset};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Severity;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::Mutex;

use super::outcomes::{SmtpFailure, failure_of, unsupported};
use super::refusal::SmtpPhase;
use super::smtp_connection::{SmtpConnection, SmtpError, SmtpTls};
use super::smtp_url::{Protection, SmtpServer};
use crate::channels::error::ChannelError;
use crate::channels::resolver::Resolver;
use crate::channels::server_stream::ServerStream;

/// Maximum number of idle connections.
const IDLE_MAX: usize = 8;
/// How long a connection is kept idle. Servers close idle connections after five minutes or later.
const IDLE_FOR: Duration = Duration::from_secs(60);
/// How long a connection is used. After that the name is resolved again, in case its address has changed, and many
/// servers close older connections.
const AGE_MAX: Duration = Duration::from_secs(10 * 60);
/// How long an idle connection may take to reply before a new one is opened.
const ALIVE_WITHIN: Duration = Duration::from_secs(3);
/// How long QUIT may take.
const QUIT_WITHIN: Duration = Duration::from_secs(1);

/// Sender and recipient for the SMTP envelope.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope<'a> {
    pub(super) from: &'a Address,
    pub(super) to: &'a Address,
}

/// The mail server and its idle connections.
pub(super) struct SmtpClient {
    server: SmtpServer,
    resolver: Resolver,
    hello: ClientId,
    tls: Option<SmtpTls>,
    idle: Mutex<Vec<KeptConnection>>,
}

/// A connection, with the time when it was opened and the time since which it is idle.
struct KeptConnection {
    smtp: SmtpConnection,
    opened: Instant,
    idle_since: Instant,
}

impl KeptConnection {
    fn is_fresh(&self, now: Instant) -> bool {
        may_be_used_again(now.saturating_duration_since(self.idle_since), now.saturating_duration_since(self.opened))
    }
}

/// Whether a connection with this idle time and age may take another email.
fn may_be_used_again(idle: Duration, age: Duration) -> bool {
    idle <= IDLE_FOR && age <= AGE_MAX
}

/// Whether a text may follow EHLO: a host name, or an address in brackets (RFC 5321, 4.1.3). It contains nothing that
/// could end the command.
pub(super) fn is_helo_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    (1..=255).contains(&name.len()) && name.bytes().all(is_allowed)
}

impl SmtpClient {
    /// Prepares the conversation. Does not connect.
    ///
    /// # Errors
    ///
    /// The server's name can't be in a certificate.
    pub(super) fn new(
        server: SmtpServer,
        helo_name: Option<&str>,
        tls: ClientConfig,
        resolver: Resolver,
    ) -> Result<Self, ChannelError> {
        let mut smtp_tls = None;
        if server.protection != Protection::Plain {
            let failed = |error| ChannelError::of_machine("build TLS for the mail server", error);
            let name = ServerName::try_from(server.host.clone()).map_err(failed)?;
            smtp_tls = Some(SmtpTls { config: Arc::new(tls), name });
        }
        let hello = helo_name.map_or_else(ClientId::default, |name| ClientId::Domain(name.to_owned()));
        Ok(Self { server, resolver, hello, tls: smtp_tls, idle: Mutex::new(Vec::new()) })
    }

    /// Sends an email and returns the code of the server's last reply.
    ///
    /// # Errors
    ///
    /// [`SmtpFailure`]. If the reply to the final dot was lost, the server may have accepted the email.
    pub(super) async fn send(&self, envelope: Envelope<'_>, bytes: &[u8]) -> Result<u16, SmtpFailure> {
        if let Some(mut connection) = self.alive_idle().await {
            match converse(&mut connection.smtp, envelope, bytes).await {
                // The connection was closed at the first command and nothing was sent, so a new connection may try.
                Err(failure) if failure.is_of_a_dead_connection() => {}
                other => return self.finish(connection, other).await,
            }
        }
        let (smtp, now) = (self.connect().await?, Instant::now());
        let mut connection = KeptConnection { smtp, opened: now, idle_since: now };
        let ended = converse(&mut connection.smtp, envelope, bytes).await;
        self.finish(connection, ended).await
    }

    /// Connects and authenticates as for an email, announces one, cancels it (RSET), and closes the connection.
    pub(super) async fn check(&self, envelope: Envelope<'_>) -> Result<(), SmtpFailure> {
        let mut connection = self.connect().await?;
        let announced = announce(&mut connection, envelope, &[]).await;
        let closing = async {
            let _ = connection.command(Rset, Severity::PositiveCompletion).await;
            connection.command(Quit, Severity::PositiveCompletion).await
        };
        let _ = tokio::time::timeout(QUIT_WITHIN, closing).await;
        announced
    }

    /// Closes the idle connections.
    pub(super) async fn close(&self) {
        let idle = std::mem::take(&mut *self.idle.lock().await);
        for mut kept in idle {
            let quit = kept.smtp.command(Quit, Severity::PositiveCompletion);
            let _ = tokio::time::timeout(QUIT_WITHIN, quit).await;
        }
    }

    /// Keeps the connection for the next email if it is usable, and drops connections that were kept long enough.
    async fn finish(&self, connection: KeptConnection, ended: Result<u16, SmtpFailure>) -> Result<u16, SmtpFailure> {
        let mut idle = self.idle.lock().await;
        let now = Instant::now();
        idle.retain(|kept| kept.is_fresh(now));
        if !ended.as_ref().is_err_and(|failure| failure.broke_the_connection) && idle.len() < IDLE_MAX {
            idle.push(KeptConnection { idle_since: now, ..connection });
        }
        ended
    }

    /// An idle connection that replies. It is tested with RSET, as Postfix does, because RSET also clears the state of
    /// a refused email.
    async fn alive_idle(&self) -> Option<KeptConnection> {
        loop {
            let mut connection = self.idle.lock().await.pop()?;
            if !connection.is_fresh(Instant::now()) {
                continue;
            }
            let reset = connection.smtp.command(Rset, Severity::PositiveCompletion);
            if let Ok(Ok(_)) = tokio::time::timeout(ALIVE_WITHIN, reset).await {
                return Some(connection);
            }
        }
    }

    /// A connection with the TLS and authentication of the URL.
    async fn connect(&self) -> Result<SmtpConnection, SmtpFailure> {
        let of = |phase| move |error: SmtpError| failure_of(phase, error);
        let protection = self.server.protection;
        let stream = self.reach().await.map_err(SmtpError::from).map_err(of(SmtpPhase::Connect))?;
        let mut connection = SmtpConnection::open(stream, &self.hello).await.map_err(of(SmtpPhase::Connect))?;
        if let Some(tls) = self.tls.as_ref().filter(|_| protection != Protection::Tls) {
            if connection.supports(Extension::StartTls) {
                connection = connection.start_tls(tls, &self.hello).await.map_err(of(SmtpPhase::StartTls))?;
            } else if protection == Protection::StartTls {
                let error = "STARTTLS is required, the mail server does not offer it";
                return Err(unsupported(SmtpPhase::StartTls, error));
            }
        }
        if let Some(credentials) = &self.server.credentials {
            connection.auth(credentials).await.map_err(of(SmtpPhase::Auth))?;
        }
        Ok(connection)
    }

    /// A connection to the server, with TLS if the URL wants it from the first byte.
    async fn reach(&self) -> io::Result<ServerStream> {
        let addresses = self.resolver.addresses(&self.server.host).await.map_err(io::Error::other)?;
        let stream = ServerStream::connect(&addresses, self.server.port).await?;
        match &self.tls {
            Some(tls) if self.server.protection == Protection::Tls => tls.handshake(stream).await,
            _ => Ok(stream),
        }
    }
}

impl std::fmt::Debug for SmtpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SmtpClient").field("protection", &self.server.protection).finish_non_exhaustive()
    }
}

/// Sends one email over an open connection.
async fn converse(connection: &mut SmtpConnection, envelope: Envelope<'_>, bytes: &[u8]) -> Result<u16, SmtpFailure> {
    announce(connection, envelope, bytes).await?;
    let data = connection.command(Data, Severity::PositiveIntermediate).await;
    data.map_err(|error| failure_of(SmtpPhase::Data, error))?;
    connection.send_content(bytes).await.map_err(|error| failure_of(SmtpPhase::Content, error))?;
    let taken = connection.content_taken().await.map_err(|error| failure_of(SmtpPhase::FinalDot, error))?;
    Ok(taken.code().into())
}

/// Sends sender and recipient. By RFC 6531 and 6152, an address beyond ASCII requires SMTPUTF8; 8-bit content is
/// announced if the server supports it.
async fn announce(
    connection: &mut SmtpConnection,
    Envelope { from, to }: Envelope<'_>,
    bytes: &[u8],
) -> Result<(), SmtpFailure> {
    let mut parameters = Vec::new();
    if ![from, to].into_iter().all(|address| AsRef::<str>::as_ref(address).is_ascii()) {
        if !connection.supports(Extension::SmtpUtfEight) {
            return Err(unsupported(SmtpPhase::Mail, "the mail server accepts no addresses beyond ASCII (SMTPUTF8)"));
        }
        parameters.push(MailParameter::SmtpUtfEight);
    }
    if !bytes.is_ascii() && connection.supports(Extension::EightBitMime) {
        parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    let mail = connection.command(Mail::new(Some(from.clone()), parameters), Severity::PositiveCompletion).await;
    mail.map_err(|error| failure_of(SmtpPhase::Mail, error))?;
    let rcpt = connection.command(Rcpt::new(to.clone(), Vec::new()), Severity::PositiveCompletion).await;
    rcpt.map(drop).map_err(|error| failure_of(SmtpPhase::Rcpt, error))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    use super::*;

    /// An email whose end did not reach the server is not accepted, and the error does not say that it may be.
    #[tokio::test]
    async fn a_loss_within_the_content_is_told_from_one_after_it() {
        let (client, server) = tokio::io::duplex(256);
        let serving = tokio::spawn(async move {
            let mut server = BufReader::new(server);
            for answer in ["220 a.test", "250 a.test", "250 ok", "250 ok", "354 go"] {
                if !answer.starts_with("220") {
                    server.read_line(&mut String::new()).await.expect("a command");
                }
                server.write_all(format!("{answer}\r\n").as_bytes()).await.expect("written");
            }
            server.read_line(&mut String::new()).await.expect("some of the content");
        });
        let hello = ClientId::Domain("b.test".to_owned());
        let mut connection = SmtpConnection::open(ServerStream::new(client), &hello).await.expect("a connection");
        let address: Address = "bob@example.com".parse().expect("an address");
        let content = "a line of the content\r\n".repeat(1_000);
        let envelope = Envelope { from: &address, to: &address };
        let lost = converse(&mut connection, envelope, content.as_bytes()).await.expect_err("the server is gone");
        assert_eq!(lost.outcome.error.as_deref(), Some("connection closed before the final dot"));
        assert!(lost.broke_the_connection);
        serving.await.expect("the server played its part");
    }

    /// With steady email a connection is never idle: without a maximum age, a mail server that has moved would never be
    /// found.
    #[test]
    fn a_connection_is_neither_idle_nor_old_for_ever() {
        assert!(may_be_used_again(IDLE_FOR, AGE_MAX));
        assert!(!may_be_used_again(IDLE_FOR + Duration::from_millis(1), IDLE_FOR));
        assert!(!may_be_used_again(Duration::ZERO, AGE_MAX + Duration::from_millis(1)));
    }
}
