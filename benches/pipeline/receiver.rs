//! A receiver of webhooks or emails, as a separate process, so that its CPU time does not count for the sender.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::receivers::{SmtpCatcher, SmtpSetup};
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Marks the bench's binary as a receiver; the protocol follows as JSON.
pub const FLAG: &str = "--receiver";
/// Webhooks to this path are refused for good.
pub const REFUSING_PATH: &str = "/refusing";
/// The response to them.
const UNPROCESSABLE: &[u8] = b"HTTP/1.1 422 Unprocessable\r\nContent-Length: 0\r\n\r\n";
/// The response to every other webhook.
const NO_CONTENT: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

/// The protocol of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// Webhooks, at every address of 127.0.0.0/8.
    Http,
    /// Emails.
    Smtp,
}

/// Number of received messages.
static RECEIVED: AtomicU64 = AtomicU64::new(0);

/// A running receiver. Killed on drop.
#[derive(Debug)]
pub struct Receiver {
    child: Child,
    questions: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// Its port.
    pub port: u16,
}

impl Receiver {
    /// Starts one.
    pub fn start(protocol: Protocol) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([FLAG, &serde_json::to_string(&protocol)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a receiver")?;
        let questions = child.stdin.take().context("stdin is piped")?;
        let answers = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
        let mut receiver = Self { child, questions, answers, port: 0 };
        receiver.port = receiver.answer()?.try_into()?;
        Ok(receiver)
    }

    /// Number of received messages.
    pub fn received(&mut self) -> anyhow::Result<u64> {
        self.questions.write_all(b"\n")?;
        self.answer()
    }

    fn answer(&mut self) -> anyhow::Result<u64> {
        Ok(self.answers.next().context("the receiver ended")??.parse()?)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The receiver itself: prints its port, and the number of received messages after each line on stdin.
pub fn serve(protocol: &str) -> anyhow::Result<()> {
    let protocol: Protocol = serde_json::from_str(protocol)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(|| {
        for _ in std::io::stdin().lines() {
            println!("{}", RECEIVED.load(Ordering::Relaxed));
        }
    });
    match protocol {
        Protocol::Http => runtime.block_on(serve_http()),
        Protocol::Smtp => runtime.block_on(serve_smtp()),
    }
}

async fn serve_smtp() -> anyhow::Result<()> {
    let mut catcher = SmtpCatcher::start(SmtpSetup::default()).await?;
    println!("{}", catcher.address().port());
    loop {
        catcher.next().await;
        RECEIVED.fetch_add(1, Ordering::Relaxed);
    }
}

async fn serve_http() -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    println!("{}", listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        // A connection that ends within a request is not counted: the bench then times out and reports it.
        tokio::spawn(answer_all(stream));
    }
}

/// A minimal server that answers each POST on one connection, because the bench measures the sender.
async fn answer_all(mut stream: TcpStream) -> anyhow::Result<()> {
    let mut held = Vec::new();
    loop {
        while let Some(length) = request_length(&held)? {
            let is_refused = held[..length].starts_with(format!("POST {REFUSING_PATH} ").as_bytes());
            held.drain(..length);
            RECEIVED.fetch_add(1, Ordering::Relaxed);
            stream.write_all(if is_refused { UNPROCESSABLE } else { NO_CONTENT }).await?;
        }
        if stream.read_buf(&mut held).await? == 0 {
            return Ok(());
        }
    }
}

/// Length of the request at the start of these bytes; `None` while it is incomplete.
fn request_length(held: &[u8]) -> anyhow::Result<Option<usize>> {
    let Some(end) = held.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&held[..end])?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).context("no length")?;
    let whole = end + 4 + length.trim().parse::<usize>()?;
    Ok((held.len() >= whole).then_some(whole))
}
