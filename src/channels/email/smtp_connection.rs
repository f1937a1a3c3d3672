//! One connection to the mail server: sends commands and reads replies.
//!
//! The types of commands and replies are those of lettre. Its connection is not used, because it reads a line without a
//! bound, and after the TLS handshake it accepts replies that came before it. Here a reply has a maximum length, and
//! every reply follows a command. This file sets no deadline: [`super::mailer`] sets one for the whole conversation.
//! Read next: [`super::smtp`].

use std::fmt::{Display, Write};
use std::io;
use std::sync::Arc;

use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::commands::{Auth, Ehlo, Starttls};
use lettre::transport::smtp::extension::{ClientId, Extension, ServerInfo};
use lettre::transport::smtp::response::{Response, Severity};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::channels::server_stream::ServerStream;

/// Maximum size of one reply. Real replies to EHLO have some hundred bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of challenges in one AUTH. LOGIN has two.
const CHALLENGES_MAX: usize = 4;
/// The reply code to AUTH that asks for more data.
const CHALLENGE: u16 = 334;

/// The client side of TLS.
#[derive(Clone)]
pub(super) struct SmtpTls {
    /// The trusted authorities.
    pub(super) config: Arc<ClientConfig>,
    /// The name that the certificate must have.
    pub(super) name: ServerName<'static>,
}

impl SmtpTls {
    pub(super) async fn handshake(&self, stream: ServerStream) -> io::Result<ServerStream> {
        stream.secured(&self.config, self.name.clone()).await
    }
}

/// Why a command did not get a positive reply.
#[derive(Debug, thiserror::Error)]
pub(super) enum SmtpError {
    #[error("the mail server refused")]
    Refused(Response),
    #[error("the connection broke")]
    Network(#[from] io::Error),
    #[error("the mail server's answer is longer than 64 KiB")]
    Endless,
    /// The server sent something before it was asked. Its origin is unknown, and so is which reply belongs to which
    /// command from here on.
    #[error("the mail server sent an answer that nobody asked for")]
    Unasked,
    #[error("the mail server's answer is not SMTP")]
    Malformed,
    #[error("the mail server offers neither PLAIN nor LOGIN")]
    NoMechanism,
}

/// A connection after the server's greeting and its reply to EHLO.
pub(super) struct SmtpConnection {
    stream: BufReader<ServerStream>,
    server: ServerInfo,
}

impl SmtpConnection {
    /// Reads the greeting and sends EHLO.
    ///
    /// # Errors
    ///
    /// [`SmtpError`], like all functions here. The connection can only be used further after [`SmtpError::Refused`].
    pub(super) async fn open(stream: ServerStream, hello: &ClientId) -> Result<Self, SmtpError> {
        let mut connection = Self { stream: BufReader::new(stream), server: ServerInfo::default() };
        expected(connection.answer().await?, Severity::PositiveCompletion)?;
        connection.ehlo(hello).await?;
        Ok(connection)
    }

    /// Whether the server offers this extension.
    pub(super) fn supports(&self, extension: Extension) -> bool {
        self.server.supports_feature(extension)
    }

    /// Upgrades the connection to TLS (RFC 3207), and asks again for the extensions: the earlier reply could come from
    /// anybody.
    pub(super) async fn start_tls(mut self, tls: &SmtpTls, hello: &ClientId) -> Result<Self, SmtpError> {
        self.command(Starttls, Severity::PositiveCompletion).await?;
        self.expect_silence()?;
        let stream = tls.handshake(self.stream.into_inner()).await?;
        let mut connection = Self { stream: BufReader::new(stream), server: ServerInfo::default() };
        connection.ehlo(hello).await?;
        Ok(connection)
    }

    /// Authenticates with PLAIN if the server offers it, and otherwise with LOGIN.
    pub(super) async fn auth(&mut self, credentials: &Credentials) -> Result<(), SmtpError> {
        let mechanism = self.server.get_auth_mechanism(DEFAULT_MECHANISMS).ok_or(SmtpError::NoMechanism)?;
        let mut command = Auth::new(mechanism, credentials.clone(), None).map_err(|_| SmtpError::Malformed)?;
        for _ in 0..=CHALLENGES_MAX {
            let answer = self.exchange(command).await?;
            if !answer.has_code(CHALLENGE) {
                return expected(answer, Severity::PositiveCompletion).map(drop);
            }
            let next = Auth::new_from_response(mechanism, credentials.clone(), &answer);
            command = next.map_err(|_| SmtpError::Malformed)?;
        }
        Err(SmtpError::Malformed)
    }

    /// Sends a command. Only replies with the severity `yes` are accepted: if any 2xx or 3xx were, a 250 to DATA would
    /// make the server read the content as commands, and a 354 to the final dot would count as delivered.
    pub(super) async fn command(&mut self, command: impl Display, yes: Severity) -> Result<Response, SmtpError> {
        expected(self.exchange(command).await?, yes)
    }

    /// Sends the content after DATA, and its end. After an error the server does not have all of it.
    pub(super) async fn send_content(&mut self, bytes: &[u8]) -> Result<(), SmtpError> {
        self.expect_silence()?;
        // Written at once: a separate final dot would wait 40 ms for the acknowledgement of the content.
        self.write(&with_final_dot(bytes)).await
    }

    /// Reads the reply to the content. Even if this fails, the server may have accepted the email.
    pub(super) async fn content_taken(&mut self) -> Result<Response, SmtpError> {
        expected(self.answer().await?, Severity::PositiveCompletion)
    }

    async fn ehlo(&mut self, hello: &ClientId) -> Result<(), SmtpError> {
        let answer = self.exchange(Ehlo::new(hello.clone())).await?;
        if matches!(u16::from(answer.code()), 500 | 502) {
            // RFC 5321, 3.2: a server without EHLO knows HELO, and has no extensions.
            return self.command(format!("HELO {hello}\r\n"), Severity::PositiveCompletion).await.map(drop);
        }
        let answer = expected(answer, Severity::PositiveCompletion)?;
        self.server = ServerInfo::from_response(&capitalized(&answer)).map_err(|_| SmtpError::Malformed)?;
        Ok(())
    }

    async fn exchange(&mut self, command: impl Display) -> Result<Response, SmtpError> {
        self.expect_silence()?;
        self.write(command.to_string().as_bytes()).await?;
        self.answer().await
    }

    /// Data that arrived before a command was sent is no reply to it.
    fn expect_silence(&self) -> Result<(), SmtpError> {
        if self.stream.buffer().is_empty() { Ok(()) } else { Err(SmtpError::Unasked) }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), SmtpError> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Reads lines up to the last one of a reply, such as `250 ok` after `250-first`. They are parsed once, together.
    async fn answer(&mut self) -> Result<Response, SmtpError> {
        let (mut text, mut bytes, mut line) = (String::new(), 0, Vec::new());
        loop {
            line.clear();
            let left = (ANSWER_BYTES_MAX - bytes) as u64;
            bytes += (&mut self.stream).take(left).read_until(b'\n', &mut line).await?;
            if !line.ends_with(b"\n") {
                let is_full = bytes == ANSWER_BYTES_MAX;
                return Err(if is_full {
                    SmtpError::Endless
                } else {
                    io::Error::from(io::ErrorKind::UnexpectedEof).into()
                });
            }
            let shown = String::from_utf8_lossy(line.trim_ascii_end());
            // The last line may be a bare code, which lettre's parser does not accept.
            let end = if shown.len() == 3 { " \r\n" } else { "\r\n" };
            write!(text, "{shown}{end}").expect("a String takes any text");
            if line.get(3) != Some(&b'-') {
                return text.parse().map_err(|_| SmtpError::Malformed);
            }
        }
    }
}

/// The reply to EHLO in the only form that lettre accepts: keywords may be in any case (RFC 5321, 4.1.1.1), and old
/// servers write `AUTH=` for `AUTH`.
fn capitalized(answer: &Response) -> Response {
    let lines = answer.message().map(|line| line.to_ascii_uppercase().replacen("AUTH=", "AUTH ", 1)).collect();
    Response::new(answer.code(), lines)
}

fn expected(answer: Response, yes: Severity) -> Result<Response, SmtpError> {
    if answer.code().severity == yes { Ok(answer) } else { Err(SmtpError::Refused(answer)) }
}

/// The encoded content: a line that starts with a dot gets another one (RFC 5321, 4.5.2), and a single dot ends it.
fn with_final_dot(content: &[u8]) -> Vec<u8> {
    let mut sent = Vec::with_capacity(content.len() + 64);
    for line in content.split_inclusive(|&byte| byte == b'\n') {
        if line.starts_with(b".") {
            sent.push(b'.');
        }
        sent.extend_from_slice(line);
    }
    if !sent.ends_with(b"\r\n") {
        sent.extend_from_slice(b"\r\n");
    }
    sent.extend_from_slice(b".\r\n");
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single dot would end the email early, and the server would read the rest as commands.
    #[test]
    fn a_line_that_begins_with_a_dot_gets_another() {
        let sent = |content: &str| String::from_utf8(with_final_dot(content.as_bytes())).expect("text");
        assert_eq!(sent("a\r\n.\r\n..b\r\nc.\r\n"), "a\r\n..\r\n...b\r\nc.\r\n.\r\n");
        assert_eq!(sent(".a"), "..a\r\n.\r\n");
        assert_eq!(sent(""), "\r\n.\r\n");
    }
}
