//! Accepts connections, a bounded number at once, and serves the routes on them. HTTP/1.1 only.
//!
//! `axum::serve` has neither a connection limit nor timeouts: callers that send half a request would take every file
//! descriptor of the process, those for Redis too. hyper's timeout of a head does not end a connection whose caller
//! does not read. So one idle time covers heads, idle connections and unread answers. [`super::body`] has the timeout
//! of a body. Knows no route. Read next: [`super::connection_limit`].

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use hyper::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::types::ONCE_A_MINUTE;

/// Buffer of one connection for requests and responses. hyper's default of 400 KiB would be 400 MiB for all
/// connections. hyper treats it as a guide, and answers 431 to a head that is far longer.
const BUFFER_BYTES_MAX: usize = 32 * 1024;
/// How long to wait after accepting failed: no descriptor is free, and trying again at once would only burn the
/// processor.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Interval at which idle connections are looked at.
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// Maximum time that a drain waits for a caller to read its answer.
const DRAIN_IDLE_MAX: Duration = Duration::from_secs(1);

/// Limits of the server.
#[derive(Debug, Clone, Copy)]
pub struct ServerLimits {
    /// Connections at once; beyond that the longest idle one gives way to a new one.
    pub connections_max: usize,
    /// Further connections that are only for probes and scrapers, for the time when all others are being answered.
    pub probes_max: usize,
    /// Maximum time that a connection waits for its caller: for a whole head, or for its answer to be read.
    pub idle: Duration,
}

impl ServerLimits {
    /// The daemon's limits. The idle timeout is longer than the minute for which usual proxies keep a connection, so
    /// that the proxy closes it and sends no request into a connection that is just being closed.
    pub const DAEMON: Self = Self { connections_max: 1024, probes_max: 16, idle: Duration::from_secs(75) };
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
    let acceptor = Acceptor::new(limits);
    let connections = TaskTracker::new();
    let accepting = async {
        loop {
            let connection = acceptor.next(&listener).await;
            connections.spawn(serve_connection(connection, routes.clone(), stop.clone()));
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = accepting => {}
        () = acceptor.close_idle(limits.idle) => {}
    }
    drop(listener);
    connections.close();
    tokio::select! {
        () = connections.wait() => {}
        () = acceptor.close_idle(DRAIN_IDLE_MAX) => {}
    }
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
    connections_max: usize,
    everything: ConnectionLimit,
    probes: ConnectionLimit,
}

impl Acceptor {
    fn new(limits: ServerLimits) -> Self {
        let ServerLimits { connections_max, probes_max, .. } = limits;
        let (everything, probes) = (ConnectionLimit::new(connections_max), ConnectionLimit::new(probes_max));
        Self { connections_max, everything, probes }
    }

    /// The next connection, once there is a permit for it. Cancelling the call closes a connection that waits for a
    /// permit.
    async fn next(&self, listener: &TcpListener) -> Connection {
        let stream = accept(listener).await;
        let (permit, purpose) = self.permit().await;
        permit.set_idle();
        Connection { stream, permit, purpose }
    }

    /// Closes connections that have been idle for this time, until it is dropped.
    async fn close_idle(&self, idle_max: Duration) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            self.everything.close_idle(idle_max);
            self.probes.close_idle(idle_max);
        }
    }

    async fn permit(&self) -> (ConnectionPermit, Purpose) {
        if !self.everything.has_free_permit() {
            let connections = self.connections_max;
            tracing::warn!(
                name: ONCE_A_MINUTE, connections, "http has reached its connection limit: it closes idle connections"
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

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
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

fn is_of_the_caller(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionRefused | ConnectionAborted | ConnectionReset)
}

/// The body of a request. Its connection gives way to others while it waits for the caller.
struct CallersBody {
    body: Incoming,
    permit: Arc<ConnectionPermit>,
}

impl Body for CallersBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match frame {
            Poll::Pending => self.permit.set_waiting_for_body(),
            // The connection ends: what is not begun must not be done without an answer.
            Poll::Ready(_) if !self.permit.set_busy() => return Poll::Pending,
            Poll::Ready(_) => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

async fn serve_connection(connection: Connection, routes: Routes, stop: CancellationToken) {
    let Connection { stream, permit, purpose } = connection;
    // Off by default: a response in two writes would wait for the caller's acknowledgement, up to 40 ms.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let permit = Arc::new(permit);
    let routes = TowerToHyperService::new(match purpose {
        Purpose::Everything => routes.all,
        Purpose::OneProbe => routes.probes,
    });
    let of_requests = Arc::clone(&permit);
    let service = service_fn(move |request: Request<Incoming>| {
        let may_be_served = of_requests.set_busy();
        let permit = Arc::clone(&of_requests);
        let response = routes.call(request.map(|body| CallersBody { body, permit: Arc::clone(&permit) }));
        async move {
            if !may_be_served {
                // The connection ends, which ends this.
                std::future::pending::<()>().await;
            }
            let response = response.await;
            // Also while the response is written: a caller that does not read it is one that is waited for.
            permit.set_idle();
            response
        }
    });
    let mut http = http1::Builder::new();
    // The permit has the timeout.
    http.header_read_timeout(None).max_buf_size(BUFFER_BYTES_MAX).keep_alive(purpose == Purpose::Everything);
    let mut serving = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = async {
        tokio::select! {
            ended = serving.as_mut() => return ended,
            () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
        }
        serving.await
    };
    tokio::select! {
        () = permit.evicted() => {}
        ended = ended => if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended");
        }
    }
}
