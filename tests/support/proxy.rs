//! A TCP proxy before a server that breaks connections as networks do: lost replies, frames that end in the middle,
//! silence, a side that is gone while the other does not know it.
//!
//! A connection that continues never loses a byte: held bytes arrive later or the connection ends. A stream with a hole
//! would be a fault of the test.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A fault of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Once: drops the reply to the next script, with its connection. The script has run, but its caller does not know.
    LoseReply,
    /// Once: ends the connection in the middle of the next reply.
    CutReply,
    /// Once: ends the connection in the middle of the next request.
    CutRequest,
    /// Once: disconnects the caller after its next request; the server keeps its side open.
    HalfOpen,
    /// Delays everything by this time.
    Delay(Duration),
    /// Passes everything in two halves.
    Split,
    /// Passes nothing in either direction; keeps connections open, and accepts new ones.
    BlackHole,
    /// Passes scripts, but no replies on their connections.
    HoldReplies,
    /// Holds scripts and requests behind them; earlier requests are answered.
    HoldScripts,
    /// Drops a primary's data for its replicas.
    BlackHoleReplication,
}

/// A running proxy. It ends with the test's runtime.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: watch::Sender<u16>,
    fault: watch::Sender<Fault>,
    /// Increases to cut all connections.
    cuts: watch::Sender<u64>,
}

/// State that the two directions of one connection share.
#[derive(Debug, Default)]
struct Connection {
    script_sent: AtomicBool,
    is_replication: AtomicBool,
    /// The caller is gone and the server must not know it.
    is_half_open: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

/// What happens to a connection after some bytes.
enum Then {
    Go,
    End,
}

impl Proxy {
    /// Leads to this port of 127.0.0.1; with 0 to nothing until [`Self::turn`].
    pub async fn to(target: u16) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").await.expect("a free port"), target)
    }

    fn listening(listener: TcpListener, target: u16) -> Self {
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            target: watch::Sender::new(target),
            fault: watch::Sender::new(Fault::None),
            cuts: watch::Sender::new(0),
        });
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                tokio::spawn(serving.clone().pass(caller));
            }
        });
        Self { port, shared }
    }

    /// Its own port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The value of `redis.url`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Applies this fault from now on, or once.
    pub fn set(&self, fault: Fault) {
        self.shared.fault.send_replace(fault);
    }

    /// Waits until a one-time fault has occurred.
    pub async fn done(&self) {
        let mut fault = self.shared.fault.subscribe();
        fault.wait_for(|fault| !fault.is_done_once()).await.expect("the proxy lives");
    }

    /// Whether a one-time fault has occurred.
    pub fn is_done(&self) -> bool {
        !self.shared.fault.borrow().is_done_once()
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// New connections lead to this port; the others stay as they are.
    pub fn lead_to(&self, target: u16) {
        self.shared.target.send_replace(target);
    }

    /// Cuts all connections; new ones lead to this port.
    pub fn turn(&self, target: u16) {
        self.lead_to(target);
        self.cut();
    }
}

impl Fault {
    const fn is_done_once(self) -> bool {
        matches!(self, Self::LoseReply | Self::CutReply | Self::CutRequest | Self::HalfOpen)
    }

    /// Whether the proxy holds bytes of this direction.
    fn holds(self, direction: Direction, connection: &Connection) -> bool {
        match self {
            Self::BlackHole => true,
            Self::HoldReplies => direction == Direction::Replies && connection.script_sent.load(Ordering::Relaxed),
            Self::HoldScripts => direction == Direction::Requests && connection.script_sent.load(Ordering::Relaxed),
            Self::BlackHoleReplication => connection.is_replication.load(Ordering::Relaxed),
            _ => false,
        }
    }
}

impl Shared {
    /// Passes bytes until one side ends or all connections are cut.
    async fn pass(self: Arc<Self>, caller: TcpStream) {
        let mut cuts = self.cuts.subscribe();
        cuts.mark_unchanged();
        let port = *self.target.borrow();
        let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
        let _ = (caller.set_nodelay(true), server.set_nodelay(true));
        let connection = Connection::default();
        let (mut from_caller, mut to_caller) = caller.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let passing = async {
            // The end of one direction ends both, unless the server must not know it.
            tokio::select! {
                () = self.pump(Direction::Requests, &mut from_caller, &mut to_server, &connection) => {}
                () = self.pump(Direction::Replies, &mut from_server, &mut to_caller, &connection) => {}
            }
            if connection.is_half_open.load(Ordering::Relaxed) {
                drop((from_caller, to_caller));
                // The server's side stays open until the server, or the test, ends it.
                let mut unread = [0; 4096];
                while from_server.read(&mut unread).await.is_ok_and(|bytes| bytes > 0) {}
            }
        };
        tokio::select! {
            () = passing => {}
            _ = cuts.changed() => {}
        }
    }

    async fn pump(
        &self,
        direction: Direction,
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        connection: &Connection,
    ) {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from.read(&mut bytes).await {
            if !matches!(self.send(direction, &bytes[..read], to, connection).await, Ok(Then::Go)) {
                return;
            }
        }
    }

    /// Sends bytes of a connection, unless there is a fault.
    async fn send(
        &self,
        direction: Direction,
        bytes: &[u8],
        to: &mut OwnedWriteHalf,
        connection: &Connection,
    ) -> std::io::Result<Then> {
        if direction == Direction::Requests {
            connection.script_sent.fetch_or(holds_word(bytes, b"EVALSHA"), Ordering::Relaxed);
            connection.is_replication.fetch_or(holds_word(bytes, b"PSYNC"), Ordering::Relaxed);
        }
        let mut faults = self.fault.subscribe();
        let fault = *faults.wait_for(|fault| !fault.holds(direction, connection)).await.expect("the proxy lives");
        let once = |fault: Fault| {
            self.fault.send_if_modified(|now| {
                let is_armed = *now == fault;
                if is_armed {
                    *now = Fault::None;
                }
                is_armed
            })
        };
        match (fault, direction) {
            (Fault::LoseReply, Direction::Replies) if connection.script_sent.load(Ordering::Relaxed) && once(fault) => {
                return Ok(Then::End);
            }
            (Fault::CutReply, Direction::Replies) | (Fault::CutRequest, Direction::Requests)
                if bytes.len() > 1 && once(fault) =>
            {
                to.write_all(&bytes[..bytes.len() / 2]).await?;
                to.flush().await?;
                return Ok(Then::End);
            }
            (Fault::HalfOpen, Direction::Requests) if once(fault) => {
                to.write_all(bytes).await?;
                connection.is_half_open.store(true, Ordering::Relaxed);
                return Ok(Then::End);
            }
            (Fault::Delay(time), _) => {
                let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
                to.write_all(bytes).await?;
            }
            (Fault::Split, _) => {
                let (first, rest) = bytes.split_at(bytes.len() / 2);
                to.write_all(first).await?;
                to.flush().await?;
                tokio::task::yield_now().await;
                to.write_all(rest).await?;
            }
            _ => to.write_all(bytes).await?,
        }
        Ok(Then::Go)
    }
}

fn holds_word(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}
