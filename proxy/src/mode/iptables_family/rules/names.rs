//! Upstream's chain names and hashes, which operators and tools know.

use std::net::{IpAddr, SocketAddr};

use data_encoding::BASE32;
use sha2::{Digest, Sha256};

use crate::model::{ObjectKey, ServicePortName};
use crate::ruleset::Table;

pub const SERVICES: &str = "KUBE-SERVICES";
pub const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
pub const NODE_PORTS: &str = "KUBE-NODEPORTS";
pub const POSTROUTING: &str = "KUBE-POSTROUTING";
pub const MARK_MASQ: &str = "KUBE-MARK-MASQ";
pub const FORWARD: &str = "KUBE-FORWARD";
/// filter: drops packets of sources that `loadBalancerSourceRanges` does not allow.
pub const PROXY_FIREWALL: &str = "KUBE-PROXY-FIREWALL";
/// filter: the guard of the loopback range; shared with kubelet.
pub const FIREWALL: &str = "KUBE-FIREWALL";
/// An empty chain: kubelet and kube-proxy detect a flush by its deletion.
pub const CANARY: &str = "KUBE-PROXY-CANARY";

/// IPVS mode; nat: node ports, filter: health-check node ports.
pub const NODE_PORT: &str = "KUBE-NODE-PORT";
pub const LOAD_BALANCER: &str = "KUBE-LOAD-BALANCER";
/// filter, IPVS mode: sources of load-balancer IPs.
pub const SOURCE_RANGES_FIREWALL: &str = "KUBE-SOURCE-RANGES-FIREWALL";
/// filter, IPVS mode: keeps host programs from answering on service addresses.
pub const IPVS_FILTER: &str = "KUBE-IPVS-FILTER";
/// mangle (upstream: filter), IPVS mode: drops the node's packets to service addresses.
pub const IPVS_OUT_FILTER: &str = "KUBE-IPVS-OUT-FILTER";

/// nat, userspace mode: packets from other machines to service addresses; `HOST`: from the node itself.
pub const PORTALS_CONTAINER: &str = "KUBE-PORTALS-CONTAINER";
pub const PORTALS_HOST: &str = "KUBE-PORTALS-HOST";
/// nat, userspace mode: packets from other machines to node ports; `HOST`: from the node itself.
pub const NODEPORT_CONTAINER: &str = "KUBE-NODEPORT-CONTAINER";
pub const NODEPORT_HOST: &str = "KUBE-NODEPORT-HOST";
/// filter, userspace mode: packets to the relays' listening ports.
pub const NODEPORT_NON_LOCAL: &str = "KUBE-NODEPORT-NON-LOCAL";

/// This proxy's and kube-proxy's chains, without `KUBE-FIREWALL`, which kubelet shares.
pub const FIXED: [(Table, &str); 24] = [
    (Table::Filter, SERVICES),
    (Table::Filter, EXTERNAL_SERVICES),
    (Table::Filter, NODE_PORTS),
    (Table::Filter, FORWARD),
    (Table::Filter, PROXY_FIREWALL),
    (Table::Filter, NODE_PORT),
    (Table::Filter, SOURCE_RANGES_FIREWALL),
    (Table::Filter, IPVS_FILTER),
    (Table::Filter, IPVS_OUT_FILTER),
    (Table::Filter, NODEPORT_NON_LOCAL),
    (Table::Filter, CANARY),
    (Table::Mangle, CANARY),
    (Table::Mangle, IPVS_OUT_FILTER),
    (Table::Nat, SERVICES),
    (Table::Nat, NODE_PORTS),
    (Table::Nat, POSTROUTING),
    (Table::Nat, MARK_MASQ),
    (Table::Nat, NODE_PORT),
    (Table::Nat, LOAD_BALANCER),
    (Table::Nat, PORTALS_CONTAINER),
    (Table::Nat, PORTALS_HOST),
    (Table::Nat, NODEPORT_CONTAINER),
    (Table::Nat, NODEPORT_HOST),
    (Table::Nat, CANARY),
];

/// Chain prefix for policy Cluster.
pub const SVC: &str = "KUBE-SVC-";
/// Chain prefix for policy Local.
pub const SVL: &str = "KUBE-SVL-";
/// Chain prefix for external frontends.
pub const EXT: &str = "KUBE-EXT-";
/// Chain prefix for allowed sources.
pub const FW: &str = "KUBE-FW-";
pub const SEP: &str = "KUBE-SEP-";

pub const PER_SERVICE: [&str; 5] = [SVC, SVL, EXT, FW, SEP];

/// Chain names have at most 28 characters, prefix included (`XT_EXTENSION_MAXNAMELEN` in
/// `include/uapi/linux/netfilter/x_tables.h`).
const HASH_CHARACTERS: usize = 16;

pub fn hash(key: &str) -> String {
    let mut text = BASE32.encode(&Sha256::digest(key.as_bytes()));
    text.truncate(HASH_CHARACTERS);
    text
}

pub fn service_port_chain(prefix: &str, name: &ServicePortName) -> String {
    format!("{prefix}{}", hash(&format!("{name}{}", name.protocol)))
}

/// Returns the chain for the annotation's allowed sources. kube-proxy deletes chains with its prefix.
pub fn annotated_sources_chain(name: &ServicePortName) -> String {
    format!("{FW}{}", hash(&format!("{name}{}annotation", name.protocol)))
}

pub fn endpoint_chain(name: &ServicePortName, endpoint: &SocketAddr) -> String {
    format!("{SEP}{}", hash(&format!("{name}{}{endpoint}", name.protocol)))
}

/// Returns the name of the list (`xt_recent`) of the clients that reach an address by any port of the Service.
pub fn shared_clients_list(service: &ObjectKey, address: IpAddr) -> String {
    format!("KUBE-CLIENTS-{}", hash(&format!("{service} {address}")))
}

pub fn is_per_service(chain: &str) -> bool {
    PER_SERVICE.iter().any(|prefix| chain.starts_with(prefix))
}

pub fn is_ours(table: Table, chain: &str) -> bool {
    is_per_service(chain) || FIXED.contains(&(table, chain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Protocol;

    fn name(namespace: &str, service: &str, port: &str) -> ServicePortName {
        let service = ObjectKey { namespace: namespace.into(), name: service.into() };
        ServicePortName { service, port: port.into(), protocol: Protocol::Tcp }
    }

    #[test]
    fn names_equal_the_published_ones() {
        let table = [
            (name("default", "web", ""), "KUBE-SVC-LOLE4ISW44XBNF3G"),
            (name("default", "nginx", ""), "KUBE-SVC-2CMXP7HKUVJN7L6M"),
            (name("ingress", "nginx-ingress-latest", "http"), "KUBE-SVC-RZBECLZWZRO5HL2J"),
        ];
        for (name, chain) in table {
            assert_eq!(service_port_chain(SVC, &name), chain, "{name}");
        }
        let web = endpoint_chain(&name("default", "web", ""), &"10.244.1.3:80".parse().unwrap());
        assert_eq!(web, "KUBE-SEP-MHDQ23KUGG7EGFMW");
        let ingress =
            endpoint_chain(&name("ingress", "nginx-ingress-latest", "http"), &"10.0.2.15:80".parse().unwrap());
        assert_eq!(ingress, "KUBE-SEP-B25KHNOUZSX4F53T");
    }

    /// In older published dumps, an unnamed port's hash includes a colon.
    #[test]
    fn older_names_had_a_colon_after_the_service() {
        let table = [
            ("default/my-nginx-loadbalancer:tcp", "TNQCJ2KHUMKABQTD"),
            ("default/my-nginx-cluster:tcp", "52FY5WPFTOHXARFK"),
            ("default/my-nginx-nodeport:tcp", "6JXEEPSEELXY3JZG"),
            ("default/appsvc2:tcp", "4GOEBHW6OL3YSQ2S"),
            ("default/appsvc2:tcp192.168.42.138:80", "T53XQEOLG435KKJB"),
            ("default/appsvc2:tcp192.168.42.189:80", "KDPNMEHXV7C5OGG2"),
        ];
        for (key, expected) in table {
            assert_eq!(hash(key), expected, "{key}");
        }
    }

    #[test]
    fn a_name_fits_the_kernel() {
        let chain = endpoint_chain(&name("n", "s", "p"), &"[fd00::1]:80".parse().unwrap());
        assert!(chain.len() <= 28, "{chain}");
    }
}
