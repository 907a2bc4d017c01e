use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::tls::{Tls, TlsError};

/// An API server whose TLS certificate the lab's authority signed.
#[derive(Clone)]
pub struct Upstream {
    address: SocketAddr,
    connector: TlsConnector,
}

impl Upstream {
    /// Creates an upstream at `address`.
    pub fn new(address: SocketAddr, tls: &Tls) -> Result<Self, TlsError> {
        Ok(Upstream { address, connector: tls.connector()? })
    }

    /// Dropping or finishing the body closes the connection, which ends the upstream's watch.
    pub(super) async fn send(&self, mut request: Request<Bytes>) -> io::Result<Response<Incoming>> {
        let stream = TcpStream::connect(self.address).await?;
        let _ = stream.set_nodelay(true);
        let stream = self.connector.connect(ServerName::IpAddress(self.address.ip().into()), stream).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        // Sends the path without authority, as the client did.
        let path = request.uri().path_and_query().map(|path| path.as_str().to_owned()).unwrap_or_default();
        *request.uri_mut() = path.parse().map_err(io::Error::other)?;
        *request.version_mut() = hyper::Version::HTTP_11;
        // A client of HTTP/2 has sent none.
        let host = HeaderValue::try_from(self.address.to_string()).map_err(io::Error::other)?;
        request.headers_mut().entry(HOST).or_insert(host);
        sender.send_request(request.map(Full::new)).await.map_err(io::Error::other)
    }
}
