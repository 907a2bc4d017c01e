//! Load balancers ask which nodes have a ready endpoint of a Service with `externalTrafficPolicy: Local`
//! (<https://kubernetes.io/docs/reference/networking/virtual-ips/#external-traffic-policy>).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use hyper::StatusCode;
use hyper::header::HeaderValue;

use super::{HealthState, ListenError};
use crate::http::{ConnectionLimit, Handler, HttpReply, Server, immediate, json};
use crate::model::ObjectKey;
use crate::mutants::{self, HealthFacts};
use crate::plan::health::ServiceCheck;

#[derive(Debug)]
pub struct ServiceHealthServers {
    proxy: HealthState,
    limit: ConnectionLimit,
    services: BTreeMap<ObjectKey, CheckPort>,
    addresses: BTreeSet<IpAddr>,
    unserved: BTreeSet<ObjectKey>,
}

#[derive(Debug)]
pub struct UnopenedCheck {
    pub service: ObjectKey,
    pub error: ListenError,
}

#[derive(Debug)]
struct CheckPort {
    number: u16,
    reported: Arc<Mutex<CheckStatus>>,
    servers: Vec<Server>,
}

#[derive(Debug, Clone)]
struct CheckStatus {
    service: ObjectKey,
    local_endpoints: usize,
}

impl ServiceHealthServers {
    pub fn new(proxy: HealthState, limit: ConnectionLimit) -> ServiceHealthServers {
        ServiceHealthServers {
            proxy,
            limit,
            services: BTreeMap::new(),
            addresses: BTreeSet::new(),
            unserved: BTreeSet::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// Returns Services whose port cannot be opened; the next call retries them. Visits only changed Services, unless the
    /// addresses changed.
    pub fn update(
        &mut self,
        changed: Vec<(ObjectKey, Option<ServiceCheck>)>,
        addresses: BTreeSet<IpAddr>,
    ) -> Vec<UnopenedCheck> {
        // A port number may move from one Service to another: its listeners stay open.
        let mut given_up: BTreeMap<u16, CheckPort> = BTreeMap::new();
        for (service, check) in &changed {
            let wanted = check.as_ref().map(|check| check.port);
            if self.services.get(service).is_some_and(|port| Some(port.number) != wanted) {
                given_up.extend(self.services.remove(service).map(|port| (port.number, port)));
            }
        }
        let mut open = std::mem::take(&mut self.unserved);
        for (service, check) in changed {
            let Some(ServiceCheck { port: number, local_endpoints }) = check else { continue };
            let reported = CheckStatus { service: service.clone(), local_endpoints };
            let port = match self.services.entry(service.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    open.insert(service);
                    let reported = Arc::new(Mutex::new(reported.clone()));
                    new.insert(given_up.remove(&number).unwrap_or(CheckPort { number, reported, servers: Vec::new() }))
                }
            };
            *port.reported.lock().unwrap_or_else(PoisonError::into_inner) = reported;
        }
        drop(given_up);
        if self.addresses != addresses {
            self.addresses = addresses;
            open.extend(self.services.keys().cloned());
        }
        open.into_iter().flat_map(|service| self.listen(service)).collect()
    }

    fn listen(&mut self, service: ObjectKey) -> Vec<UnopenedCheck> {
        let Some(port) = self.services.get_mut(&service) else { return Vec::new() };
        let mut unserved = Vec::new();
        let purpose = format!("the health check of Service {service}");
        port.servers.retain(|server| self.addresses.contains(&server.address().ip()));
        for address in &self.addresses {
            if port.servers.iter().any(|server| server.address().ip() == *address) {
                continue;
            }
            let handler = handler(Arc::clone(&port.reported), self.proxy.clone());
            match Server::bind(SocketAddr::new(*address, port.number), true, &purpose, &self.limit, handler) {
                Ok(server) => port.servers.push(server),
                Err(error) => unserved.push(UnopenedCheck { service: service.clone(), error }),
            }
        }
        if !unserved.is_empty() {
            self.unserved.insert(service);
        }
        unserved
    }
}

fn handler(reported: Arc<Mutex<CheckStatus>>, proxy: HealthState) -> Handler {
    // As in kube-proxy, every path has the same answer.
    immediate(move |_path| {
        let reported = reported.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // As in kube-proxy, the node's eligibility does not count here.
        let proxy = proxy.snapshot();
        let mut facts = HealthFacts { alive: proxy.alive, synced: proxy.synced, node_eligible: proxy.node_eligible };
        mutants::health("", &mut facts);
        reply(&reported, facts.alive && facts.synced)
    })
}

fn reply(answer: &CheckStatus, proxy_healthy: bool) -> HttpReply {
    let ok = answer.local_endpoints > 0 && proxy_healthy;
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = serde_json::json!({
        "service": { "namespace": answer.service.namespace.as_str(), "name": answer.service.name.as_str() },
        "localEndpoints": answer.local_endpoints,
        "serviceProxyHealthy": proxy_healthy,
    });
    let mut reply = json(status, &body);
    reply.headers_mut().insert("X-Load-Balancing-Endpoint-Weight", HeaderValue::from(answer.local_endpoints));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::AppliedVersions;
    use crate::http::ask;
    use crate::model::Family;
    use crate::testing::{held_port, key};
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::time::Duration;

    async fn get(port: u16) -> std::io::Result<String> {
        ask((Ipv4Addr::LOCALHOST, port).into(), "GET /").await
    }

    fn check(name: &str, port: u16, local_endpoints: usize) -> (ObjectKey, Option<ServiceCheck>) {
        (key(name), Some(ServiceCheck { port, local_endpoints }))
    }

    fn proxy() -> HealthState {
        HealthState::new(Duration::from_secs(30), &[Family::V4])
    }

    fn synced() -> HealthState {
        let proxy = proxy();
        proxy.synced(Family::V4, &AppliedVersions::default());
        proxy
    }

    fn servers(proxy: HealthState) -> ServiceHealthServers {
        ServiceHealthServers::new(proxy, ConnectionLimit::new("health checks", 8))
    }

    fn localhost() -> BTreeSet<IpAddr> {
        [Ipv4Addr::LOCALHOST.into()].into()
    }

    /// Held until the process ends.
    fn free_port() -> u16 {
        let (socket, address) = held_port();
        std::mem::forget(socket);
        address.port()
    }

    /// Waits until the runtime has dropped the port's listener.
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
    async fn a_check_reports_local_endpoints_and_closes_with_its_service() {
        let proxy = proxy();
        let mut servers = servers(proxy.clone());
        let port = free_port();
        assert!(servers.update(vec![check("web", port, 2)], localhost()).is_empty());
        let early = get(port).await.unwrap();
        assert!(early.starts_with("HTTP/1.1 503 "), "the proxy has not synced yet: {early}");
        proxy.synced(Family::V4, &AppliedVersions::default());
        proxy.set_node_eligible(false);
        let up = get(port).await.unwrap();
        assert!(up.starts_with("HTTP/1.1 200 "), "whatever becomes of the node: {up}");
        assert!(up.contains("x-load-balancing-endpoint-weight: 2\r\n"), "{up}");
        let body = r#"{"localEndpoints":2,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}"#;
        assert!(up.ends_with(body), "{up}");
        servers.update(vec![check("web", port, 0)], localhost());
        assert!(get(port).await.unwrap().starts_with("HTTP/1.1 503 "));
        servers.update(vec![(key("web"), None)], localhost());
        closed(port).await;
        assert!(servers.is_empty());
    }

    #[tokio::test]
    async fn a_check_listens_on_the_addresses_of_node_ports() {
        let mut servers = servers(synced());
        let port = free_port();
        let other: IpAddr = "127.0.0.2".parse().unwrap();
        assert!(servers.update(vec![check("web", port, 1)], [other].into()).is_empty());
        assert!(ask((other, port).into(), "GET /").await.unwrap().starts_with("HTTP/1.1 200 "));
        assert!(get(port).await.is_err());
        assert!(servers.update(Vec::new(), [other, Ipv4Addr::LOCALHOST.into()].into()).is_empty());
        assert!(get(port).await.is_ok() && ask((other, port).into(), "GET /").await.is_ok());
        assert!(servers.update(Vec::new(), [other].into()).is_empty());
        closed(port).await;
        assert!(ask((other, port).into(), "GET /").await.is_ok());
    }

    #[tokio::test]
    async fn both_families_share_a_port_and_report_their_own_endpoints() {
        if std::net::TcpListener::bind("[::1]:0").is_err() {
            return; // This machine has no IPv6.
        }
        let mut v4 = servers(synced());
        let mut v6 = servers(synced());
        let port = free_port();
        let mut errors = v4.update(vec![check("web", port, 1)], [Ipv4Addr::UNSPECIFIED.into()].into());
        errors.extend(v6.update(vec![check("web", port, 0)], [Ipv6Addr::UNSPECIFIED.into()].into()));
        assert!(errors.is_empty(), "{errors:?}");
        assert!(get(port).await.unwrap().starts_with("HTTP/1.1 200 "));
        let other = ask((Ipv6Addr::LOCALHOST, port).into(), "GET /").await.unwrap();
        assert!(other.starts_with("HTTP/1.1 503 "), "each family answers for itself: {other}");
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_and_affects_no_other_check() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken_port = taken.local_addr().unwrap().port();
        let mut servers = servers(synced());
        let other = free_port();
        let wanted = vec![check("web", taken_port, 1), check("other", other, 1)];
        let unserved = servers.update(wanted, localhost());
        assert_eq!(unserved.len(), 1);
        let text = unserved[0].error.to_string();
        assert!(text.contains(&taken_port.to_string()) && text.contains("default/web"), "{text}");
        assert_eq!(unserved[0].service.to_string(), "default/web");
        assert!(get(other).await.unwrap().starts_with("HTTP/1.1 200 "));
        assert_eq!(servers.update(Vec::new(), localhost()).len(), 1, "reported as long as it lasts");
        drop(taken);
        assert!(servers.update(Vec::new(), localhost()).is_empty(), "tried again once it is free");
        assert!(get(taken_port).await.unwrap().starts_with("HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn a_port_number_moves_between_services() {
        let mut servers = servers(synced());
        let (port, next) = (free_port(), free_port());
        assert!(servers.update(vec![check("a", port, 1)], localhost()).is_empty());
        assert!(servers.update(vec![check("a", next, 1), check("b", port, 0)], localhost()).is_empty());
        assert!(get(port).await.unwrap().contains(r#""name":"b""#));
        assert!(get(next).await.unwrap().contains(r#""name":"a""#));
    }
}
