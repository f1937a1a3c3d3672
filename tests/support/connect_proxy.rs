//! A proxy that opens connections by CONNECT. It resolves every name to this machine.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Host and port, as the client wrote them.
    pub target: String,
    /// The value of Proxy-Authorization.
    pub authorization: Option<String>,
}

/// The proxy, on a free port of 127.0.0.1. Stops on drop.
#[derive(Debug)]
pub struct ConnectProxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: JoinHandle<()>,
}

impl ConnectProxy {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let shared = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            // Dropped with this task, which ends the connections.
            let mut clients = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.expect("a connection");
                let asked = Arc::clone(&shared);
                clients.spawn(async move {
                    // A client may leave at any time.
                    let _ = serve(client, &asked).await;
                });
            }
        });
        Self { address, asked, task }
    }

    /// The setting for this proxy.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut client: TcpStream, asked: &Mutex<Vec<Asked>>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).expect("CONNECT").to_owned();
    let authorization = head.lines().find_map(|line| line.strip_prefix("Proxy-Authorization: ")).map(str::to_owned);
    let port = target.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).expect("a port");
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(Asked { target, authorization });
    let mut receiver = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n").await?;
    tokio::io::copy_bidirectional(&mut client, &mut receiver).await?;
    Ok(())
}
