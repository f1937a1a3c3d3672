//! Accepts connections, a bounded number at once, and has the routes answer them. HTTP/1.1 alone.
//!
//! `axum::serve` has neither a bound nor deadlines: callers that send half a request would take every file descriptor of the
//! process, those for Redis too. Knows no route. Read next: [`super::patience`], how long a caller is waited for.

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

use super::patience::{Patience, Patient, Turn};

/// What is held of one connection's requests and answers before they are read or sent: hyper's own 400 KiB would be 400 MiB of all.
/// hyper takes it for a guide, and answers 431 to a head that is far longer.
const BUFFER_BYTES_MAX: usize = 32 * 1024;
/// How long nobody is accepted after that failed: no descriptor is free, and asking again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// What goes on is said this often at most.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// What callers may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Connections at once. Others wait to be accepted.
    pub connections_max: usize,
    /// How long each is waited for.
    pub patience: Patience,
}

impl Bounds {
    /// Those of the daemon. Idle: longer than the minute for which usual proxies keep a connection, so that it is they who end it, and
    /// no request is sent into one that is just being closed.
    pub const DAEMON: Self = Self {
        connections_max: 1024,
        patience: Patience { head: Duration::from_secs(10), idle: Duration::from_secs(75) },
    };
}

/// Serves routes until stopped; then accepts nobody, ends idle connections, and returns once what is being answered has been.
pub async fn serve(routes: Router, listener: TcpListener, bounds: Bounds, stop: CancellationToken) {
    let mut door = Door::new(listener, bounds.connections_max);
    let connections = TaskTracker::new();
    loop {
        let guest = tokio::select! {
            () = stop.cancelled() => break,
            guest = door.next() => guest,
        };
        connections.spawn(converse(guest, routes.clone(), bounds.patience, stop.clone()));
    }
    drop(door);
    connections.close();
    connections.wait().await;
}

/// A connection, and its place among those that there may be.
struct Guest {
    stream: TcpStream,
    place: OwnedSemaphorePermit,
}

struct Door {
    listener: TcpListener,
    connections_max: usize,
    places: Arc<Semaphore>,
    full: Seldom,
    failed: Seldom,
}

impl Door {
    fn new(listener: TcpListener, connections_max: usize) -> Self {
        let places = Arc::new(Semaphore::new(connections_max));
        Self { listener, connections_max, places, full: Seldom::default(), failed: Seldom::default() }
    }

    /// The next connection, once there is a place for it. Forgets nothing when dropped.
    async fn next(&mut self) -> Guest {
        let place = self.place().await;
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return Guest { stream, place },
                // Of a caller that is gone already.
                Err(error) if is_of_the_caller(&error) => {}
                Err(error) => {
                    if self.failed.is_due() {
                        tracing::error!(%error, "http accepts no connection: tried again every second, told once a minute");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn place(&mut self) -> OwnedSemaphorePermit {
        let places = Arc::clone(&self.places);
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            return place;
        }
        if self.full.is_due() {
            let connections = self.connections_max;
            tracing::warn!(connections, "http has as many connections as it may: others wait, told once a minute");
        }
        places.acquire_owned().await.expect("nobody closes the semaphore")
    }
}

fn is_of_the_caller(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionRefused | ConnectionAborted | ConnectionReset)
}

async fn converse(guest: Guest, routes: Router, patience: Patience, stop: CancellationToken) {
    let Guest { stream, place } = guest;
    // Off by default: an answer in two writes would wait for the caller's acknowledgement, up to 40 ms.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let turn = Turn::default();
    let stream = TokioIo::new(Patient::new(stream, patience, turn.clone()));
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |request| {
        turn.serving();
        let (turn, answer) = (turn.clone(), routes.call(request));
        async move {
            let answer = answer.await;
            turn.answered();
            answer
        }
    });
    let mut http = http1::Builder::new();
    // The stream's own deadlines hold.
    http.header_read_timeout(None).max_buf_size(BUFFER_BYTES_MAX);
    let mut connection = pin!(http.serve_connection(stream, service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
    drop(place);
}

/// Something that is to be said once in a while.
#[derive(Debug, Default)]
struct Seldom(Option<Instant>);

impl Seldom {
    /// Whether to say it now.
    fn is_due(&mut self) -> bool {
        let due = self.0.is_none_or(|said| said.elapsed() >= SAY_EVERY);
        if due {
            self.0 = Some(Instant::now());
        }
        due
    }
}
