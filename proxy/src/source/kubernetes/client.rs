//! The HTTP client of the Kubernetes API. If the server speaks HTTP/2, as kube-apiserver does, all requests and watches
//! share one connection; over HTTP/1.1 each watch has its own. `kube`'s builder has no HTTP/2, and brings the credential
//! plugins that `access` and `exec` replace.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use hyper::Uri;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Client;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{AuthInfo, Config};
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::ExposeSecret;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tower_http::decompression::DecompressionLayer;
use tower_layer::Layer;

use super::unverified::Unverified;
use crate::metrics::RequestsTo;
use crate::small_file;

/// A silent connection is asked for a sign of life after this time and closed after the next one, as by client-go
/// (k8s.io/apimachinery/pkg/util/net, `HTTP2_READ_IDLE_TIMEOUT_SECONDS` and `HTTP2_PING_TIMEOUT_SECONDS`).
const PING_AFTER: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(15);
/// How much the server may send unread, in bytes: of one answer, and of all. Bounds memory.
const STREAM_WINDOW: u32 = 1 << 18;
const CONNECTION_WINDOW: u32 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("connections through a proxy ({0}; `proxy-url`, or the variable HTTPS_PROXY) are not supported")]
    Proxy(Uri),
    #[error("the certificate authorities cannot be used: {0}")]
    Authorities(String),
    #[error("the client certificate cannot be used: {0}")]
    Identity(String),
    #[error("tls-server-name {0:?} is no name of a server")]
    ServerName(String),
    #[error("the credentials cannot be sent: {0}")]
    Header(String),
}

pub(super) fn client(config: &mut Config, requests: &RequestsTo) -> Result<Client, ClientError> {
    if let Some(proxy) = config.proxy_url.take() {
        return Err(ClientError::Proxy(proxy));
    }
    if let Some(value) = authorization(&config.auth_info)? {
        config.headers.push((AUTHORIZATION, value));
    }
    let http: HyperClient<_, Body> = HyperClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PONG_WITHIN)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .build(connector(config)?);
    let headers = config.extra_headers_layer().map_err(|error| ClientError::Header(error.to_string()))?;
    let service = headers.layer(http);
    let service = DecompressionLayer::new().gzip(!config.disable_compression).layer(service);
    let service = config.base_uri_layer().layer(service);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).with_layer(requests).build())
}

/// As by client-go: name and password, else the token.
fn authorization(user: &AuthInfo) -> Result<Option<HeaderValue>, ClientError> {
    let written = match (&user.username, &user.password, &user.token) {
        (Some(name), Some(password), _) => {
            format!("Basic {}", BASE64.encode(format!("{name}:{}", password.expose_secret()).as_bytes()))
        }
        (_, _, Some(token)) => format!("Bearer {}", token.expose_secret()),
        _ => return Ok(None),
    };
    let wrong = |_| ClientError::Header("the token has characters that no header may have".to_owned());
    let mut value = HeaderValue::try_from(written).map_err(wrong)?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn connector(config: &Config) -> Result<HttpsConnector<HttpConnector>, ClientError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls(config)?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let server = ServerName::try_from(name.clone()).map_err(|_| ClientError::ServerName(name.clone()))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(server));
    }
    Ok(builder.enable_http1().enable_http2().wrap_connector(tcp))
}

fn tls(config: &Config) -> Result<ClientConfig, ClientError> {
    let wrong = |error: tokio_rustls::rustls::Error| ClientError::Authorities(error.to_string());
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(wrong)?;
    let builder = match &config.root_cert {
        _ if config.accept_invalid_certs => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified::new(provider)))
        }
        Some(authorities) => {
            let mut roots = RootCertStore::empty();
            for authority in authorities {
                roots.add(CertificateDer::from(authority.clone())).map_err(wrong)?;
            }
            builder.with_root_certificates(roots)
        }
        // As in client-go: the authorities of the machine.
        None => builder.with_platform_verifier().map_err(wrong)?,
    };
    match identity(&config.auth_info)? {
        Some((chain, key)) => {
            builder.with_client_auth_cert(chain, key).map_err(|error| ClientError::Identity(error.to_string()))
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(user: &AuthInfo) -> Result<Option<Identity>, ClientError> {
    let key_data = user.client_key_data.as_ref().map(|data| data.expose_secret());
    let chain = pem(user.client_certificate_data.as_deref(), user.client_certificate.as_deref())?;
    let key = pem(key_data, user.client_key.as_deref())?;
    let wrong = |what: &str, error: String| ClientError::Identity(format!("{what}: {error}"));
    match (chain, key) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(ClientError::Identity("it has no key".to_owned())),
        (None, Some(_)) => Err(ClientError::Identity("there is a key without a certificate".to_owned())),
        (Some(chain), Some(key)) => {
            let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>();
            let chain = chain.map_err(|error| wrong("the certificate", error.to_string()))?;
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| wrong("the key", error.to_string()))?;
            Ok(Some((chain, key)))
        }
    }
}

/// Reads base64, else the file.
fn pem(data: Option<&str>, file: Option<&str>) -> Result<Option<Vec<u8>>, ClientError> {
    match (data, file) {
        (Some(data), _) => {
            let decoded = BASE64.decode(data.trim().as_bytes());
            decoded.map(Some).map_err(|error| ClientError::Identity(format!("no base64: {error}")))
        }
        (None, Some(file)) => {
            let read = small_file::read(file.as_ref());
            read.map(Some).map_err(|error| ClientError::Identity(format!("{file}: {error}")))
        }
        (None, None) => Ok(None),
    }
}
