//! Servers that follow a script for every client, in any protocol: texts to send, texts to wait for, and faults.
//! Well-behaved servers are in `crate::support::receivers`.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::eventually::WAIT_MAX;
use super::tls_flood::TlsFlood;

/// Interval between the pieces of a dripping server.
const DRIP_INTERVAL: Duration = Duration::from_millis(5);

/// A step of a server. After the last step it closes the connection.
#[derive(Clone)]
pub enum Step {
    /// Reads until this text has arrived.
    Hear(&'static str),
    /// Sends this.
    Say(&'static str),
    /// Sends this repeatedly, as fast as possible, until the client closes.
    Flood(&'static str),
    /// The same, slowly.
    Drip(&'static str),
    /// Uses TLS from here on.
    Tls(TlsAcceptor),
    /// Completes the handshake, and floods below TLS until the client closes.
    TlsFlood(TlsAcceptor, TlsFlood),
    /// Reads and sends nothing until the client closes.
    Hang,
    /// Stops reading, and keeps the connection until the server is dropped.
    Ignore,
    /// Resets the connection.
    Reset,
}

/// The error of an attempt to a server that sends endlessly before its reply.
pub const FLOODED: &str = "more than 256 KiB came before the answer";
/// The end of the head of an HTTP request.
pub const REQUEST: Step = Step::Hear("\r\n\r\n");

/// A server on a free port of 127.0.0.1. Stops on drop.
#[derive(Debug)]
pub struct ScriptedServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Number of bytes sent.
    sent: AtomicU64,
    /// Number of awaited texts that have arrived.
    heard: watch::Sender<usize>,
    /// Number of clients that were served to the end.
    served: watch::Sender<usize>,
}

impl ScriptedServer {
    pub async fn start(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::start_at("127.0.0.1:0", steps).await
    }

    /// The same on every address of this machine: 127.x.x.x.
    pub async fn start_everywhere(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::start_at("0.0.0.0:0", steps).await
    }

    async fn start_at(at: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        let listener = TcpListener::bind(at).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (shared, steps): (_, Vec<Step>) = (Arc::new(Shared::default()), steps.into_iter().collect());
        let for_clients = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            // Dropped with this task, which ends the conversations.
            let mut clients = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let (steps, shared) = (steps.clone(), Arc::clone(&for_clients));
                clients.spawn(async move {
                    let _ = play(stream, &steps, &shared).await;
                    shared.served.send_modify(|served| *served += 1);
                });
            }
        });
        Self { address, shared, task }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:<port>/hook`.
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Number of bytes sent, including bytes in the kernel's buffers.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Number of clients that were served to the end, or have left.
    pub fn served(&self) -> usize {
        *self.shared.served.borrow()
    }

    /// Waits until this number of clients was served to the end, or has left.
    pub async fn has_served(&self, clients: usize) {
        let mut served = self.shared.served.subscribe();
        let all = served.wait_for(|served| *served >= clients);
        tokio::time::timeout(WAIT_MAX, all).await.expect("the clients leave in time").expect("the server lives");
    }

    /// Number of awaited texts that have arrived.
    pub fn heard(&self) -> usize {
        *self.shared.heard.borrow()
    }

    /// Waits until this number of awaited texts has arrived.
    pub async fn has_heard(&self, texts: usize) {
        let mut heard = self.shared.heard.subscribe();
        let all = heard.wait_for(|heard| *heard >= texts);
        tokio::time::timeout(WAIT_MAX, all).await.expect("the clients speak in time").expect("the server lives");
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

async fn play(stream: TcpStream, steps: &[Step], shared: &Shared) -> std::io::Result<()> {
    let sent = &shared.sent;
    if steps.iter().any(|step| matches!(step, Step::Reset)) {
        stream.set_zero_linger()?;
    }
    stream.set_nodelay(true)?;
    let mut stream: Box<dyn Stream> = Box::new(stream);
    for step in steps {
        match step {
            Step::Hear(text) => {
                hear(&mut stream, text.as_bytes()).await?;
                shared.heard.send_modify(|heard| *heard += 1);
            }
            Step::Say(text) => say(&mut stream, text, sent).await?,
            Step::Flood(text) => {
                let many = text.repeat((64 * 1024 / text.len()).max(1));
                loop {
                    say(&mut stream, &many, sent).await?;
                }
            }
            Step::Drip(text) => {
                let mut interval = tokio::time::interval(DRIP_INTERVAL);
                loop {
                    interval.tick().await;
                    say(&mut stream, text, sent).await?;
                }
            }
            Step::Tls(acceptor) => stream = Box::new(acceptor.accept(stream).await?),
            Step::TlsFlood(acceptor, flood) => return flood.run(acceptor.accept(stream).await?, sent).await,
            Step::Hang => hear(&mut stream, b"nobody says this").await?,
            Step::Ignore => std::future::pending().await,
            // Dropping the connection resets it, because it does not linger.
            Step::Reset => return Ok(()),
        }
    }
    stream.shutdown().await
}

async fn say(stream: &mut Box<dyn Stream>, text: &str, sent: &AtomicU64) -> std::io::Result<()> {
    stream.write_all(text.as_bytes()).await?;
    sent.fetch_add(text.len() as u64, Ordering::Relaxed);
    stream.flush().await
}

/// Reads until `text` has arrived; fails if the client leaves.
async fn hear(stream: &mut Box<dyn Stream>, text: &[u8]) -> std::io::Result<()> {
    let mut last = Vec::new();
    while !last.ends_with(text) {
        last.push(stream.read_u8().await?);
        // Enough for any text, and a bound for a client that never stops.
        if last.len() > 64 * 1024 {
            last.drain(..last.len() - text.len());
        }
    }
    Ok(())
}
