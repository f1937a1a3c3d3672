//! Receives emails: a small SMTP server that accepts every message.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Catcher;

/// Maximum number of bytes read at once; SMTP allows lines of 1000 bytes.
const LINE_BYTES_MAX: u64 = 4096;
/// Maximum size of a message.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One email as it arrived.
#[derive(Debug, Clone)]
pub struct CaughtMail {
    /// The address of MAIL FROM, without brackets.
    pub from: String,
    /// The addresses of RCPT TO, without brackets.
    pub to: Vec<String>,
    /// The message as it was written: CRLF line ends, dots unstuffed, without the final dot.
    pub text: String,
    /// When its final dot arrived.
    pub arrived: Instant,
}

/// An SMTP server.
pub type SmtpCatcher = Catcher<CaughtMail>;

impl SmtpCatcher {
    /// Starts a server on this address.
    pub async fn start_on(address: SocketAddr) -> io::Result<Self> {
        Self::bind(address, accept).await
    }

    /// `smtp://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("smtp://{}", self.address)
    }
}

async fn accept(listener: TcpListener, caught: mpsc::Sender<CaughtMail>) {
    // Dropped with this task, and ends the conversations with it.
    let mut sessions = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while sessions.try_join_next().is_some() {}
        sessions.spawn(serve(BufReader::new(stream), caught.clone()));
    }
}

/// Talks to one client until it leaves or the connection breaks.
async fn serve(mut stream: BufReader<TcpStream>, caught: mpsc::Sender<CaughtMail>) -> io::Result<()> {
    let (mut from, mut to) = (String::new(), Vec::new());
    say(&mut stream, "220 catcher.test ESMTP").await?;
    loop {
        let line = read_line(&mut stream).await?;
        let line = String::from_utf8_lossy(&line);
        let (command, argument) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        let reply = match command.to_ascii_uppercase().as_str() {
            "EHLO" | "HELO" => "250-catcher.test\r\n250 8BITMIME",
            "MAIL" => {
                (from, to) = (address_in(argument), Vec::new());
                "250 2.1.0 ok"
            }
            "RCPT" => {
                to.push(address_in(argument));
                "250 2.1.5 ok"
            }
            "DATA" if to.is_empty() => "503 5.5.1 MAIL and RCPT first",
            "DATA" => {
                say(&mut stream, "354 end with a dot").await?;
                let raw = read_message(&mut stream).await?;
                let text = String::from_utf8_lossy(&raw).into_owned();
                let (from, to) = (std::mem::take(&mut from), std::mem::take(&mut to));
                // Sending fails only while the catcher is being dropped.
                let _ = caught.send(CaughtMail { from, to, text, arrived: Instant::now() }).await;
                "250 2.0.0 caught"
            }
            "RSET" | "NOOP" => "250 2.0.0 ok",
            "QUIT" => return say(&mut stream, "221 2.0.0 bye").await,
            _ => "502 5.5.1 not implemented",
        };
        say(&mut stream, reply).await?;
    }
}

/// Reads a message up to its final dot. The first dot of a line is removed (RFC 5321, 4.5.2).
async fn read_message(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut raw = Vec::new();
    while raw.len() <= MESSAGE_BYTES_MAX {
        let piece = read_line(stream).await?;
        // A line that is longer than a piece continues in the next one, which has no dot to remove.
        let begins_line = raw.is_empty() || raw.ends_with(b"\n");
        match piece.strip_prefix(b".") {
            Some(b"\r\n") if begins_line => return Ok(raw),
            Some(rest) if begins_line => raw.extend_from_slice(rest),
            _ => raw.extend_from_slice(&piece),
        }
    }
    Err(io::ErrorKind::FileTooLarge.into())
}

/// Reads a line with its end, or its first [`LINE_BYTES_MAX`] bytes.
async fn read_line(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    match stream.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line),
    }
}

async fn say(stream: &mut BufReader<TcpStream>, reply: &str) -> io::Result<()> {
    stream.write_all(format!("{reply}\r\n").as_bytes()).await
}

/// `FROM:<a@b.test> BODY=8BITMIME` as `a@b.test`.
fn address_in(argument: &str) -> String {
    let inside = argument.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inside.map(|(address, _)| address.to_owned()).unwrap_or_default()
}
