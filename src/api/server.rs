//! Accepts connections, a bounded number at once, and serves the routes on them. HTTP/1.1 only.
//!
//! `axum::serve` has neither a connection limit nor timeouts: callers that send half a request would take every file descriptor of
//! the process, those for Redis too. Knows no route. Read next: [`super::timeouts`].

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::timeouts::{RequestPhase, TimeoutStream, Timeouts};
use crate::types::{LOG_INTERVAL, LogLimiter};

/// Buffer of one connection for requests and responses. hyper's default of 400 KiB would be 400 MiB for all connections. hyper treats
/// it as a guide, and answers 431 to a head that is far longer.
const BUFFER_BYTES_MAX: usize = 32 * 1024;
/// How long to wait after accepting failed: no descriptor is free, and trying again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Limits of the server.
#[derive(Debug, Clone, Copy)]
pub struct ServerLimits {
    /// Connections at once; further ones wait to be accepted.
    pub connections_max: usize,
    /// How long each connection may wait for its caller.
    pub timeouts: Timeouts,
}

impl ServerLimits {
    /// The daemon's limits. The idle timeout is longer than the minute for which usual proxies keep a connection, so that the proxy
    /// closes it and sends no request into a connection that is just being closed.
    pub const DAEMON: Self = Self {
        connections_max: 1024,
        timeouts: Timeouts { head: Duration::from_secs(10), idle: Duration::from_secs(75) },
    };
}

/// Serves the routes until stopped. Then accepts no more connections, closes idle ones, and returns when the requests that are being
/// served have been answered.
pub async fn serve(routes: Router, listener: TcpListener, limits: ServerLimits, stop: CancellationToken) {
    let mut acceptor = Acceptor::new(listener, limits.connections_max);
    let connections = TaskTracker::new();
    loop {
        let connection = tokio::select! {
            () = stop.cancelled() => break,
            connection = acceptor.next() => connection,
        };
        connections.spawn(serve_connection(connection, routes.clone(), limits.timeouts, stop.clone()));
    }
    drop(acceptor);
    connections.close();
    connections.wait().await;
}

/// An accepted connection and its permit among [`ServerLimits::connections_max`].
struct Connection {
    stream: TcpStream,
    permit: OwnedSemaphorePermit,
}

struct Acceptor {
    listener: TcpListener,
    connections_max: usize,
    permits: Arc<Semaphore>,
    logs: LogLimiter<Obstacle>,
}

/// What keeps connections from being accepted.
#[derive(Debug, PartialEq, Eq)]
enum Obstacle {
    ConnectionLimit,
    AcceptError,
}

impl Acceptor {
    fn new(listener: TcpListener, connections_max: usize) -> Self {
        let permits = Arc::new(Semaphore::new(connections_max));
        Self { listener, connections_max, permits, logs: LogLimiter::new(LOG_INTERVAL) }
    }

    /// The next connection, once there is a permit for it. Cancel-safe.
    async fn next(&mut self) -> Connection {
        let permit = self.permit().await;
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return Connection { stream, permit },
                // The caller is gone already.
                Err(error) if is_of_the_caller(&error) => {}
                Err(error) => {
                    if self.is_logged(Obstacle::AcceptError) {
                        tracing::error!(%error, "http accepts no connection: tried again every second, logged once a minute");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        let permits = Arc::clone(&self.permits);
        if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
            return permit;
        }
        if self.is_logged(Obstacle::ConnectionLimit) {
            let connections = self.connections_max;
            tracing::warn!(
                connections,
                "http has reached its connection limit: further ones wait, logged once a minute"
            );
        }
        permits.acquire_owned().await.expect("nobody closes the semaphore")
    }

    fn is_logged(&self, obstacle: Obstacle) -> bool {
        self.logs.admit(obstacle, Instant::now()).is_some()
    }
}

fn is_of_the_caller(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionRefused | ConnectionAborted | ConnectionReset)
}

async fn serve_connection(connection: Connection, routes: Router, timeouts: Timeouts, stop: CancellationToken) {
    let Connection { stream, permit } = connection;
    // Off by default: a response in two writes would wait for the caller's acknowledgement, up to 40 ms.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let phase = RequestPhase::default();
    let stream = TokioIo::new(TimeoutStream::new(stream, timeouts, phase.clone()));
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |request| {
        phase.set_serving();
        let (phase, response) = (phase.clone(), routes.call(request));
        async move {
            let response = response.await;
            phase.set_responded();
            response
        }
    });
    let mut http = http1::Builder::new();
    // TimeoutStream has the timeouts.
    http.header_read_timeout(None).max_buf_size(BUFFER_BYTES_MAX);
    let mut serving = pin!(http.serve_connection(stream, service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
    drop(permit);
}
