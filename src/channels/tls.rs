//! The client side of TLS: ring, the system's certificate authorities, and those of `ca_file`.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::error::ChannelError;

/// The TLS configuration of a client that trusts the system's authorities and those of `ca_file`, the file of the
/// setting `setting`.
///
/// A system without any authority is no error: plain text works, and an attempt with TLS reports that the certificate
/// is not trusted.
///
/// # Errors
///
/// `ca_file` can't be read, has no certificate, or has a broken one.
pub(super) fn client_config(setting: &'static str, ca_file: Option<&Path>) -> Result<ClientConfig, ChannelError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        for certificate in read(setting, path)? {
            roots.add(certificate).map_err(|_| broken(setting, path))?;
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let versions = builder.with_safe_default_protocol_versions();
    let builder = versions.map_err(|error| ChannelError::of_machine("build TLS", error))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The warning for a machine that trusts no authority; `setting` can add some.
pub(super) fn warning(setting: &'static str, ca_file: Option<&Path>) -> Option<String> {
    let trusts_none = ca_file.is_none() && rustls_native_certs::load_native_certs().certs.is_empty();
    trusts_none.then(|| {
        format!(
            "this machine has no certificate authorities, so no certificate is trusted: install ca-certificates, or set {setting}"
        )
    })
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, ChannelError> {
    let pem = std::fs::read(path).map_err(|source| ChannelError::unreadable(setting, path, source))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|_| broken(setting, path))?;
    if certificates.is_empty() {
        let allowed = "holds no certificate, allowed is a PEM file with \"BEGIN CERTIFICATE\" blocks";
        return Err(ChannelError::of_setting(setting, format_args!("{path:?} {allowed}")));
    }
    Ok(certificates)
}

fn broken(setting: &'static str, path: &Path) -> ChannelError {
    ChannelError::of_setting(setting, format_args!("{path:?} holds a broken certificate"))
}
