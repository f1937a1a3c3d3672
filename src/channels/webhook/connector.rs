//! Opens the connection for a URL: resolves the name, judges its addresses, opens the socket, asks the proxy if there
//! is one, and starts TLS.
//!
//! A connection goes to an address that was judged: there is no second lookup between the judgment and the connection.
//! Read next: [`super::blocked_networks`], which addresses may be called; [`ServerStream`], how much a receiver may
//! send; [`super::proxy`].

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::blocked_networks::EgressPolicy;
use super::proxy::{Proxy, ProxyError};
use crate::channels::resolver::{ResolveError, Resolver};
use crate::channels::server_stream::ServerStream;

type BoxError = Box<dyn Error + Send + Sync>;

/// How much later than its attempt a connection times out, so that the outcome names the deadline of the attempt.
const GRACE: Duration = Duration::from_secs(1);

/// Connects to receivers, directly or through a proxy.
#[derive(Clone)]
pub(super) struct Connector {
    names: Names,
    sockets: HttpConnector<Names>,
    tls: TlsConnector,
    proxy: Option<ProxyRoute>,
    timeout: Duration,
}

/// A proxy and its connector. The operator named it, so its addresses are not judged.
#[derive(Clone)]
struct ProxyRoute {
    proxy: Proxy,
    sockets: HttpConnector<Names>,
}

impl Connector {
    /// Does not connect yet. `timeout` bounds each connection, from the lookup of its name to the end of the TLS
    /// handshake.
    pub(super) fn new(
        resolver: Arc<Resolver>,
        policy: EgressPolicy,
        tls: TlsConnector,
        proxy: Option<Proxy>,
        timeout: Duration,
    ) -> Self {
        let names = Names { resolver: Arc::clone(&resolver), policy: Some(policy) };
        let sockets = socket_connector(names.clone());
        let any = Names { resolver, policy: None };
        let proxy = proxy.map(|proxy| ProxyRoute { proxy, sockets: socket_connector(any) });
        Self { names, sockets, tls, proxy, timeout }
    }

    /// Whether this host may be called and can be reached, without connecting to it.
    pub(super) async fn check(&self, host: &str) -> Result<(), BoxError> {
        match self.proxy.clone() {
            None => self.names.judged(host).await.map(drop),
            Some(route) => {
                self.names.judge_for_proxy(host).await?;
                route.reach().await.map(drop).map_err(Into::into)
            }
        }
    }

    async fn connect(mut self, url: Uri) -> Result<ServerStream, BoxError> {
        let is_secured = url.scheme_str() == Some("https");
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let stream = match self.proxy {
            None => ServerStream::new(self.sockets.call(url).await?.into_inner()),
            Some(route) => {
                self.names.judge_for_proxy(&host).await?;
                let port = url.port_u16().unwrap_or(if is_secured { 443 } else { 80 });
                let target = format!("{}:{port}", url.host().unwrap_or_default());
                let proxy = route.proxy.clone();
                let mut stream = route.reach().await?;
                proxy.connect(&mut stream, &target).await?;
                stream
            }
        };
        Ok(if is_secured { stream.secured(&self.tls, ServerName::try_from(host)?).await? } else { stream })
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl ProxyRoute {
    async fn reach(mut self) -> Result<ServerStream, ProxyError> {
        let connected = self.sockets.call(self.proxy.url().clone()).await;
        let socket = connected.map_err(|error| ProxyError::Unreachable(error.into()))?;
        Ok(ServerStream::new(socket.into_inner()))
    }
}

fn socket_connector(names: Names) -> HttpConnector<Names> {
    let mut sockets = HttpConnector::new_with_resolver(names);
    sockets.enforce_http(false);
    sockets.set_nodelay(true);
    sockets
}

impl Service<Uri> for Connector {
    type Response = TokioIo<ServerStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.sockets.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        // If a kept connection is free first, hyper-util completes this one in the background, where the attempt's
        // deadline does not end it.
        let connecting = tokio::time::timeout(self.timeout + GRACE, self.clone().connect(url));
        Box::pin(async move { Ok(TokioIo::new(connecting.await??)) })
    }
}

impl Connection for ServerStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Resolves names.
#[derive(Clone)]
struct Names {
    resolver: Arc<Resolver>,
    /// Judges the addresses; `None`: every address may be connected to.
    policy: Option<EgressPolicy>,
}

impl Names {
    /// The addresses of a host. Refuses the host if any of them is blocked.
    async fn judged(&self, host: &str) -> Result<Vec<IpAddr>, BoxError> {
        let found = self.resolver.addresses(host).await?;
        if let Some(policy) = &self.policy {
            policy.check_addresses(found.iter().copied())?;
        }
        Ok(found)
    }

    /// Judges a host to which the proxy should connect. The proxy resolves the name itself, and may know names that the
    /// name servers of this machine do not. SECURITY.md says what the proxy must refuse.
    async fn judge_for_proxy(&self, host: &str) -> Result<(), BoxError> {
        match self.judged(host).await {
            Err(error) if !error.is::<ResolveError>() => Err(error),
            _ => Ok(()),
        }
    }
}

impl Service<Name> for Names {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let names = self.clone();
        Box::pin(async move {
            let found = names.judged(name.as_str()).await?;
            // The port is a placeholder: the connector replaces it by that of the URL.
            Ok(found.into_iter().map(|address| SocketAddr::new(address, 0)).collect::<Vec<_>>().into_iter())
        })
    }
}
