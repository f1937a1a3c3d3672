//! A TCP proxy before a server, which breaks connections as networks do: answers that never arrive, frames that end in
//! the middle, silence, one side that is gone while the other does not know.
//!
//! No byte is ever left out of a connection that goes on: what a network holds back arrives later or the connection
//! ends, and a stream with a hole would be a fault of the test.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the proxy does to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Once: the answer to the next script is dropped with its connection. The script has run, and its caller does not
    /// know.
    LoseReply,
    /// Once: the connection ends in the middle of the next answer.
    CutReply,
    /// Once: the connection ends in the middle of the next request.
    CutRequest,
    /// Once: the caller is cut off after its next request; the server is not told and holds the connection.
    HalfOpen,
    /// Whatever passes takes so much longer.
    Delay(Duration),
    /// Everything passes in two halves.
    Split,
    /// Nothing passes in either direction; connections stay open, and new ones are accepted.
    BlackHole,
    /// Scripts pass, and nothing comes back on their connections.
    HoldReplies,
    /// Scripts wait, and what is asked behind them; what was asked before is answered.
    HoldScripts,
    /// What a primary sends to its replicas does not pass.
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
    /// Grows when all connections are to be cut.
    cuts: watch::Sender<u64>,
}

/// What the two directions of one connection know of each other.
#[derive(Debug, Default)]
struct Connection {
    script_sent: AtomicBool,
    is_replication: AtomicBool,
    /// The caller is gone and the server is not to know.
    is_half_open: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

/// What becomes of a connection after some bytes of it.
enum Then {
    Go,
    End,
}

impl Proxy {
    /// Leads to this port of 127.0.0.1; to nothing, with 0, until [`Self::turn`].
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

    /// What `redis.url` is set to.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Does this from now on, or once.
    pub fn set(&self, fault: Fault) {
        self.shared.fault.send_replace(fault);
    }

    /// Waits until a fault that is done once has been done.
    pub async fn done(&self) {
        let mut fault = self.shared.fault.subscribe();
        fault.wait_for(|fault| !fault.is_done_once()).await.expect("the proxy lives");
    }

    /// Whether a fault that is done once has been done by now.
    pub fn is_done(&self) -> bool {
        !self.shared.fault.borrow().is_done_once()
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Cuts all connections; new ones lead to this port.
    pub fn turn(&self, target: u16) {
        self.shared.target.send_replace(target);
        self.cut();
    }
}

impl Fault {
    const fn is_done_once(self) -> bool {
        matches!(self, Self::LoseReply | Self::CutReply | Self::CutRequest | Self::HalfOpen)
    }

    /// Whether bytes of this direction wait.
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
    /// Passes bytes on until one side ends or all connections are cut.
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
            // Whichever direction ends first ends both, unless the server is not to know.
            tokio::select! {
                () = self.pump(Direction::Requests, &mut from_caller, &mut to_server, &connection) => {}
                () = self.pump(Direction::Replies, &mut from_server, &mut to_caller, &connection) => {}
            }
            if connection.is_half_open.load(Ordering::Relaxed) {
                drop((from_caller, to_caller));
                // The server's side stays as it is until the server, or the test, ends it.
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

    /// Sends some bytes of a connection on, unless there is a fault.
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
