//! `healthCheckNodePort`: how a load balancer learns which nodes have a ready endpoint of a Service under
//! `externalTrafficPolicy: Local` (<https://kubernetes.io/docs/reference/networking/virtual-ips/#external-traffic-policy>).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use hyper::StatusCode;
use hyper::header::HeaderValue;

use super::http::{Handler, Reply, Server, json};
use super::{HealthState, ListenError};

/// What one port tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceHealth {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Ready endpoints on this node.
    pub local_endpoints: usize,
}

/// All health checks of this node.
#[derive(Debug)]
pub struct ServiceHealthServers {
    addresses: Vec<IpAddr>,
    proxy: HealthState,
    ports: BTreeMap<u16, Port>,
}

#[derive(Debug)]
struct Port {
    told: Arc<Mutex<ServiceHealth>>,
    servers: Vec<Server>,
}

impl ServiceHealthServers {
    /// Will listen on these addresses.
    pub fn new(addresses: Vec<IpAddr>, proxy: HealthState) -> ServiceHealthServers {
        ServiceHealthServers { addresses, proxy, ports: BTreeMap::new() }
    }

    /// Will listen on every address of the node: an IPv6 wildcard socket takes IPv4 connections too; without IPv6,
    /// an IPv4 one does.
    pub fn on_every_address(proxy: HealthState) -> ServiceHealthServers {
        let v6 = std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
        let any = if v6 { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { IpAddr::from(Ipv4Addr::UNSPECIFIED) };
        ServiceHealthServers::new(vec![any], proxy)
    }

    /// Opens what is wanted and not open, closes what is no longer wanted, and updates what is told. What cannot be
    /// opened is returned and tried again at the next call; the rest goes on.
    pub fn sync(&mut self, wanted: BTreeMap<u16, ServiceHealth>) -> Vec<ListenError> {
        self.ports.retain(|port, _| wanted.contains_key(port));
        let mut errors = Vec::new();
        let both = self.addresses.contains(&IpAddr::from(Ipv4Addr::UNSPECIFIED));
        for (number, health) in wanted {
            let port = self
                .ports
                .entry(number)
                .or_insert_with(|| Port { told: Arc::new(Mutex::new(health.clone())), servers: Vec::new() });
            let purpose = format!("the health check of Service {}/{}", health.namespace, health.name);
            *port.told.lock().unwrap_or_else(PoisonError::into_inner) = health;
            for address in &self.addresses {
                if port.servers.iter().any(|server| server.address().ip() == *address) {
                    continue;
                }
                let handler = handler(Arc::clone(&port.told), self.proxy.clone());
                match Server::bind(SocketAddr::new(*address, number), both, &purpose, handler) {
                    Ok(server) => port.servers.push(server),
                    Err(error) => errors.push(error),
                }
            }
        }
        errors
    }
}

fn handler(told: Arc<Mutex<ServiceHealth>>, proxy: HealthState) -> Handler {
    // Load balancers ask for any path: upstream answers all alike.
    Arc::new(move |_path| {
        let health = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        reply(&health, proxy.look().healthy)
    })
}

fn reply(health: &ServiceHealth, proxy_healthy: bool) -> Reply {
    let ok = health.local_endpoints > 0 && proxy_healthy;
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = serde_json::json!({
        "service": { "namespace": health.namespace, "name": health.name },
        "localEndpoints": health.local_endpoints,
        "serviceProxyHealthy": proxy_healthy,
    });
    let mut reply = json(status, &body);
    reply.headers_mut().insert("X-Load-Balancing-Endpoint-Weight", HeaderValue::from(health.local_endpoints));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ResourceVersions;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn get(port: u16) -> std::io::Result<String> {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }

    fn health(local_endpoints: usize) -> ServiceHealth {
        ServiceHealth { namespace: "default".into(), name: "web".into(), local_endpoints }
    }

    /// A port that was free a moment ago.
    fn free_port() -> u16 {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn a_port_tells_the_local_endpoints_and_goes_with_its_service() {
        let proxy = HealthState::new(Duration::from_secs(30));
        let mut servers = ServiceHealthServers::new(vec![Ipv4Addr::LOCALHOST.into()], proxy.clone());
        let port = free_port();
        assert!(servers.sync(BTreeMap::from([(port, health(2))])).is_empty());
        let early = get(port).await.unwrap();
        assert!(early.starts_with("HTTP/1.1 503 "), "the proxy has not synced yet: {early}");
        proxy.synced(None, ResourceVersions::default());
        let up = get(port).await.unwrap();
        assert!(up.starts_with("HTTP/1.1 200 "), "{up}");
        assert!(up.contains("x-load-balancing-endpoint-weight: 2\r\n"), "{up}");
        let body = r#"{"localEndpoints":2,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}"#;
        assert!(up.ends_with(body), "{up}");
        servers.sync(BTreeMap::from([(port, health(0))]));
        assert!(get(port).await.unwrap().starts_with("HTTP/1.1 503 "));
        servers.sync(BTreeMap::new());
        // The listener is closed when its task has been dropped by the runtime: soon, not at once.
        tokio::time::timeout(Duration::from_secs(5), async {
            while get(port).await.is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn both_wildcards_share_a_port() {
        if std::net::TcpListener::bind("[::1]:0").is_err() {
            return; // This machine has no IPv6.
        }
        let proxy = HealthState::new(Duration::from_secs(30));
        proxy.synced(None, ResourceVersions::default());
        let any = vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let mut servers = ServiceHealthServers::new(any, proxy);
        let port = free_port();
        let errors = servers.sync(BTreeMap::from([(port, health(1))]));
        assert!(errors.is_empty(), "{errors:?}");
        assert!(get(port).await.unwrap().starts_with("HTTP/1.1 200 "));
        assert!(tokio::net::TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.is_ok());
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_that_names_it_and_stops_no_other() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken_port = taken.local_addr().unwrap().port();
        let proxy = HealthState::new(Duration::from_secs(30));
        proxy.synced(None, ResourceVersions::default());
        let mut servers = ServiceHealthServers::new(vec![Ipv4Addr::LOCALHOST.into()], proxy);
        let other = free_port();
        let wanted = || BTreeMap::from([(taken_port, health(1)), (other, health(1))]);
        let errors = servers.sync(wanted());
        assert_eq!(errors.len(), 1);
        let text = errors[0].to_string();
        assert!(text.contains(&taken_port.to_string()) && text.contains("default/web"), "{text}");
        assert!(get(other).await.unwrap().starts_with("HTTP/1.1 200 "));
        drop(taken);
        assert!(servers.sync(wanted()).is_empty(), "tried again once it is free");
    }
}
