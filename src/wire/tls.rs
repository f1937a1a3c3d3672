//! TLS to Redis: which authorities are trusted, and the one crypto provider of the process.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use super::endpoint::EndpointError;

/// Makes ring the crypto provider of the process. To be called first in `main` and by tests that use TLS; once or many times.
pub fn install_crypto() {
    // An error means that a provider is installed already, which is what is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// How a server is known to be the one that was named.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
    /// The PEM file's content, for the redis crate, which wants it in this form; `None` for the system's authorities.
    roots_pem: Option<Vec<u8>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roots = if self.roots_pem.is_some() { "ca_file" } else { "system" };
        f.debug_struct("Tls").field("server_name", &self.server_name).field("roots", &roots).finish_non_exhaustive()
    }
}

impl Tls {
    /// For the server of this name, trusting the authorities in `ca_file` or, without one, the system's.
    ///
    /// # Errors
    ///
    /// No usable authority.
    pub fn new(server_name: ServerName<'static>, ca_file: Option<&Path>) -> Result<Self, EndpointError> {
        let (roots, roots_pem) = match ca_file {
            Some(path) => {
                let pem =
                    std::fs::read(path).map_err(|source| EndpointError::CaFile { path: path.to_path_buf(), source })?;
                let roots = roots_of(&pem).ok_or_else(|| EndpointError::NoCertificate { path: path.to_path_buf() })?;
                (roots, Some(pem))
            }
            None => (system_roots()?, None),
        };
        // Names its provider, so that it works whether or not one is installed.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(EndpointError::Tls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config), server_name, roots_pem })
    }

    /// The configuration of rustls.
    #[must_use]
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// The name or address that the certificate has to bear.
    #[must_use]
    pub fn server_name(&self) -> ServerName<'static> {
        self.server_name.clone()
    }

    /// The authorities as PEM; `None` for the system's.
    #[must_use]
    pub fn roots_pem(&self) -> Option<&[u8]> {
        self.roots_pem.as_deref()
    }
}

/// Every certificate of a PEM file; `None` when one is broken or there is none.
fn roots_of(pem: &[u8]) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.ok()?).ok()?;
    }
    (!roots.is_empty()).then_some(roots)
}

/// The system's authorities. Single broken ones are left out, as browsers do.
fn system_roots() -> Result<RootCertStore, EndpointError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(EndpointError::NoSystemRoots) } else { Ok(roots) }
}
