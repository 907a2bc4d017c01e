use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The name of HTTP/2 in a TLS handshake (RFC 9113, 3.2).
pub(super) const HTTP_2: &[u8] = b"h2";

/// The error of generating or loading certificates.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Generating a key or certificate failed.
    #[error("cannot make the lab's certificates for {hosts:?}")]
    Certificate {
        /// Hosts of the server's certificate.
        hosts: Vec<String>,
        /// The cause.
        #[source]
        source: rcgen::Error,
    },
    /// The TLS library rejects the certificates.
    #[error("cannot serve TLS with the lab's certificates")]
    Config(#[source] tokio_rustls::rustls::Error),
}

/// An authority and a server certificate.
#[derive(Clone)]
pub struct Tls {
    ca_pem: String,
    certificate_pem: String,
    key_pem: String,
    acceptor: TlsAcceptor,
    roots: Arc<RootCertStore>,
}

impl Tls {
    /// The server certificate is valid for `hosts`, names or addresses.
    pub fn generate(hosts: &[String]) -> Result<Self, TlsError> {
        let failed = |source| TlsError::Certificate { hosts: hosts.to_vec(), source };
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        authority.distinguished_name.push(DnType::CommonName, "svclab");
        let authority_key = KeyPair::generate().map_err(failed)?;
        let certificate = authority.self_signed(&authority_key).map_err(failed)?;
        let issuer = Issuer::new(authority, authority_key);
        let mut server = CertificateParams::new(hosts.to_vec()).map_err(failed)?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        let key = KeyPair::generate().map_err(failed)?;
        let signed = server.signed_by(&key, &issuer).map_err(failed)?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?
            .with_no_client_auth()
            .with_single_cert(vec![signed.der().clone()], private)
            .map_err(TlsError::Config)?;
        config.alpn_protocols = vec![HTTP_2.to_vec(), b"http/1.1".to_vec()];
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).map_err(TlsError::Config)?;
        Ok(Tls {
            ca_pem: certificate.pem(),
            certificate_pem: signed.pem(),
            key_pem: key.serialize_pem(),
            acceptor: TlsAcceptor::from(Arc::new(config)),
            roots: Arc::new(roots),
        })
    }

    /// PEM certificate of the authority.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// PEM certificate of the server.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// PEM key of the server's certificate.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    pub(super) fn connector(&self) -> Result<TlsConnector, TlsError> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    }

    pub(super) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}
