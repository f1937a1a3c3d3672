//! Slow callers, and too many callers: neither may keep others from being answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::daemon::{DaemonSetup, http_get};
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::redis_server::RedisServer;
use axum::Router;
use axum::routing::{get, post};
use quotabell::api::server::{self, Routes, ServerLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A deadline that is short enough for a test.
const SHORT: Duration = Duration::from_millis(500);
/// A deadline that no test reaches.
const LONG: Duration = Duration::from_secs(3600);
/// More than the systems of both sides buffer of a response that nobody reads.
const LARGE: usize = 64 << 20;

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
const HALF: &str = "GET / HTTP/1.1\r\nhost: x\r\nx-slow: ";

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    /// Releases the response to `/slow`.
    go: Arc<Notify>,
    /// Notified when `/slow` is being answered.
    began: Arc<Notify>,
}

impl Server {
    async fn start(connections_max: usize, idle: Duration) -> Self {
        let (go, began) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = {
            let (go, began) = (Arc::clone(&go), Arc::clone(&began));
            move || async move {
                began.notify_one();
                go.notified().await;
                "slow"
            }
        };
        let slow_echo = {
            let (go, began) = (Arc::clone(&go), Arc::clone(&began));
            move |body: String| async move {
                began.notify_one();
                go.notified().await;
                body
            }
        };
        let all = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/slow", get(slow))
            .route("/slow", post(slow_echo))
            .route("/echo", post(|body: String| async { body }))
            .route("/large", get(|| async { vec![b'x'; LARGE] }));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let stop = CancellationToken::new();
        let probes = Router::new().route("/", get(|| async { "probe" })).fallback(|| async { "no room" });
        let limits = ServerLimits { connections_max, probes_max: 1, idle };
        let routes = Routes { all, probes };
        let serving = tokio::spawn(server::serve(routes, listener, limits, stop.clone()));
        Self { address, stop, serving, go, began }
    }

    async fn caller(&self) -> Caller {
        Caller(TcpStream::connect(self.address).await.expect("somebody listens"))
    }

    /// Meanwhile others are answered.
    async fn serves_others_for(&self, time: Duration) {
        let (mut other, began) = (self.caller().await, Instant::now());
        while began.elapsed() < time {
            other.ask().await;
        }
    }
}

struct Caller(TcpStream);

impl Caller {
    async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.expect("sent");
    }

    /// Reads up to the last bytes of a response.
    async fn reads(&mut self, end: &str) {
        let mut read = Vec::new();
        let whole = async {
            while !read.ends_with(end.as_bytes()) {
                assert_ne!(self.0.read_buf(&mut read).await.expect("read"), 0, "closed before {end:?}");
            }
        };
        tokio::time::timeout(WAIT_MAX, whole).await.expect("an answer");
    }

    async fn ask(&mut self) {
        self.send(REQUEST).await;
        self.reads("here").await;
    }

    /// Expects that it is closed without a response.
    async fn is_closed(&mut self) {
        let mut read = Vec::new();
        let closed = tokio::time::timeout(WAIT_MAX, self.0.read_to_end(&mut read)).await.expect("it is closed in time");
        // A reset is an end too.
        let _ = closed;
        assert_eq!(String::from_utf8_lossy(&read), "");
    }
}

/// An unfinished request costs its sender nothing, but a file descriptor here.
#[tokio::test]
async fn half_a_head_is_given_up_and_others_are_answered_meanwhile() {
    let server = Server::start(100, SHORT).await;
    let began = Instant::now();
    let (mut silent, mut half, mut second) = (server.caller().await, server.caller().await, server.caller().await);
    half.send(HALF).await;
    second.ask().await;
    second.send(HALF).await;
    // A byte from time to time does not extend the deadline.
    let mut trickling = server.caller().await;
    trickling.send(HALF).await;
    let mut other = server.caller().await;
    while trickling.0.write_all(b"x").await.is_ok() {
        other.ask().await;
        assert!(began.elapsed() < WAIT_MAX, "a byte now and then keeps a connection open");
    }
    for caller in [&mut silent, &mut half, &mut second] {
        caller.is_closed().await;
    }
    assert!(began.elapsed() >= SHORT);
    other.ask().await;
}

/// An idle connection that stays open costs a file descriptor.
#[tokio::test]
async fn an_idle_connection_is_not_kept_for_ever() {
    let server = Server::start(100, SHORT).await;
    let (mut idle, began) = (server.caller().await, Instant::now());
    idle.ask().await;
    idle.is_closed().await;
    assert!(began.elapsed() >= SHORT);
}

/// The deadlines concern the caller: neither a body in progress nor our slow response may be cut off.
#[tokio::test]
async fn what_takes_long_after_the_head_is_answered() {
    let server = Server::start(100, SHORT).await;
    let (mut slow, mut body) = (server.caller().await, server.caller().await);
    slow.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    body.send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbo").await;
    server.serves_others_for(SHORT * 3).await;
    body.send("dy").await;
    body.reads("body").await;
    server.go.notify_one();
    slow.reads("slow").await;
}

/// A response that nobody reads occupies its connection like an unfinished request.
#[tokio::test]
async fn a_caller_that_does_not_read_is_given_up() {
    // There is room for both, so only the deadline can close it.
    let server = Server::start(2, SHORT).await;
    let (mut deaf, mut other, began) = (server.caller().await, server.caller().await, Instant::now());
    deaf.send("GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await;
    while deaf.0.write_all(b"x").await.is_ok() {
        other.ask().await;
        assert!(began.elapsed() < WAIT_MAX, "an answer that nobody reads keeps a connection open");
    }
    assert!(began.elapsed() >= SHORT);
    // Its place is free: `other` keeps its own.
    server.caller().await.ask().await;
    other.ask().await;
}

/// The size of a request's head is bounded, or a thousand callers could fill the memory.
#[tokio::test]
async fn a_head_that_never_ends_is_refused() {
    let server = Server::start(1, LONG).await;
    let mut endless = server.caller().await;
    endless.send(HALF).await;
    let mut sent = 0;
    while endless.0.write_all(&[b'x'; 1024]).await.is_ok() {
        sent += 1024;
        assert!(sent < LARGE, "it is all taken");
    }
    server.caller().await.ask().await;
}

/// Without a bound connections take the descriptors that Redis and receivers need; with only a bound, silent
/// connections keep all others out.
#[tokio::test]
async fn the_longest_idle_connection_gives_way_to_a_new_one() {
    let server = Server::start(3, LONG).await;
    let (mut silent, mut half, mut asked) = (server.caller().await, server.caller().await, server.caller().await);
    asked.ask().await;
    half.send(HALF).await;
    // Its idle time restarts with each response.
    asked.ask().await;
    let mut fourth = server.caller().await;
    fourth.ask().await;
    silent.is_closed().await;
    let mut fifth = server.caller().await;
    fifth.ask().await;
    half.is_closed().await;
    for kept in [&mut asked, &mut fourth, &mut fifth] {
        kept.ask().await;
    }
}

/// A thousand silent connections must not keep API nodes and probes out.
#[tokio::test]
async fn idle_connections_keep_nobody_out() {
    let server = Server::start(4, LONG).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(server.caller().await);
        server.caller().await.ask().await;
    }
}

/// Anybody can send half a body, and a thousand of these must not keep API nodes out.
#[tokio::test]
async fn a_body_that_does_not_come_keeps_nobody_out() {
    let server = Server::start(2, LONG).await;
    let mut halves = [server.caller().await, server.caller().await];
    for half in &mut halves {
        half.send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbo").await;
    }
    // A moment may pass until the server waits for their rest.
    eventually("another caller is answered", || async {
        let (mut caller, mut read) = (server.caller().await, vec![0; 1024]);
        caller.send(REQUEST).await;
        let length = caller.0.read(&mut read).await.expect("an answer");
        read[..length].ends_with(b"here").then_some(())
    })
    .await;
}

/// A producer whose events are appended would send them again without the answer.
#[tokio::test]
async fn a_request_whose_body_has_come_does_not_give_way() {
    let server = Server::start(1, LONG).await;
    let mut caller = server.caller().await;
    caller.send("POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbo").await;
    // What reaches the server in between lets it wait for the rest.
    tokio::task::yield_now().await;
    caller.send("dy").await;
    server.began.notified().await;
    let mut other = server.caller().await;
    other.send(REQUEST).await;
    other.reads("probe").await;
    server.go.notify_one();
    caller.reads("body").await;
}

/// If every connection is being answered, none is closed; a probe of the daemon must still be answered.
#[tokio::test]
async fn probes_keep_a_place_while_every_connection_is_being_answered() {
    let server = Server::start(2, LONG).await;
    let mut slow = [server.caller().await, server.caller().await];
    for caller in &mut slow {
        caller.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
        server.began.notified().await;
    }
    for _ in 0..3 {
        let mut probe = server.caller().await;
        probe.send(REQUEST).await;
        probe.reads("probe").await;
        probe.is_closed().await;
        let mut other = server.caller().await;
        other.send("GET /echo HTTP/1.1\r\nhost: x\r\n\r\n").await;
        other.reads("no room").await;
    }
    // A silent probe is closed for the next one.
    let mut silent = server.caller().await;
    let mut probe = server.caller().await;
    probe.send(REQUEST).await;
    probe.reads("probe").await;
    silent.is_closed().await;
    for caller in &mut slow {
        server.go.notify_one();
        caller.reads("slow").await;
    }
    server.caller().await.ask().await;
}

/// A drain neither cuts off a response nor waits for idle connections and for callers that do not read.
#[tokio::test]
async fn the_end_waits_for_answers_and_for_nothing_else() {
    let server = Server::start(100, LONG).await;
    let (mut idle, mut slow, mut half) = (server.caller().await, server.caller().await, server.caller().await);
    let (mut silent, mut deaf) = (server.caller().await, server.caller().await);
    idle.ask().await;
    half.send(HALF).await;
    deaf.send("GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await;
    deaf.0.readable().await.expect("its response has begun");
    slow.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    server.began.notified().await;
    server.stop.cancel();
    for caller in [&mut idle, &mut silent, &mut half] {
        caller.is_closed().await;
    }
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody is accepted any more");
    assert!(!server.serving.is_finished());
    server.go.notify_one();
    slow.reads("slow").await;
    tokio::time::timeout(WAIT_MAX, server.serving).await.expect("it ends").expect("without a panic");
}

/// A lack of descriptors for new connections is logged once, and once more when it ends.
#[tokio::test]
async fn a_lack_of_descriptors_is_told_once_and_got_over() {
    let redis = RedisServer::start();
    let mut daemon = DaemonSetup::on(&redis.url()).descriptors(64).start().await;
    let address = daemon.http().await;
    let mut callers = Vec::new();
    for _ in 0..80 {
        callers.push(TcpStream::connect(address).await.expect("the system takes it"));
    }
    let line = "http accepts no connection";
    assert!(daemon.says(line).await.contains("Too many open files"));
    drop(callers);
    eventually("it answers again", || async {
        http_get(address, "/healthz").await.filter(|page| page.status == 200).map(|_| ())
    })
    .await;
    let told = daemon.lines_after(0).iter().filter(|said| said.contains(line)).count();
    assert_eq!(told, 1);
    daemon.drain().await;
}
