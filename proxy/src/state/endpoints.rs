//! EndpointSlices of one family, merged over a Service's slices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::discovery::v1::{EndpointConditions, EndpointSlice};

use crate::model::{Family, LABEL_HEADLESS, LABEL_PROXY_NAME, LABEL_SERVICE_NAME, Protocol, ShortString, parse_ip};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub address: SocketAddr,
    pub local: bool,
    /// Whether the endpoint has no node name: it may run on this node.
    pub unplaced: bool,
    /// Whether it may receive new connections.
    pub ready: bool,
    /// Whether it accepts connections, even if terminating.
    pub serving: bool,
    pub terminating: bool,
    pub zone_hints: BTreeSet<String>,
    pub node_hints: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    pub service: ShortString,
    // Boxed to save memory: a large cluster has tens of thousands of endpoints. Ports are sorted.
    ports: Box<[(ShortString, Protocol, u16)]>,
    endpoints: Box<[SliceEndpoint]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SliceEndpoint {
    address: IpAddr,
    local: bool,
    unplaced: bool,
    ready: bool,
    serving: bool,
    terminating: bool,
    hints: Option<Box<EndpointHints>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct EndpointHints {
    zones: BTreeSet<String>,
    nodes: BTreeSet<String>,
}

impl SliceEndpoint {
    /// Among endpoints with one address the greatest wins: as in kube-proxy one that does not terminate, because a new
    /// pod may get an old one's address (kubernetes/kubernetes#135266, `addEndpoints` of
    /// pkg/proxy/endpointslicecache.go in 1.36). The other fields make the order of slices irrelevant.
    fn precedence(&self) -> [bool; 4] {
        [!self.terminating, self.ready, self.serving, self.local]
    }

    fn on_port(&self, port: u16) -> Endpoint {
        let hints = self.hints.as_deref().cloned().unwrap_or_default();
        Endpoint {
            address: SocketAddr::new(self.address, port),
            local: self.local,
            unplaced: self.unplaced,
            ready: self.ready,
            serving: self.serving,
            terminating: self.terminating,
            zone_hints: hints.zones,
            node_hints: hints.nodes,
        }
    }
}

impl Slice {
    /// `None` if the slice has another family, another proxy, or no Service.
    pub fn read(slice: &EndpointSlice, family: Family, node_name: &str) -> Option<Slice> {
        let labels = slice.metadata.labels.as_ref()?;
        if slice.address_type != family.as_str()
            || labels.contains_key(LABEL_PROXY_NAME)
            || labels.contains_key(LABEL_HEADLESS)
        {
            return None;
        }
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            let number = port.port.and_then(|p| u16::try_from(p).ok()).filter(|p| *p != 0)?;
            Some((
                port.name.as_deref().unwrap_or_default().into(),
                Protocol::from_api(port.protocol.as_deref())?,
                number,
            ))
        });
        let mut ports: Box<[_]> = ports.collect();
        ports.sort_unstable();
        let endpoints = slice.endpoints.iter().flatten().filter_map(|endpoint| {
            // The API leaves the meaning of further addresses undefined.
            let address = parse_ip(endpoint.addresses.first()?).filter(|ip| Family::of(ip) == family)?;
            // Defaults: ready, serving and not terminating (documentation of EndpointConditions).
            let conditions = endpoint.conditions.as_ref();
            let condition = |of: fn(&EndpointConditions) -> Option<bool>| conditions.and_then(of);
            let hints = endpoint.hints.clone().map(|hints| {
                Box::new(EndpointHints {
                    zones: hints.for_zones.into_iter().flatten().map(|zone| zone.name).collect(),
                    nodes: hints.for_nodes.into_iter().flatten().map(|node| node.name).collect(),
                })
            });
            Some(SliceEndpoint {
                address,
                local: endpoint.node_name.as_deref() == Some(node_name),
                unplaced: endpoint.node_name.is_none(),
                ready: condition(|c| c.ready).unwrap_or(true),
                serving: condition(|c| c.serving).unwrap_or(true),
                terminating: condition(|c| c.terminating).unwrap_or(false),
                hints,
            })
        });
        Some(Slice { service: labels.get(LABEL_SERVICE_NAME)?.into(), ports, endpoints: endpoints.collect() })
    }
}

impl Slice {
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = IpAddr> {
        self.endpoints.iter().map(|endpoint| endpoint.address)
    }
}

/// Merges a Service's slices: sorted endpoints, one per address.
pub fn merge<'a>(slices: impl Iterator<Item = &'a Slice>, port_name: &str, protocol: Protocol) -> Vec<Endpoint> {
    let mut merged: BTreeMap<SocketAddr, &SliceEndpoint> = BTreeMap::new();
    for slice in slices {
        let wanted = (port_name, protocol);
        let begin = slice.ports.partition_point(|(name, p, _)| (name.as_str(), *p) < wanted);
        for (_, _, number) in slice.ports.iter().skip(begin).take_while(|(name, p, _)| (name.as_str(), *p) == wanted) {
            for endpoint in &*slice.endpoints {
                let known = merged.entry(SocketAddr::new(endpoint.address, *number)).or_insert(endpoint);
                if endpoint.precedence() > known.precedence() {
                    *known = endpoint;
                }
            }
        }
    }
    merged.into_iter().map(|(address, endpoint)| endpoint.on_port(address.port())).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn slice(endpoints: Value) -> Slice {
        let slice = serde_json::from_value(json!({
            "metadata": {"name": "web-1", "labels": {LABEL_SERVICE_NAME: "web"}},
            "addressType": "IPv4", "ports": [{"name": "", "port": 80, "protocol": "TCP"}], "endpoints": endpoints,
        }));
        Slice::read(&slice.unwrap(), Family::V4, "me").unwrap()
    }

    fn conditions(of: &Endpoint) -> [bool; 3] {
        [of.ready, of.serving, of.terminating]
    }

    #[test]
    fn missing_conditions_have_defaults() {
        let table = [
            (Value::Null, [true, true, false]),
            (json!({}), [true, true, false]),
            (json!({"ready": false}), [false, true, false]),
            (json!({"serving": false}), [true, false, false]),
            (json!({"terminating": true}), [true, true, true]),
            (json!({"ready": false, "terminating": true}), [false, true, true]),
            (json!({"ready": false, "serving": false, "terminating": true}), [false, false, true]),
        ];
        for (given, meant) in table {
            let slice = slice(json!([{"addresses": ["10.0.0.1"], "conditions": given}]));
            let merged = merge([&slice].into_iter(), "", Protocol::Tcp);
            assert_eq!(conditions(&merged[0]), meant, "{given}");
        }
    }

    #[test]
    fn an_endpoint_that_does_not_terminate_wins_over_one_with_the_same_address() {
        let copy = |node: &str, conditions: Value, zone: &str| {
            json!({"addresses": ["10.0.0.1"], "nodeName": node, "conditions": conditions,
                   "hints": {"forZones": [{"name": zone}]}})
        };
        let ready = || json!({"ready": true, "serving": true, "terminating": false});
        let gone = || json!({"ready": false, "serving": false, "terminating": true});
        let draining = || json!({"ready": false, "serving": true, "terminating": true});
        let unready = || json!({"ready": false, "serving": false, "terminating": false});
        let published = || json!({"ready": true, "serving": true, "terminating": true});
        let table = [
            (copy("me", gone(), "a"), copy("there", ready(), "b")),
            (copy("me", draining(), "a"), copy("there", ready(), "b")),
            (copy("me", published(), "a"), copy("there", unready(), "b")),
            (copy("me", unready(), "a"), copy("there", ready(), "b")),
            (copy("me", gone(), "a"), copy("there", draining(), "b")),
            (copy("there", ready(), "a"), copy("me", ready(), "b")),
        ];
        for (loser, winner) in table {
            let alone = slice(json!([winner]));
            let expected = merge([&alone].into_iter(), "", Protocol::Tcp);
            let other = slice(json!([loser]));
            let together = [slice(json!([loser, winner])), slice(json!([winner, loser]))];
            for slices in [vec![&alone, &other], vec![&other, &alone], vec![&together[0]], vec![&together[1]]] {
                assert_eq!(merge(slices.into_iter(), "", Protocol::Tcp), expected, "{loser} against {winner}");
            }
        }
    }
}
