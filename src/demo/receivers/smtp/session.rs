//! One conversation with a client.

use std::io;
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio_rustls::server::TlsStream;

use super::setup::{CaughtMail, Phase, Reply, Security, Shared, User};

/// The longest line that is read at once; SMTP allows 1000 bytes.
const LINE_BYTES_MAX: u64 = 4096;
/// The largest message that is kept.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A stream that a conversation runs over.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// How a conversation goes on.
enum Then {
    /// With the next command.
    Listen,
    /// With a TLS handshake.
    Upgrade,
    /// Not at all.
    End,
}

struct Session<S> {
    stream: BufReader<S>,
    security: Security,
    shared: Shared,
    number: u64,
    user: Option<String>,
    envelope: Envelope,
}

#[derive(Default)]
struct Envelope {
    from: Option<String>,
    to: Vec<String>,
}

/// Talks to one client until it leaves.
///
/// # Errors
///
/// When the connection breaks.
pub(super) async fn run<S: Stream>(stream: S, security: Security, shared: Shared, number: u64) -> io::Result<()> {
    let mut session = Session::new(stream, security, shared, number);
    let greeted = session.reply(Phase::Greeting, "220 catcher.test ESMTP").await?;
    let ended = if greeted == Said::Nothing { Then::End } else { session.listen().await? };
    if !matches!(ended, Then::Upgrade) {
        return Ok(());
    }
    let Session { stream, shared, .. } = session;
    let Some(tls) = shared.setup.start_tls.clone() else { return Ok(()) };
    let stream: TlsStream<S> = tls.accept(stream.into_inner()).await?;
    // Upgraded once: the session over TLS offers no further STARTTLS.
    Session::new(stream, Security::Tls, shared, number).listen().await.map(|_| ())
}

/// What came of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// A positive one: the command takes effect.
    Yes,
    /// A negative one.
    No,
    /// The connection is to end.
    Nothing,
}

impl<S: Stream> Session<S> {
    fn new(stream: S, security: Security, shared: Shared, number: u64) -> Self {
        let stream = BufReader::new(stream);
        Self { stream, security, shared, number, user: None, envelope: Envelope::default() }
    }

    async fn listen(&mut self) -> io::Result<Then> {
        while let Some(line) = self.line().await? {
            match self.obey(&line).await? {
                Then::Listen => {}
                then => return Ok(then),
            }
        }
        Ok(Then::End)
    }

    async fn obey(&mut self, line: &str) -> io::Result<Then> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let said = match verb.to_ascii_uppercase().as_str() {
            "EHLO" | "HELO" => {
                let offer = self.offer();
                self.reply(Phase::Ehlo, &offer).await?
            }
            "STARTTLS" if self.shared.setup.start_tls.is_some() && self.security == Security::Plain => {
                let said = self.reply(Phase::StartTls, "220 go ahead").await?;
                if said == Said::Yes {
                    return Ok(Then::Upgrade);
                }
                said
            }
            "AUTH" => self.auth(rest).await?,
            "MAIL" => self.mail(rest).await?,
            "RCPT" => {
                let said = self.reply(Phase::Rcpt, "250 2.1.5 ok").await?;
                if said == Said::Yes {
                    self.envelope.to.push(address_in(rest));
                }
                said
            }
            "DATA" => self.data().await?,
            "RSET" => {
                self.envelope = Envelope::default();
                self.reply(Phase::Rset, "250 2.0.0 ok").await?
            }
            "NOOP" => self.reply(Phase::Noop, "250 2.0.0 ok").await?,
            "QUIT" => {
                self.reply(Phase::Quit, "221 2.0.0 bye").await?;
                return Ok(Then::End);
            }
            _ => self.say("502 5.5.1 not implemented").await?,
        };
        Ok(if said == Said::Nothing { Then::End } else { Then::Listen })
    }

    fn offer(&self) -> String {
        let setup = &self.shared.setup;
        let start_tls = (setup.start_tls.is_some() && self.security == Security::Plain).then_some("STARTTLS");
        let auth = setup.user.is_some().then_some("AUTH PLAIN LOGIN");
        let mut lines: Vec<&str> = vec!["catcher.test"];
        lines.extend(setup.extensions.iter().copied().chain(start_tls).chain(auth));
        lines.push("8BITMIME");
        let last = lines.len() - 1;
        let numbered = |(at, line)| format!("250{}{line}", if at < last { '-' } else { ' ' });
        lines.into_iter().enumerate().map(numbered).collect::<Vec<_>>().join("\r\n")
    }

    async fn auth(&mut self, rest: &str) -> io::Result<Said> {
        let Some(known) = self.shared.setup.user.clone() else { return self.say("502 5.5.1 no AUTH here").await };
        if let Some(reply) = self.shared.script.take(Phase::Auth) {
            return self.act(reply).await;
        }
        let given = match rest.split_once(' ').unwrap_or((rest, "")) {
            ("PLAIN", response) => plain(response),
            ("LOGIN", _) => {
                let name = self.ask("334 VXNlcm5hbWU6").await?;
                let password = self.ask("334 UGFzc3dvcmQ6").await?;
                Some(User { name, password })
            }
            _ => None,
        };
        if given.as_ref() != Some(&known) {
            return self.say("535 5.7.8 wrong user or password").await;
        }
        self.user = Some(known.name);
        self.say("235 2.7.0 welcome").await
    }

    async fn ask(&mut self, challenge: &str) -> io::Result<String> {
        self.say(challenge).await?;
        let answer = self.line().await?.unwrap_or_default();
        Ok(STANDARD.decode(answer).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default())
    }

    async fn mail(&mut self, rest: &str) -> io::Result<Said> {
        if self.shared.setup.user.is_some() && self.user.is_none() {
            return self.say("530 5.7.0 authenticate first").await;
        }
        let said = self.reply(Phase::Mail, "250 2.1.0 ok").await?;
        if said == Said::Yes {
            self.envelope = Envelope { from: Some(address_in(rest)), to: Vec::new() };
        }
        Ok(said)
    }

    async fn data(&mut self) -> io::Result<Said> {
        if self.envelope.from.is_none() || self.envelope.to.is_empty() {
            return self.say("503 5.5.1 MAIL and RCPT first").await;
        }
        let said = self.reply(Phase::Data, "354 end with a dot").await?;
        if said != Said::Yes {
            return Ok(said);
        }
        let raw = self.message().await?;
        let Envelope { from, to } = std::mem::take(&mut self.envelope);
        let said = self.reply(Phase::Message, "250 2.0.0 caught").await?;
        if said == Said::Yes {
            let (user, connection, security) = (self.user.clone(), self.number, self.security);
            let from = from.unwrap_or_default();
            let mail = CaughtMail { from, to, raw, security, user, connection, arrived: Instant::now() };
            // Nobody listens any more only while the catcher is being dropped.
            let _ = self.shared.caught.send(mail).await;
        }
        Ok(said)
    }

    /// The message up to its final dot. A line's first dot is one too many (RFC 5321, 4.5.2).
    async fn message(&mut self) -> io::Result<Vec<u8>> {
        let mut raw = Vec::new();
        loop {
            let mut line = Vec::new();
            let read = (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
            if read == 0 || raw.len() > MESSAGE_BYTES_MAX {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // A line longer than what is read at once goes on in the next piece, which has no dot to take away.
            let begins = raw.is_empty() || raw.ends_with(b"\n");
            match line.strip_prefix(b".") {
                Some(b"\r\n") if begins => return Ok(raw),
                Some(rest) if begins => raw.extend_from_slice(rest),
                _ => raw.extend_from_slice(&line),
            }
        }
    }

    async fn reply(&mut self, phase: Phase, usual: &str) -> io::Result<Said> {
        match self.shared.script.take(phase) {
            None => self.say(usual).await,
            Some(reply) => self.act(reply).await,
        }
    }

    async fn act(&mut self, reply: Reply) -> io::Result<Said> {
        match reply {
            Reply::Say(line) => self.say(line).await,
            Reply::Close => Ok(Said::Nothing),
            Reply::Hang => {
                // Until the client closes: then reading ends.
                while self.line().await?.is_some() {}
                Ok(Said::Nothing)
            }
        }
    }

    async fn say(&mut self, line: &str) -> io::Result<Said> {
        self.stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).await?;
        self.stream.get_mut().flush().await?;
        Ok(if line.starts_with(['2', '3']) { Said::Yes } else { Said::No })
    }

    /// The next line without its end; `None` when the client has left.
    async fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let read = (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
        if read == 0 {
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()))
    }
}

/// `FROM:<a@b.test> BODY=8BITMIME` as `a@b.test`.
fn address_in(argument: &str) -> String {
    let inside = argument.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inside.map(|(address, _)| address.to_owned()).unwrap_or_default()
}

/// SASL PLAIN: base64 of NUL, name, NUL, password.
fn plain(response: &str) -> Option<User> {
    let text = String::from_utf8(STANDARD.decode(response).ok()?).ok()?;
    let mut parts = text.split('\0').skip(1).map(str::to_owned);
    Some(User { name: parts.next()?, password: parts.next()? })
}
