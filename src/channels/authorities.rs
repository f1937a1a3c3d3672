//! Certificate authorities: the system's, and those of `ca_file` beside them.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::error::ChannelError;

/// Reads the PEM file of certificates that `setting` names.
///
/// # Errors
///
/// It can't be read, holds no certificate, or one that is broken.
pub(super) fn read(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, ChannelError> {
    let failed = |source| ChannelError::of_setting(setting, format_args!("read {path:?}")).caused_by(source);
    let pem = std::fs::read(path).map_err(failed)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|_| broken(setting, path))?;
    if certificates.is_empty() {
        let allowed = "holds no certificate, allowed is a PEM file with \"BEGIN CERTIFICATE\" blocks";
        return Err(ChannelError::of_setting(setting, format_args!("{path:?} {allowed}")));
    }
    Ok(certificates)
}

/// A certificate of the file is none.
pub(super) fn broken(setting: &'static str, path: &Path) -> ChannelError {
    ChannelError::of_setting(setting, format_args!("{path:?} holds a broken certificate"))
}

/// The system's authorities and those of `ca_file`.
///
/// A system without any is no error: plain HTTP still works, and a TLS attempt says that the certificate is not trusted.
///
/// # Errors
///
/// Those of [`read`].
pub(super) fn roots(setting: &'static str, ca_file: Option<&Path>) -> Result<RootCertStore, ChannelError> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        for certificate in read(setting, path)? {
            store.add(certificate).map_err(|_| broken(setting, path))?;
        }
    }
    Ok(store)
}
