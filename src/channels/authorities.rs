//! Certificate authorities: the system's, and those of `ca_file` beside them.

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Why a file of certificates can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CaFileError {
    /// It can't be read.
    #[error("{setting}: read {path:?}")]
    Read {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It holds no certificate.
    #[error("{setting}: {path:?} holds no certificate, allowed is a PEM file with \"BEGIN CERTIFICATE\" blocks")]
    Empty {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A certificate is not one.
    #[error("{setting}: {path:?} holds a broken certificate")]
    Broken {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
    },
}

impl CaFileError {
    /// The setting that names the file.
    #[must_use]
    pub const fn setting(&self) -> &'static str {
        match self {
            Self::Read { setting, .. } | Self::Empty { setting, .. } | Self::Broken { setting, .. } => setting,
        }
    }
}

/// Reads a PEM file of certificates.
///
/// # Errors
///
/// [`CaFileError::Read`], [`CaFileError::Empty`], [`CaFileError::Broken`].
pub(super) fn read(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, CaFileError> {
    let path_buf = || path.to_path_buf();
    let pem = std::fs::read(path).map_err(|source| CaFileError::Read { setting, path: path_buf(), source })?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|_| CaFileError::Broken { setting, path: path_buf() })?;
    if certificates.is_empty() {
        return Err(CaFileError::Empty { setting, path: path_buf() });
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
pub(super) fn roots(setting: &'static str, ca_file: Option<&Path>) -> Result<RootCertStore, CaFileError> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        for certificate in read(setting, path)? {
            let broken = |_| CaFileError::Broken { setting, path: path.to_path_buf() };
            store.add(certificate).map_err(broken)?;
        }
    }
    Ok(store)
}
