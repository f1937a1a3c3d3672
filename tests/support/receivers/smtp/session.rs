//! One conversation with a client.

use std::io;
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::super::catcher::{Shared, locked};
use super::setup::{CaughtMail, Phase, Reply, Security, SmtpProgram, SmtpSetup, User};

/// The longest line that is read at once; SMTP allows 1000 bytes.
const LINE_BYTES_MAX: u64 = 4096;
/// The largest message that is kept.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A stream that a conversation runs over.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

struct Session {
    stream: BufReader<Box<dyn Stream>>,
    security: Security,
    setup: SmtpSetup,
    shared: Shared<CaughtMail, SmtpProgram>,
    connection: u64,
    user: Option<String>,
    from: Option<String>,
    to: Vec<String>,
}

/// Talks to one client until it leaves, the connection breaks, or it is to be closed.
pub(super) async fn serve(
    stream: TcpStream,
    setup: SmtpSetup,
    shared: Shared<CaughtMail, SmtpProgram>,
    connection: u64,
) -> io::Result<()> {
    let tls = setup.tls.clone();
    let (stream, security): (BufReader<Box<dyn Stream>>, _) = (BufReader::new(Box::new(stream)), Security::Plain);
    let mut session = Session { stream, security, setup, shared, connection, user: None, from: None, to: Vec::new() };
    if let Some(tls) = tls {
        session.start_tls(&tls).await?;
    }
    session.reply(Phase::Greeting, "220 catcher.test ESMTP").await?;
    while let Some(line) = session.line().await? {
        session.obey(&line).await?;
    }
    Ok(())
}

impl Session {
    async fn obey(&mut self, line: &str) -> io::Result<()> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let start_tls = self.setup.start_tls.clone().filter(|_| self.security == Security::Plain);
        match (verb.to_ascii_uppercase().as_str(), start_tls) {
            ("EHLO" | "HELO", start_tls) => {
                let mut offered = vec!["catcher.test"];
                offered.extend(&self.setup.extensions);
                offered.extend(start_tls.map(|_| "STARTTLS"));
                offered.extend(self.setup.user.as_ref().map(|_| "AUTH PLAIN"));
                let lines: String = offered.iter().map(|line| format!("250-{line}\r\n")).collect();
                self.reply(Phase::Ehlo, &format!("{lines}250 8BITMIME")).await?;
            }
            ("STARTTLS", Some(tls)) => {
                if self.reply(Phase::StartTls, "220 go ahead").await? {
                    self.start_tls(&tls).await?;
                }
            }
            ("AUTH", _) => self.auth(rest).await?,
            ("MAIL", _) if self.setup.user.is_some() && self.user.is_none() => {
                self.say("530 5.7.0 authenticate first").await?;
            }
            ("MAIL", _) => {
                if self.reply(Phase::Mail, "250 2.1.0 ok").await? {
                    (self.from, self.to) = (Some(address_in(rest)), Vec::new());
                }
            }
            ("RCPT", _) => {
                if self.reply(Phase::Rcpt, "250 2.1.5 ok").await? {
                    self.to.push(address_in(rest));
                }
            }
            ("DATA", _) => self.data().await?,
            ("RSET", _) => {
                (self.from, self.to) = (None, Vec::new());
                self.reply(Phase::Rset, "250 2.0.0 ok").await?;
            }
            ("NOOP", _) => drop(self.say("250 2.0.0 ok").await?),
            ("QUIT", _) => {
                self.reply(Phase::Quit, "221 2.0.0 bye").await?;
                return Err(closed());
            }
            _ => drop(self.say("502 5.5.1 not implemented").await?),
        }
        Ok(())
    }

    async fn start_tls(&mut self, tls: &TlsAcceptor) -> io::Result<()> {
        let plain = std::mem::replace(&mut self.stream, BufReader::new(Box::new(tokio::io::empty())));
        self.stream = BufReader::new(Box::new(tls.accept(plain.into_inner()).await?));
        self.security = Security::Tls;
        // What the client said before can have been anybody's words.
        (self.user, self.from, self.to) = (None, None, Vec::new());
        Ok(())
    }

    async fn auth(&mut self, rest: &str) -> io::Result<()> {
        let Some(User { name, password }) = self.setup.user.clone() else {
            return self.say("502 5.5.1 no AUTH here").await.map(drop);
        };
        // SASL PLAIN: base64 of NUL, name, NUL, password.
        let is_right = rest == format!("PLAIN {}", STANDARD.encode(format!("\0{name}\0{password}")));
        let usual = if is_right { "235 2.7.0 welcome" } else { "535 5.7.8 wrong user or password" };
        self.user = self.reply(Phase::Auth, usual).await?.then_some(name);
        Ok(())
    }

    async fn data(&mut self) -> io::Result<()> {
        if self.from.is_none() || self.to.is_empty() {
            return self.say("503 5.5.1 MAIL and RCPT first").await.map(drop);
        }
        if !self.reply(Phase::Data, "354 end with a dot").await? {
            return Ok(());
        }
        let raw = self.message().await?;
        let (from, to) = (self.from.take().unwrap_or_default(), std::mem::take(&mut self.to));
        if self.reply(Phase::Message, "250 2.0.0 caught").await? {
            let (user, connection, security) = (self.user.clone(), self.connection, self.security);
            let mail = CaughtMail { from, to, raw, security, user, connection, arrived: Instant::now() };
            // Nobody listens any more only while the catcher is being dropped.
            let _ = self.shared.1.send(mail).await;
        }
        Ok(())
    }

    /// The message up to its final dot. A line's first dot is one too many (RFC 5321, 4.5.2).
    async fn message(&mut self) -> io::Result<Vec<u8>> {
        let mut raw = Vec::new();
        loop {
            let piece = self.piece().await?;
            if piece.is_empty() || raw.len() > MESSAGE_BYTES_MAX {
                return Err(closed());
            }
            // A line longer than what is read at once goes on in the next piece, which has no dot to take away.
            let begins = raw.is_empty() || raw.ends_with(b"\n");
            match piece.strip_prefix(b".") {
                Some(b"\r\n") if begins => return Ok(raw),
                Some(rest) if begins => raw.extend_from_slice(rest),
                _ => raw.extend_from_slice(&piece),
            }
        }
    }

    /// Gives the programmed reply of this phase, or else the usual one; whether it is positive, and the command takes
    /// effect.
    async fn reply(&mut self, phase: Phase, usual: &str) -> io::Result<bool> {
        let programmed = locked(&self.shared.0).reply(phase);
        match programmed {
            None => self.say(usual).await,
            Some(Reply::Say(line)) => self.say(line).await,
            Some(Reply::Close) => Err(closed()),
            Some(Reply::Hang) => {
                // Until the client closes: then reading ends.
                while self.line().await?.is_some() {}
                Err(closed())
            }
        }
    }

    async fn say(&mut self, line: &str) -> io::Result<bool> {
        self.stream.write_all(format!("{line}\r\n").as_bytes()).await?;
        self.stream.flush().await?;
        Ok(line.starts_with(['2', '3']))
    }

    /// The next line without its end; `None` when the client has left.
    async fn line(&mut self) -> io::Result<Option<String>> {
        let piece = self.piece().await?;
        Ok((!piece.is_empty()).then(|| String::from_utf8_lossy(&piece).trim_end().to_owned()))
    }

    /// The next line with its end, or as much of it as is read at once; empty when the client has left.
    async fn piece(&mut self) -> io::Result<Vec<u8>> {
        let mut piece = Vec::new();
        (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut piece).await?;
        Ok(piece)
    }
}

fn closed() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// `FROM:<a@b.test> BODY=8BITMIME` as `a@b.test`.
fn address_in(argument: &str) -> String {
    let inside = argument.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inside.map(|(address, _)| address.to_owned()).unwrap_or_default()
}
