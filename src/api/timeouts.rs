//! Timeouts of a caller's connection.
//!
//! hyper has one timeout for a request's head, which runs while a connection is idle too. Here these are two: API nodes
//! should keep idle connections open, and half a head should not be. How long a body may take is decided in
//! [`super::body`]. Read next: [`super::server`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How long a connection may wait for its caller.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// How long a request's head may take, from its first byte; the first head of a connection, from its opening. Also
    /// how long a response may wait for a caller that does not read.
    pub head: Duration,
    /// How long a connection may be idle after a response.
    pub idle: Duration,
}

const READING: u8 = 0;
const SERVING: u8 = 1;
const RESPONDED: u8 = 2;

/// The phase of the current request, set by the service that answers it.
#[derive(Debug, Clone, Default)]
pub struct RequestPhase(Arc<AtomicU8>);

impl RequestPhase {
    /// The head was read; the service works on the request.
    pub fn set_serving(&self) {
        self.0.store(SERVING, Ordering::Relaxed);
    }

    /// The response is ready to be written.
    pub fn set_responded(&self) {
        self.0.store(RESPONDED, Ordering::Relaxed);
    }

    fn is_serving(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SERVING
    }

    /// Begins to wait for the next request, once after each response.
    fn begin_reading(&self) -> bool {
        self.0.compare_exchange(RESPONDED, READING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// What a connection waits for while no request is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// The first byte of another request.
    Request,
    /// The rest of a head.
    Head,
}

/// A stream whose reads and writes fail with [`io::ErrorKind::TimedOut`] when the caller lets them wait too long.
#[derive(Debug)]
pub struct TimeoutStream<S> {
    stream: S,
    timeouts: Timeouts,
    phase: RequestPhase,
    awaited: Awaited,
    read_until: Pin<Box<Sleep>>,
    /// Set only while a write waits.
    write_until: Option<Pin<Box<Sleep>>>,
}

impl<S> TimeoutStream<S> {
    /// Wraps a connection that was opened just now.
    pub fn new(stream: S, timeouts: Timeouts, phase: RequestPhase) -> Self {
        let read_until = Box::pin(tokio::time::sleep(timeouts.head));
        Self { stream, timeouts, phase, awaited: Awaited::Head, read_until, write_until: None }
    }

    fn wait_for(&mut self, awaited: Awaited) {
        let timeout = match awaited {
            Awaited::Request => self.timeouts.idle,
            Awaited::Head => self.timeouts.head,
        };
        self.awaited = awaited;
        self.read_until.as_mut().reset(Instant::now() + timeout);
    }

    fn written(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.write_until = None;
            return written;
        }
        let timeout = self.timeouts.head;
        let until = self.write_until.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        until.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.phase.begin_reading() {
            this.wait_for(Awaited::Request);
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if read.is_pending() {
            // While a request is served, a read only finds out whether the caller is still there, or belongs to the
            // body.
            if this.phase.is_serving() {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
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
        // A response is being written. hyper need not read again before the caller says something, so the deadline must
        // wake it.
        if this.phase.begin_reading() {
            this.wait_for(Awaited::Request);
            let _ = this.read_until.as_mut().poll(cx);
        }
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
