//! A caller's connection that does not wait for ever.
//!
//! hyper has one deadline for a head, and lets it run while a connection is idle too. Here these are two, because a pool of idle
//! connections is what API nodes should keep, and half a head is not. How long a body may take is not judged here: see
//! [`super::body`]. Read next: [`super::serving`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How long callers are waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// How long a request's head may take: from its first byte, the first one of a connection from its opening. And how long an
    /// answer may wait for a caller that does not read.
    pub head: Duration,
    /// How long a connection may lie idle after an answer.
    pub idle: Duration,
}

const LISTENING: u8 = 0;
const SERVING: u8 = 1;
const ANSWERED: u8 = 2;

/// Whose turn it is, told by those who answer.
#[derive(Debug, Clone, Default)]
pub struct Turn(Arc<AtomicU8>);

impl Turn {
    /// A head is there: it is our turn.
    pub fn serving(&self) {
        self.0.store(SERVING, Ordering::Relaxed);
    }

    /// There is an answer: it will be the caller's turn.
    pub fn answered(&self) {
        self.0.store(ANSWERED, Ordering::Relaxed);
    }

    fn is_ours(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SERVING
    }

    fn begins(&self) -> bool {
        self.0.compare_exchange(ANSWERED, LISTENING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// What is waited for while it is the caller's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// The first byte of another request.
    Request,
    /// The rest of a head.
    Head,
}

/// A connection whose reads and writes fail with [`io::ErrorKind::TimedOut`] where the caller lets them wait too long.
#[derive(Debug)]
pub struct Patient<S> {
    stream: S,
    patience: Patience,
    turn: Turn,
    awaited: Awaited,
    read_until: Pin<Box<Sleep>>,
    /// Only there while a write waits.
    write_until: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    /// A connection that was opened now.
    pub fn new(stream: S, patience: Patience, turn: Turn) -> Self {
        let read_until = Box::pin(tokio::time::sleep(patience.head));
        Self { stream, patience, turn, awaited: Awaited::Head, read_until, write_until: None }
    }

    fn wait_for(&mut self, awaited: Awaited) {
        let patience = match awaited {
            Awaited::Request => self.patience.idle,
            Awaited::Head => self.patience.head,
        };
        self.awaited = awaited;
        self.read_until.as_mut().reset(Instant::now() + patience);
    }

    fn written(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.write_until = None;
            return written;
        }
        let patience = self.patience.head;
        let until = self.write_until.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        until.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.turn.begins() {
            this.wait_for(Awaited::Request);
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if read.is_pending() {
            // While we serve, reads only look whether the caller is still there, or belong to a body.
            if this.turn.is_ours() {
                return Poll::Pending;
            }
            return this.read_until.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()));
        }
        if this.awaited == Awaited::Request && buffer.filled().len() > before {
            this.wait_for(Awaited::Head);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.written(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, parts);
        this.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // An answer is on its way. hyper need not read again before the caller says something, so the deadline must wake it.
        if this.turn.begins() {
            this.wait_for(Awaited::Request);
            let _ = this.read_until.as_mut().poll(cx);
        }
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
