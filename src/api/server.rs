//! Accepts connections, a bounded number at once, and serves the routes on them. HTTP/1.1 only.
//!
//! `axum::serve` has neither a connection limit nor timeouts: callers that send half a request would take every file
//! descriptor of the process, those for Redis too. Knows no route. Read next: [`super::connection_limit`],
//! [`super::timeouts`].

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection_limit::{ConnectionLimit, ConnectionPermit};
use super::timeouts::{RequestPhase, TimeoutStream, Timeouts};
use crate::types::ONCE_A_MINUTE;

/// Buffer of one connection for requests and responses. hyper's default of 400 KiB would be 400 MiB for all
/// connections. hyper treats it as a guide, and answers 431 to a head that is far longer.
const BUFFER_BYTES_MAX: usize = 32 * 1024;
/// How long to wait after accepting failed: no descriptor is free, and trying again at once would only burn the
/// processor.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Limits of the server.
#[derive(Debug, Clone, Copy)]
pub struct ServerLimits {
    /// Connections at once; beyond that the longest idle one gives way to a new one.
    pub connections_max: usize,
    /// Further connections that are only for probes and scrapers, for the time when all others are being answered.
    pub probes_max: usize,
    /// How long each connection may wait for its caller.
    pub timeouts: Timeouts,
}

impl ServerLimits {
    /// The daemon's limits. The idle timeout is longer than the minute for which usual proxies keep a connection, so
    /// that the proxy closes it and sends no request into a connection that is just being closed.
    pub const DAEMON: Self = Self {
        connections_max: 1024,
        probes_max: 16,
        timeouts: Timeouts { head: Duration::from_secs(10), idle: Duration::from_secs(75) },
    };
}

/// What is served.
#[derive(Debug, Clone)]
pub struct Routes {
    /// Everything.
    pub all: Router,
    /// What probes and scrapers ask for, for a connection that only they may have.
    pub probes: Router,
}

/// Serves the routes until stopped. Then accepts no more connections, closes idle ones, and returns when the requests
/// that are being served have been answered.
pub async fn serve(routes: Routes, listener: TcpListener, limits: ServerLimits, stop: CancellationToken) {
    let mut acceptor = Acceptor::new(listener, limits);
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

/// An accepted connection and its permit.
struct Connection {
    stream: TcpStream,
    permit: ConnectionPermit,
    purpose: Purpose,
}

/// What a connection may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Everything,
    /// One answer to a probe: there is no room for more.
    OneProbe,
}

struct Acceptor {
    listener: TcpListener,
    connections_max: usize,
    everything: ConnectionLimit,
    probes: ConnectionLimit,
}

impl Acceptor {
    fn new(listener: TcpListener, limits: ServerLimits) -> Self {
        let ServerLimits { connections_max, probes_max, .. } = limits;
        let (everything, probes) = (ConnectionLimit::new(connections_max), ConnectionLimit::new(probes_max));
        Self { listener, connections_max, everything, probes }
    }

    /// The next connection, once there is a permit for it. Whoever calls it no more closes a connection that still
    /// waits for one.
    async fn next(&mut self) -> Connection {
        let stream = self.accept().await;
        let (permit, purpose) = self.permit().await;
        permit.set_idle();
        Connection { stream, permit, purpose }
    }

    async fn accept(&self) -> TcpStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                // The caller is gone already.
                Err(error) if is_of_the_caller(&error) => {}
                Err(error) => {
                    tracing::error!(name: ONCE_A_MINUTE, %error, "http accepts no connection: tried again every second");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn permit(&self) -> (ConnectionPermit, Purpose) {
        if !self.everything.has_free_permit() {
            let connections = self.connections_max;
            tracing::warn!(
                name: ONCE_A_MINUTE, connections, "http has reached its connection limit: idle connections give way"
            );
        }
        if let Some(permit) = self.everything.admit().await {
            return (permit, Purpose::Everything);
        }
        if let Some(permit) = self.probes.admit().await {
            return (permit, Purpose::OneProbe);
        }
        tokio::select! {
            permit = self.everything.next_free() => (permit, Purpose::Everything),
            permit = self.probes.next_free() => (permit, Purpose::OneProbe),
        }
    }
}

fn is_of_the_caller(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionRefused | ConnectionAborted | ConnectionReset)
}

async fn serve_connection(connection: Connection, routes: Routes, timeouts: Timeouts, stop: CancellationToken) {
    let Connection { stream, permit, purpose } = connection;
    // Off by default: a response in two writes would wait for the caller's acknowledgement, up to 40 ms.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let (permit, phase) = (Arc::new(permit), RequestPhase::default());
    let stream = TokioIo::new(TimeoutStream::new(stream, timeouts, phase.clone()));
    let routes = TowerToHyperService::new(match purpose {
        Purpose::Everything => routes.all,
        Purpose::OneProbe => routes.probes,
    });
    let of_requests = Arc::clone(&permit);
    let service = service_fn(move |request| {
        of_requests.set_busy();
        phase.set_serving();
        let (permit, phase, response) = (Arc::clone(&of_requests), phase.clone(), routes.call(request));
        async move {
            let response = response.await;
            phase.set_responded();
            // Also while the response is written: a caller that does not read it is one that is waited for.
            permit.set_idle();
            response
        }
    });
    let mut http = http1::Builder::new();
    // TimeoutStream has the timeouts.
    http.header_read_timeout(None).max_buf_size(BUFFER_BYTES_MAX).keep_alive(purpose == Purpose::Everything);
    let mut serving = pin!(http.serve_connection(stream, service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = permit.evicted() => return,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}
