//! TLS to Redis: the trusted authorities, and the crypto provider of the process.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// Why TLS is impossible.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("read redis.ca_file {}", .path.display())]
    CaFile { path: PathBuf, source: io::Error },
    #[error("redis.ca_file {} holds no certificate or a broken one; allowed: PEM, with one or more certificates", .path.display())]
    NoCertificate { path: PathBuf },
    #[error("this system has no certificate authorities to trust; install ca-certificates or set redis.ca_file")]
    NoSystemRoots,
    #[error("prepare TLS for redis")]
    Rustls(#[source] rustls::Error),
}

/// Makes ring the crypto provider of the process. `main`, and tests that use TLS, call it first. Repeatable.
pub fn install_crypto() {
    // An error means that a provider is already installed, which is the goal.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// How TLS verifies that a server is the named one.
#[derive(Clone)]
pub struct TlsSettings {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
    /// The content of the PEM file in the form that the redis crate needs; `None` for the system's authorities.
    roots_pem: Option<Vec<u8>>,
}

impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roots = if self.roots_pem.is_some() { "ca_file" } else { "system" };
        f.debug_struct("TlsSettings")
            .field("server_name", &self.server_name)
            .field("roots", &roots)
            .finish_non_exhaustive()
    }
}

impl TlsSettings {
    /// Settings for the server of this name, with the authorities in `ca_file` or, without one, the system's.
    ///
    /// # Errors
    ///
    /// No usable authority.
    pub fn new(server_name: ServerName<'static>, ca_file: Option<&Path>) -> Result<Self, TlsError> {
        let (roots, roots_pem) = match ca_file {
            Some(path) => {
                let pem =
                    std::fs::read(path).map_err(|source| TlsError::CaFile { path: path.to_path_buf(), source })?;
                let roots = roots_of(&pem).ok_or_else(|| TlsError::NoCertificate { path: path.to_path_buf() })?;
                (roots, Some(pem))
            }
            None => (system_roots()?, None),
        };
        // Names its provider, so that it works with and without an installed one.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Rustls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config), server_name, roots_pem })
    }

    /// The same authorities, for a server on another host.
    ///
    /// # Errors
    ///
    /// The host is neither a DNS name nor an IP address.
    pub fn for_host(&self, host: &str) -> Result<Self, InvalidDnsNameError> {
        Ok(Self { server_name: ServerName::try_from(host.to_owned())?, ..self.clone() })
    }

    /// The configuration for rustls.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// The name or address that the certificate must contain.
    pub fn server_name(&self) -> ServerName<'static> {
        self.server_name.clone()
    }

    /// The authorities as PEM; `None` for the system's.
    pub fn roots_pem(&self) -> Option<&[u8]> {
        self.roots_pem.as_deref()
    }
}

/// Every certificate of a PEM file; `None` if one is broken or there is none.
fn roots_of(pem: &[u8]) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.ok()?).ok()?;
    }
    (!roots.is_empty()).then_some(roots)
}

/// The system's authorities without broken ones, as in browsers.
fn system_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoSystemRoots) } else { Ok(roots) }
}
