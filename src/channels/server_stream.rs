//! A connection to a server that somebody else runs: opens it, and limits how much the server may send and how much one
//! poll reads.
//!
//! The libraries above bound the size of each thing that a server sends, but not their number: within one poll, hyper
//! accepts informational responses, and rustls accepts session tickets and empty records, as long as they come. A
//! server that floods such a connection would occupy a thread of the runtime, and every deadline on it would be late.
//! So this type counts the bytes of the socket, below TLS, from one request to the next. It sets no deadline for a
//! whole connection. Read next: [`super::tls`].

use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::select_ok;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::resolver::ResolveError;

/// How long one address of a server may take to answer before the next one is tried. The last one has until the
/// caller's deadline.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long the addresses of the preferred family are tried before those of the other one are tried too (RFC 8305, 5).
const FALLBACK_AFTER: Duration = Duration::from_millis(300);
/// Maximum number of bytes that a server sends between two writes of the client, including TLS records and handshake.
/// Browsers accept response heads of this size.
const BYTES_MAX: usize = 256 * 1024;
/// Number of bytes that are read before other tasks get their turn: about 0.1 ms of work.
const BYTES_BEFORE_YIELD: usize = 16 * 1024;

/// The server sent more than any response needs.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the server sent more than 256 KiB before it answered")]
pub(super) struct Flooded;

/// The socket below a connection.
pub(super) trait SocketStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> SocketStream for S {}

/// A connection to a server, in plain text or with TLS.
pub(super) struct ServerStream {
    stream: Box<dyn SocketStream>,
    /// Number of bytes that the server may still send.
    allowance: Arc<AtomicUsize>,
}

impl ServerStream {
    /// The connection over this socket.
    pub(super) fn new(socket: impl SocketStream + 'static) -> Self {
        let allowance = Arc::new(AtomicUsize::new(BYTES_MAX));
        let (socket, writer) = tokio::io::split(socket);
        let metered = MeteredReader { socket, allowance: Arc::clone(&allowance), since_yield: 0 };
        Self { stream: Box::new(tokio::io::join(metered, writer)), allowance }
    }

    /// Connects to the first address that accepts a connection. The family of the first address is preferred.
    pub(super) async fn connect(addresses: &[IpAddr], port: u16) -> io::Result<Self> {
        let is_preferred = |address: &IpAddr| address.is_ipv6() == addresses[0].is_ipv6();
        let (preferred, others): (Vec<_>, Vec<_>) = addresses.iter().copied().partition(is_preferred);
        let mut first = pin!(connect_in_order(&preferred, port));
        let connected = match timeout(FALLBACK_AFTER, &mut first).await {
            Ok(Err(_)) if !others.is_empty() => connect_in_order(&others, port).await,
            Ok(connected) => connected,
            Err(_) => select_ok([first, pin!(connect_in_order(&others, port))]).await.map(|(socket, _)| socket),
        };
        connected.map(Self::new)
    }

    /// The connection with TLS.
    pub(super) async fn secured(self, tls: &Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<Self> {
        // Not on top of `self`, whose writes start requests: TLS also writes when the server asks for it.
        let Self { stream, allowance } = self;
        let connecting = TlsConnector::from(Arc::clone(tls)).connect(name, stream);
        Ok(Self { stream: Box::new(connecting.await?), allowance })
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ServerStream {
    /// Starts or continues a request: from here on the server may send the bytes of one response.
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.allowance.store(BYTES_MAX, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

async fn connect_in_order(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::other(ResolveError::NoSuchHost);
    for (at, address) in addresses.iter().enumerate() {
        let connecting = TcpStream::connect((*address, port));
        let connected = match at + 1 < addresses.len() {
            true => timeout(CONNECT_WITHIN, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            false => connecting.await,
        };
        match connected {
            Ok(stream) => {
                // Otherwise a command would wait for the acknowledgement of the one before it.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The reading half of the socket.
struct MeteredReader<S> {
    socket: S,
    allowance: Arc<AtomicUsize>,
    /// Bytes read since other tasks had their turn.
    since_yield: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredReader<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let left = this.allowance.load(Ordering::Relaxed);
        if left == 0 {
            return Poll::Ready(Err(io::Error::other(Flooded)));
        }
        if this.since_yield >= BYTES_BEFORE_YIELD {
            this.since_yield = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let wanted = buf.remaining().min(left).min(BYTES_BEFORE_YIELD - this.since_yield);
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(wanted));
        let read = match Pin::new(&mut this.socket).poll_read(cx, &mut part) {
            Poll::Pending => {
                this.since_yield = 0;
                return Poll::Pending;
            }
            read => {
                ready!(read)?;
                part.filled().len()
            }
        };
        buf.advance(read);
        this.allowance.fetch_sub(read, Ordering::Relaxed);
        this.since_yield += read;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A socket that always has data, like that of a server on the same network.
    struct Endless;

    impl AsyncRead for Endless {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            buf.initialize_unfilled();
            buf.advance(buf.remaining());
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Endless {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// An email took 41 ms on one machine, because each command waited for the acknowledgement of the one before it.
    #[tokio::test]
    async fn no_command_waits_for_an_acknowledgement() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = server.local_addr().expect("an address");
        let stream = connect_in_order(&[address.ip()], address.port()).await.expect("a connection");
        assert!(stream.nodelay().expect("it is known"));
    }

    /// A name may have addresses of both families, and a machine may reach one of them only.
    #[tokio::test]
    async fn a_server_is_reached_by_the_family_that_works() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = server.local_addr().expect("an address").port();
        let (refusing, silent, working) = ("::1", "100::1", "127.0.0.1");
        for addresses in [vec![refusing, working], vec![silent, working], vec![working, silent], vec![working]] {
            let parsed: Vec<IpAddr> = addresses.iter().map(|address| address.parse().expect("an address")).collect();
            assert!(ServerStream::connect(&parsed, port).await.is_ok(), "{addresses:?}");
        }
        assert!(ServerStream::connect(&[], port).await.is_err(), "a name without addresses");
    }

    /// However fast a server sends and whatever reads it, each request ends after a bounded number of bytes.
    #[tokio::test]
    async fn a_flood_ends_and_a_request_renews_what_may_come() {
        let mut stream = ServerStream::new(Endless);
        for _ in 0..3 {
            stream.write_all(b"a request").await.expect("written");
            let mut taken = Vec::new();
            let error = stream.read_to_end(&mut taken).await.expect_err("a flood");
            assert!(error.get_ref().is_some_and(|error| error.is::<Flooded>()));
            assert_eq!(taken.len(), BYTES_MAX);
        }
    }

    /// One poll of a library reads in a loop until no data is left. Other tasks must get their turn within it.
    #[test]
    fn one_poll_reads_a_bounded_number_of_bytes() {
        let mut stream = ServerStream::new(Endless);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut bytes = vec![0; BYTES_MAX];
        let mut read = 0;
        loop {
            let mut buf = ReadBuf::new(&mut bytes);
            if Pin::new(&mut stream).poll_read(&mut cx, &mut buf).is_pending() {
                break;
            }
            read += buf.filled().len();
        }
        assert_eq!(read, BYTES_BEFORE_YIELD);
    }
}
