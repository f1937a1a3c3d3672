//! Certificates for one test: an unknown authority, and a server certificate.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::PrivateKeyDer;
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

/// An authority with one certificate for `localhost` and 127.0.0.1.
pub struct Certificates {
    directory: TempDir,
    acceptor: TlsAcceptor,
}

impl Certificates {
    /// Creates both.
    pub fn new() -> Self {
        Self::for_names(&["localhost"])
    }

    /// Creates both, for these names and 127.0.0.1.
    pub fn for_names(names: &[&str]) -> Self {
        let authority_key = KeyPair::generate().expect("a key");
        let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_pem = authority.self_signed(&authority_key).expect("an authority").pem();

        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut server = CertificateParams::new(names).expect("parameters");
        server.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let issuer = Issuer::new(authority, authority_key);
        let certificate = server.signed_by(&key, &issuer).expect("a certificate");

        let acceptor = showing(&certificate, &key);
        let directory = tempfile::tempdir().expect("a temporary folder");
        for (name, pem) in
            [("ca.pem", authority_pem), ("server.pem", certificate.pem()), ("key.pem", key.serialize_pem())]
        {
            std::fs::write(directory.path().join(name), pem).expect("written");
        }
        Self { directory, acceptor }
    }

    /// A server that uses an authority's certificate as its own, as a plain `openssl req -x509` creates it.
    pub fn authority_as_server() -> TlsAcceptor {
        let key = KeyPair::generate().expect("a key");
        let mut authority = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        showing(&authority.self_signed(&key).expect("a certificate"), &key)
    }

    /// The server's side of TLS.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// The same for a server that speaks HTTP/2.
    pub fn http2_acceptor(&self) -> TlsAcceptor {
        let mut config = rustls::ServerConfig::clone(self.acceptor.config());
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    /// The same for a server that floods its clients and therefore needs the connection's keys.
    pub fn flooding_acceptor(&self) -> TlsAcceptor {
        let mut config = rustls::ServerConfig::clone(self.acceptor.config());
        config.enable_secret_extraction = true;
        TlsAcceptor::from(Arc::new(config))
    }

    /// Certificate and key of the server, as PEM in files.
    pub fn server_files(&self) -> [PathBuf; 2] {
        ["server.pem", "key.pem"].map(|name| self.directory.path().join(name))
    }

    /// The authority, as PEM in a file.
    pub fn authority_file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }
}

/// The server's side of TLS, with this certificate.
fn showing(certificate: &Certificate, key: &KeyPair) -> TlsAcceptor {
    let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a private key");
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .expect("a matching key");
    TlsAcceptor::from(Arc::new(config))
}
