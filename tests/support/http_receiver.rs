//! Receivers that misbehave below HTTP. Well-behaved ones are `quotabell::demo::receivers::HttpCatcher`.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// What the receiver does once it has the request.
#[derive(Debug, Clone)]
pub enum Manner {
    /// Says nothing, and keeps the connection.
    Hang,
    /// Resets the connection.
    Reset,
    /// Says this and closes.
    Say(&'static str),
    /// Says this and keeps the connection.
    SayAndHang(&'static str),
    /// Says this, then goes on sending without end.
    SayAndFlood(&'static str),
}

/// A receiver on a free port of 127.0.0.1. Gone when dropped.
#[derive(Debug)]
pub struct OddReceiver {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl OddReceiver {
    /// A receiver over plain TCP.
    pub async fn start(manner: Manner) -> Self {
        Self::start_at("127.0.0.1:0", manner).await
    }

    /// The same on every address of this machine, of which it has thousands: 127.x.x.x.
    pub async fn start_everywhere(manner: Manner) -> Self {
        Self::start_at("0.0.0.0:0", manner).await
    }

    async fn start_at(at: &str, manner: Manner) -> Self {
        let (listener, address) = listen(at).await;
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let manner = manner.clone();
                tokio::spawn(async move {
                    let _ = match manner {
                        Manner::Reset => reset(stream).await,
                        _ => behave(stream, &manner).await,
                    };
                });
            }
        });
        Self { address, task }
    }

    /// A receiver over TLS.
    pub async fn start_tls(acceptor: TlsAcceptor, manner: Manner) -> Self {
        let (listener, address) = listen("127.0.0.1:0").await;
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                if let Ok(stream) = acceptor.accept(stream).await {
                    let _ = behave(stream, &manner).await;
                }
            }
        });
        Self { address, task }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// `http://127.0.0.1:<port>/hook`.
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }
}

impl Drop for OddReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(at: &str) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(at).await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

async fn reset(mut stream: TcpStream) -> std::io::Result<()> {
    read_head(&mut stream).await?;
    stream.set_zero_linger()
}

async fn behave<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, manner: &Manner) -> std::io::Result<()> {
    read_head(&mut stream).await?;
    match manner {
        Manner::Hang | Manner::Reset => hang(&mut stream).await,
        Manner::Say(text) => {
            stream.write_all(text.as_bytes()).await?;
            stream.shutdown().await
        }
        Manner::SayAndHang(text) => {
            stream.write_all(text.as_bytes()).await?;
            stream.flush().await?;
            hang(&mut stream).await
        }
        Manner::SayAndFlood(text) => {
            stream.write_all(text.as_bytes()).await?;
            // Ends when the client closes.
            loop {
                stream.write_all(&[b'x'; 4096]).await?;
            }
        }
    }
}

/// Reads the request to the end of its head.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let byte = stream.read_u8().await?;
        head.push(byte);
    }
    Ok(())
}

/// Until the client leaves.
async fn hang<S: AsyncRead + Unpin>(stream: &mut S) -> std::io::Result<()> {
    let mut sink = [0; 1024];
    while stream.read(&mut sink).await? > 0 {}
    Ok(())
}
