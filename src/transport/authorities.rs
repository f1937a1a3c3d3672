//! Certificate authorities: the system's, and those of `ca_file` beside them.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::TransportError;

/// Reads a PEM file of certificates.
///
/// # Errors
///
/// [`TransportError::Read`], [`TransportError::NoCertificate`], [`TransportError::BadCertificate`].
pub(super) fn read(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TransportError> {
    let path_buf = || path.to_path_buf();
    let pem = std::fs::read(path).map_err(|source| TransportError::Read { setting, path: path_buf(), source })?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|_| TransportError::BadCertificate { setting, path: path_buf() })?;
    if certificates.is_empty() {
        return Err(TransportError::NoCertificate { setting, path: path_buf() });
    }
    Ok(certificates)
}

/// The system's authorities and those of `ca_file`.
///
/// A system without any is no error: plain HTTP still works, and a TLS attempt says that the certificate is not trusted.
///
/// # Errors
///
/// Those of [`read`].
pub(super) fn roots(setting: &'static str, ca_file: Option<&Path>) -> Result<RootCertStore, TransportError> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        for certificate in read(setting, path)? {
            let broken = |_| TransportError::BadCertificate { setting, path: path.to_path_buf() };
            store.add(certificate).map_err(broken)?;
        }
    }
    Ok(store)
}
