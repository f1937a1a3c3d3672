//! Opens the connection for a URL: resolves the name, judges its addresses, opens the socket, asks the proxy if there
//! is one, and starts TLS.
//!
//! A connection goes to an address that was judged: there is no second lookup between the judgment and the connection.
//! Read next: [`super::blocked_networks`], which addresses may be called; [`ServerStream`], how much a receiver may
//! send; [`super::proxy`].

use std::error::Error;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tower_service::Service;

use super::blocked_networks::EgressPolicy;
use super::proxy::{Proxy, ProxyError};
use crate::channels::resolver::{ResolveError, Resolver};
use crate::channels::server_stream::ServerStream;

type BoxError = Box<dyn Error + Send + Sync>;

/// How much later than its attempt a connection times out, so that the outcome names the deadline of the attempt.
const GRACE: Duration = Duration::from_secs(1);

/// Connects to receivers, directly or through a proxy.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    pub(super) resolver: Arc<Resolver>,
    pub(super) policy: EgressPolicy,
    pub(super) tls: Arc<ClientConfig>,
    /// The operator named the proxy, so its addresses are not judged.
    pub(super) proxy: Option<Proxy>,
    /// The bound of each connection, from the lookup of its name to the end of the TLS handshake.
    pub(super) timeout: Duration,
}

impl Connector {
    /// Whether this host may be called and can be reached, without connecting to it.
    pub(super) async fn check(&self, host: &str) -> Result<(), BoxError> {
        match &self.proxy {
            None => self.addresses(host).await.map(drop),
            Some(proxy) => self.reach(proxy, host).await.map(drop),
        }
    }

    async fn connect(self, url: Uri) -> Result<ServerStream, BoxError> {
        let is_secured = url.scheme_str() == Some("https");
        let port = url.port_u16().unwrap_or(if is_secured { 443 } else { 80 });
        let authority = url.host().unwrap_or_default();
        let host = authority.trim_matches(['[', ']']).to_owned();
        let stream = match &self.proxy {
            None => ServerStream::connect(&self.addresses(&host).await?, port).await?,
            Some(proxy) => {
                let mut stream = self.reach(proxy, &host).await?;
                proxy.connect(&mut stream, &format!("{authority}:{port}")).await?;
                stream
            }
        };
        Ok(if is_secured { stream.secured(&self.tls, ServerName::try_from(host)?).await? } else { stream })
    }

    /// The addresses of a host. Refuses the host if any of them is blocked.
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, BoxError> {
        let found = self.resolver.addresses(host).await?;
        self.policy.check_addresses(found.iter().copied())?;
        Ok(found)
    }

    /// Judges a host, and connects to the proxy that should forward to it. The proxy resolves the name itself, and may
    /// know names that the name servers of this machine do not. SECURITY.md says what the proxy must refuse.
    async fn reach(&self, proxy: &Proxy, host: &str) -> Result<ServerStream, BoxError> {
        if let Err(error) = self.addresses(host).await
            && !error.is::<ResolveError>()
        {
            return Err(error);
        }
        let connecting = async {
            let found = self.resolver.addresses(&proxy.host).await?;
            Ok::<_, BoxError>(ServerStream::connect(&found, proxy.port).await?)
        };
        Ok(connecting.await.map_err(ProxyError::Unreachable)?)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<ServerStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
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
