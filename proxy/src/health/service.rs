//! `healthCheckNodePort`: how a load balancer learns which nodes have a ready endpoint of a Service under
//! `externalTrafficPolicy: Local` (<https://kubernetes.io/docs/reference/networking/virtual-ips/#external-traffic-policy>).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use hyper::StatusCode;
use hyper::header::HeaderValue;

use super::{HealthState, ListenError};
use crate::http::{Handler, Reply, Server, at_once, json};
use crate::source::ObjectKey;

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
    proxy: HealthState,
    ports: BTreeMap<u16, Port>,
}

/// A Service whose health check cannot be asked.
#[derive(Debug)]
pub struct Unserved {
    /// Its namespace and name.
    pub service: ObjectKey,
    /// Why.
    pub error: ListenError,
}

#[derive(Debug)]
struct Port {
    told: Arc<Mutex<ServiceHealth>>,
    servers: Vec<Server>,
}

impl ServiceHealthServers {
    /// Serves nothing yet.
    pub fn new(proxy: HealthState) -> ServiceHealthServers {
        ServiceHealthServers { proxy, ports: BTreeMap::new() }
    }

    /// Opens what is wanted and not open, closes what is no longer wanted, and updates what is told. What cannot be
    /// opened is returned and tried again at the next call; the rest goes on. Wildcards are of one family each.
    pub fn sync(&mut self, wanted: BTreeMap<u16, ServiceHealth>, addresses: &BTreeSet<IpAddr>) -> Vec<Unserved> {
        self.ports.retain(|port, _| wanted.contains_key(port));
        let mut unserved = Vec::new();
        for (number, health) in wanted {
            let port = self
                .ports
                .entry(number)
                .or_insert_with(|| Port { told: Arc::new(Mutex::new(health.clone())), servers: Vec::new() });
            let service = ObjectKey { namespace: health.namespace.clone(), name: health.name.clone() };
            let purpose = format!("the health check of Service {service}");
            *port.told.lock().unwrap_or_else(PoisonError::into_inner) = health;
            port.servers.retain(|server| addresses.contains(&server.address().ip()));
            for address in addresses {
                if port.servers.iter().any(|server| server.address().ip() == *address) {
                    continue;
                }
                let handler = handler(Arc::clone(&port.told), self.proxy.clone());
                match Server::bind(SocketAddr::new(*address, number), true, &purpose, handler) {
                    Ok(server) => port.servers.push(server),
                    Err(error) => unserved.push(Unserved { service: service.clone(), error }),
                }
            }
        }
        unserved
    }
}

fn handler(told: Arc<Mutex<ServiceHealth>>, proxy: HealthState) -> Handler {
    // Load balancers ask for any path: upstream answers all alike.
    at_once(move |_path| {
        let health = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // As upstream: what becomes of the node is not asked here.
        let proxy = proxy.look();
        reply(&health, proxy.alive && proxy.synced)
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
    use crate::health::Applied;
    use crate::http::ask;
    use crate::model::Family;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::time::Duration;

    async fn get(port: u16) -> std::io::Result<String> {
        ask((Ipv4Addr::LOCALHOST, port).into(), "GET /").await
    }

    fn health(local_endpoints: usize) -> ServiceHealth {
        ServiceHealth { namespace: "default".into(), name: "web".into(), local_endpoints }
    }

    fn proxy() -> HealthState {
        HealthState::new(Duration::from_secs(30), &[Family::V4])
    }

    fn synced() -> HealthState {
        let proxy = proxy();
        proxy.synced(Family::V4, &Applied::default());
        proxy
    }

    fn localhost() -> BTreeSet<IpAddr> {
        [Ipv4Addr::LOCALHOST.into()].into()
    }

    /// A port that was free a moment ago.
    fn free_port() -> u16 {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    /// A listener is closed when its task has been dropped by the runtime: soon, not at once.
    async fn closed(port: u16) {
        tokio::time::timeout(Duration::from_secs(5), async {
            while get(port).await.is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn a_port_tells_the_local_endpoints_and_goes_with_its_service() {
        let proxy = proxy();
        let mut servers = ServiceHealthServers::new(proxy.clone());
        let port = free_port();
        assert!(servers.sync(BTreeMap::from([(port, health(2))]), &localhost()).is_empty());
        let early = get(port).await.unwrap();
        assert!(early.starts_with("HTTP/1.1 503 "), "the proxy has not synced yet: {early}");
        proxy.synced(Family::V4, &Applied::default());
        proxy.set_node_eligible(false);
        let up = get(port).await.unwrap();
        assert!(up.starts_with("HTTP/1.1 200 "), "whatever becomes of the node: {up}");
        assert!(up.contains("x-load-balancing-endpoint-weight: 2\r\n"), "{up}");
        let body = r#"{"localEndpoints":2,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}"#;
        assert!(up.ends_with(body), "{up}");
        servers.sync(BTreeMap::from([(port, health(0))]), &localhost());
        assert!(get(port).await.unwrap().starts_with("HTTP/1.1 503 "));
        servers.sync(BTreeMap::new(), &localhost());
        closed(port).await;
    }

    #[tokio::test]
    async fn a_port_listens_on_the_addresses_of_node_ports_alone() {
        let mut servers = ServiceHealthServers::new(synced());
        let port = free_port();
        let wanted = || BTreeMap::from([(port, health(1))]);
        let other: IpAddr = "127.0.0.2".parse().unwrap();
        assert!(servers.sync(wanted(), &[other].into()).is_empty());
        assert!(ask((other, port).into(), "GET /").await.unwrap().starts_with("HTTP/1.1 200 "));
        assert!(get(port).await.is_err());
        assert!(servers.sync(wanted(), &[other, Ipv4Addr::LOCALHOST.into()].into()).is_empty());
        assert!(get(port).await.is_ok() && ask((other, port).into(), "GET /").await.is_ok());
        assert!(servers.sync(wanted(), &[other].into()).is_empty());
        closed(port).await;
        assert!(ask((other, port).into(), "GET /").await.is_ok());
    }

    #[tokio::test]
    async fn both_wildcards_share_a_port() {
        if std::net::TcpListener::bind("[::1]:0").is_err() {
            return; // This machine has no IPv6.
        }
        let any = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()].into();
        let mut servers = ServiceHealthServers::new(synced());
        let port = free_port();
        let errors = servers.sync(BTreeMap::from([(port, health(1))]), &any);
        assert!(errors.is_empty(), "{errors:?}");
        assert!(get(port).await.unwrap().starts_with("HTTP/1.1 200 "));
        assert!(tokio::net::TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.is_ok());
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_that_names_it_and_stops_no_other() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken_port = taken.local_addr().unwrap().port();
        let mut servers = ServiceHealthServers::new(synced());
        let other = free_port();
        let wanted = || BTreeMap::from([(taken_port, health(1)), (other, health(1))]);
        let unserved = servers.sync(wanted(), &localhost());
        assert_eq!(unserved.len(), 1);
        let text = unserved[0].error.to_string();
        assert!(text.contains(&taken_port.to_string()) && text.contains("default/web"), "{text}");
        assert_eq!(unserved[0].service.to_string(), "default/web");
        assert!(get(other).await.unwrap().starts_with("HTTP/1.1 200 "));
        drop(taken);
        assert!(servers.sync(wanted(), &localhost()).is_empty(), "tried again once it is free");
    }
}
