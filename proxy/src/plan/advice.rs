//! Warnings about questionable settings, as kube-proxy gives once it knows the Node (`checkBadConfig`,
//! `checkBadIPConfig` and `getLocalDetectors` in cmd/kube-proxy/app).

use ipnet::IpNet;

use crate::config::{Config, DetectLocal, NodePortAddresses};
use crate::model::Family;

pub fn complaints(config: &Config, primary: Family, pod_cidrs: &[IpNet]) -> Vec<String> {
    let node_ports = match &config.node_port_addresses {
        NodePortAddresses::Ranges(ranges) => unrestricted(config, ranges, primary, pod_cidrs),
        NodePortAddresses::All | NodePortAddresses::Primary | NodePortAddresses::PrimaryAndRanges(_) => None,
    };
    node_ports.into_iter().chain(undetected(config, primary)).collect()
}

/// Warns if `nodePortAddresses` has no range of a used family.
fn unrestricted(config: &Config, ranges: &[IpNet], primary: Family, pod_cidrs: &[IpNet]) -> Option<String> {
    let cluster_ranges = match &config.detect_local {
        DetectLocal::ClusterCidr(ranges) => &ranges[..],
        _ => &[],
    };
    // Before any Service is known, only the configuration shows whether the cluster is dual-stack.
    let dual_stack = [cluster_ranges, &config.ipvs.exclude, pod_cidrs]
        .into_iter()
        .any(|ranges| Family::ALL.into_iter().all(|family| has(ranges, family)));
    let open = if has(ranges, primary) { other(primary) } else { primary };
    (!has(ranges, open) && (open == primary || dual_stack)).then(|| {
        format!(
            "nodePortAddresses (--nodeport-addresses) has no range of {open}: node ports are accepted on all local addresses of {open}; \
             name a range of it, or primary"
        )
    })
}

fn undetected(config: &Config, primary: Family) -> Option<String> {
    let DetectLocal::ClusterCidr(ranges) = &config.detect_local else { return None };
    let lack = match ranges.is_empty() {
        true => "has no range".to_owned(),
        false => format!("has no range of {primary}, the family of this node's primary address"),
    };
    (!has(ranges, primary)).then(|| {
        format!(
            "clusterCIDR (--cluster-cidr) {lack}, and detectLocalMode ClusterCIDR (--detect-local-mode) tells pods from others by it: \
             traffic of {primary} from pods is taken for traffic from outside; name the pods' range, or use another detectLocalMode"
        )
    })
}

fn has(ranges: &[IpNet], family: Family) -> bool {
    ranges.iter().any(|range| Family::of_net(range) == family)
}

fn other(family: Family) -> Family {
    match family {
        Family::V4 => Family::V6,
        Family::V6 => Family::V4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &[&str] = &["10.244.0.0/16", "fd00::/64"];
    const V4: &[&str] = &["192.168.0.0/24"];
    const V6: &[&str] = &["fd00:1::/64"];

    fn parsed(ranges: &[&str]) -> Vec<IpNet> {
        ranges.iter().map(|range| range.parse().unwrap()).collect()
    }

    fn begins(cluster: &[&str], node_ports: NodePortAddresses, primary: Family, pod_cidrs: &[&str]) -> Vec<String> {
        let detect_local = DetectLocal::ClusterCidr(parsed(cluster));
        let config = Config { detect_local, node_port_addresses: node_ports, ..Config::for_node("n") };
        let begin = |told: String| told.split([':', ',']).next().unwrap_or_default().to_owned();
        complaints(&config, primary, &parsed(pod_cidrs)).into_iter().map(begin).collect()
    }

    #[test]
    fn a_family_with_unrestricted_node_ports_is_warned_of() {
        let told =
            |cluster, ranges, primary, pods| begins(cluster, NodePortAddresses::Ranges(parsed(ranges)), primary, pods);
        let open = |family: Family| format!("nodePortAddresses (--nodeport-addresses) has no range of {family}");
        assert_eq!(told(BOTH, V4, Family::V4, &[]), [open(Family::V6)]);
        assert_eq!(told(&BOTH[..1], V4, Family::V4, BOTH), [open(Family::V6)]);
        assert_eq!(told(&BOTH[..1], V4, Family::V4, &[]), [""; 0], "a cluster of one family");
        assert_eq!(told(&BOTH[..1], V6, Family::V4, &[]), [open(Family::V4)]);
        assert_eq!(told(BOTH, V4, Family::V6, &[]), [open(Family::V6)]);
        assert_eq!(told(BOTH, BOTH, Family::V4, &[]), [""; 0]);
        for restricted in [NodePortAddresses::Primary, NodePortAddresses::PrimaryAndRanges(parsed(V4))] {
            assert_eq!(begins(BOTH, restricted, Family::V4, &[]), [""; 0]);
        }
    }

    #[test]
    fn a_missing_cluster_range_of_the_primary_family_is_warned_of() {
        let told = |cluster, primary| begins(cluster, NodePortAddresses::Primary, primary, &[]);
        let of = |family: Family| format!("clusterCIDR (--cluster-cidr) has no range of {family}");
        assert_eq!(told(&[], Family::V4), ["clusterCIDR (--cluster-cidr) has no range"]);
        assert_eq!(told(V6, Family::V4), [of(Family::V4)]);
        assert_eq!(told(V4, Family::V6), [of(Family::V6)]);
        assert_eq!(told(BOTH, Family::V6), [""; 0]);
        let config = Config { detect_local: DetectLocal::NodeCidr, ..Config::for_node("n") };
        assert_eq!(complaints(&config, Family::V4, &[]), [""; 0], "other modes do not look at it");
    }
}
