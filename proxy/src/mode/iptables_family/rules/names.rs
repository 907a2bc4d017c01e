//! Chain names: upstream's, hashes included, because operators' eyes and tools know them.

use std::net::SocketAddr;

use data_encoding::BASE32;
use sha2::{Digest, Sha256};

use crate::model::ServicePortName;
use crate::ruleset::Table;

/// nat and filter: every service address.
pub const SERVICES: &str = "KUBE-SERVICES";
/// filter: frontends for outside without endpoints.
pub const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
/// nat: node ports; filter: health-check node ports.
pub const NODE_PORTS: &str = "KUBE-NODEPORTS";
/// nat: where marked packets are masqueraded.
pub const POSTROUTING: &str = "KUBE-POSTROUTING";
/// nat: marks a packet for masquerade.
pub const MARK_MASQ: &str = "KUBE-MARK-MASQ";
/// filter: what service traffic needs to be forwarded.
pub const FORWARD: &str = "KUBE-FORWARD";
/// filter: load-balancer traffic that `loadBalancerSourceRanges` did not accept.
pub const PROXY_FIREWALL: &str = "KUBE-PROXY-FIREWALL";
/// filter: the guard of the loopback range; shared with kubelet.
pub const FIREWALL: &str = "KUBE-FIREWALL";
/// mangle, nat and filter: an empty chain, by whose loss kubelet and kube-proxy notice a flush.
pub const CANARY: &str = "KUBE-PROXY-CANARY";

/// nat, IPVS mode: node ports; filter: health-check node ports.
pub const NODE_PORT: &str = "KUBE-NODE-PORT";
/// nat, IPVS mode: load-balancer IPs.
pub const LOAD_BALANCER: &str = "KUBE-LOAD-BALANCER";
/// filter, IPVS mode: who may use load-balancer IPs with `loadBalancerSourceRanges`.
pub const SOURCE_RANGES_FIREWALL: &str = "KUBE-SOURCE-RANGES-FIREWALL";
/// filter, IPVS mode: keeps the host's own listeners from answering on service addresses.
pub const IPVS_FILTER: &str = "KUBE-IPVS-FILTER";
/// mangle (upstream: filter), IPVS mode: what the node itself may not send to service addresses.
pub const IPVS_OUT_FILTER: &str = "KUBE-IPVS-OUT-FILTER";

/// nat, userspace mode: what comes from elsewhere to cluster, external and load-balancer IPs.
pub const PORTALS_CONTAINER: &str = "KUBE-PORTALS-CONTAINER";
/// nat, userspace mode: what the node itself sends there.
pub const PORTALS_HOST: &str = "KUBE-PORTALS-HOST";
/// nat, userspace mode: what comes from elsewhere to node ports.
pub const NODEPORT_CONTAINER: &str = "KUBE-NODEPORT-CONTAINER";
/// nat, userspace mode: what the node itself sends there.
pub const NODEPORT_HOST: &str = "KUBE-NODEPORT-HOST";
/// filter, userspace mode: who reaches the relays' listening ports.
pub const NODEPORT_NON_LOCAL: &str = "KUBE-NODEPORT-NON-LOCAL";

/// Every chain with a name of its own that a mode of this proxy, or of kube-proxy, makes, by table; without `KUBE-FIREWALL`,
/// which is kubelet's too.
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

/// Prefix of a service port's chain for policy Cluster.
pub const SVC: &str = "KUBE-SVC-";
/// Prefix of a service port's chain for policy Local.
pub const SVL: &str = "KUBE-SVL-";
/// Prefix of a service port's entry chain for traffic from outside.
pub const EXT: &str = "KUBE-EXT-";
/// Prefix of a service port's chain of allowed sources.
pub const FW: &str = "KUBE-FW-";
/// Prefix of an endpoint's chain.
pub const SEP: &str = "KUBE-SEP-";

/// Prefixes of the chains that come and go with services.
pub const PER_SERVICE: [&str; 5] = [SVC, SVL, EXT, FW, SEP];

/// Characters of the hash that a chain name keeps: the kernel allows 28 in a name, prefix included
/// (`XT_EXTENSION_MAXNAMELEN` in `include/uapi/linux/netfilter/x_tables.h`).
const HASH_CHARACTERS: usize = 16;

/// base32 of the SHA-256 of `key`, cut.
pub fn hash(key: &str) -> String {
    let mut text = BASE32.encode(&Sha256::digest(key.as_bytes()));
    text.truncate(HASH_CHARACTERS);
    text
}

/// A service port's chain with this prefix.
pub fn service_port_chain(prefix: &str, name: &ServicePortName) -> String {
    format!("{prefix}{}", hash(&format!("{name}{}", name.protocol)))
}

/// An endpoint's chain. The same address behind two service ports has two chains.
pub fn endpoint_chain(name: &ServicePortName, endpoint: &SocketAddr) -> String {
    format!("{SEP}{}", hash(&format!("{name}{}{endpoint}", name.protocol)))
}

/// Whether a chain comes and goes with services.
pub fn is_per_service(chain: &str) -> bool {
    PER_SERVICE.iter().any(|prefix| chain.starts_with(prefix))
}

/// Whether a chain of this table is one of this proxy's, whatever the mode.
pub fn is_ours(table: Table, chain: &str) -> bool {
    is_per_service(chain) || FIXED.contains(&(table, chain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ObjectKey, Protocol};

    fn name(namespace: &str, service: &str, port: &str) -> ServicePortName {
        let service = ObjectKey { namespace: namespace.into(), name: service.into() };
        ServicePortName { service, port: port.into(), protocol: Protocol::Tcp }
    }

    #[test]
    fn names_are_those_published() {
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

    /// The older of the published clusters hashed an unnamed port with a colon that is no longer there.
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
