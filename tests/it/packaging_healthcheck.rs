//! The health check of the image, on a server that answers like the daemon.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::thread;

/// Answers one request with this status, and returns the request.
fn answer_once(listener: TcpListener, status: &'static str) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a connection");
        // Reads all of it: a connection closed with unread bytes is reset, and the response lost.
        let head = BufReader::new(&connection).lines().map(|line| line.expect("a line"));
        let asked = head.take_while(|line| !line.is_empty()).collect::<Vec<_>>().swap_remove(0);
        connection.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).expect("written");
        asked
    })
}

fn check(listen: &str, path: &[&str]) -> bool {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/healthcheck");
    let checked = Command::new("bash").arg(script).args(path).env("QUOTABELL__HTTP__LISTEN", listen).output();
    checked.expect("bash").status.success()
}

/// An orchestrator restarts an unhealthy container, so the check must work if the daemon listens on one address only.
#[test]
fn the_health_check_asks_where_the_daemon_listens() {
    for (at, listen) in
        [("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("127.0.0.1", "0.0.0.0"), ("127.0.0.1", "[::]")]
    {
        for (status, healthy) in [("200 OK", true), ("503 Service Unavailable", false)] {
            let listener = TcpListener::bind((at, 0)).expect("a free port");
            let port = listener.local_addr().as_ref().map(SocketAddr::port).expect("an address");
            let asked = answer_once(listener, status);
            assert_eq!(check(&format!("{listen}:{port}"), &["/readyz"]), healthy, "{listen}: {status}");
            assert_eq!(asked.join().expect("answered"), "GET /readyz HTTP/1.1");
        }
    }
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("an address");
    assert!(!check(&nobody.to_string(), &[]), "nobody listens");
}
