//! `proxy:` to the proxy's command line.

use super::error::Problem;
use super::file::{DetectLocalMode, ProxyFile};
use crate::cluster::spec::ClusterSpec;
use serde_saphyr::Location;

/// Flags that are the same on every node. A scenario that says nothing about the sync period gets immediate syncs: the
/// default of one second between two of them would only make the run longer.
pub(super) fn of(file: &ProxyFile, cluster: &ClusterSpec, problems: &mut Vec<Problem>) -> Vec<String> {
    let mut flags = Vec::new();
    let mut flag = |name: &str, value: String| flags.push(format!("--{name}={value}"));
    let nets = |nets: Vec<ipnet::IpNet>| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let by_range = matches!(file.detect_local_mode, None | Some(DetectLocalMode::ClusterCIDR));
    match &file.cluster_cidr {
        Some(written) => flag("cluster-cidr", nets(written.0.iter().map(|net| net.value.0).collect())),
        None if by_range => flag("cluster-cidr", nets(cluster.cluster_cidrs.clone())),
        None => {}
    }
    if let Some(mode) = file.detect_local_mode {
        flag("detect-local-mode", format!("{mode:?}"));
    }
    let bridge = file.detect_local_mode == Some(DetectLocalMode::BridgeInterface);
    let prefix = file.detect_local_mode == Some(DetectLocalMode::InterfaceNamePrefix);
    for (wanted, value, name, key) in [
        (bridge, &file.detect_local.bridge_interface, "pod-bridge-interface", "bridgeInterface"),
        (prefix, &file.detect_local.interface_name_prefix, "pod-interface-name-prefix", "interfaceNamePrefix"),
    ] {
        match value {
            Some(value) if wanted => flag(name, value.clone()),
            None if !wanted => {}
            _ => {
                let message =
                    format!("proxy.detectLocal.{key} goes with the detectLocalMode of the same name, and only with it");
                problems.push(Problem::new(Location::UNKNOWN, message));
            }
        }
    }
    if let Some(written) = &file.node_port_addresses {
        let texts: Vec<&str> = written.0.iter().map(|text| text.value.0.as_str()).collect();
        let right = texts == ["primary"] || texts.iter().all(|text| text.parse::<ipnet::IpNet>().is_ok());
        if !right {
            let at = written.0.first().map_or(Location::UNKNOWN, |text| text.referenced);
            problems
                .push(Problem::new(at, "nodePortAddresses: expected ranges such as 172.18.0.0/24, or `primary` alone"));
        }
        flag("nodeport-addresses", texts.join(","));
    }
    let iptables = &file.iptables;
    if let Some(value) = iptables.masquerade_all {
        flag("masquerade-all", value.to_string());
    }
    if let Some(value) = iptables.masquerade_bit {
        if value > 31 {
            problems.push(Problem::new(Location::UNKNOWN, "proxy.iptables.masqueradeBit: expected 0 to 31"));
        }
        flag("iptables-masquerade-bit", value.to_string());
    }
    if let Some(value) = iptables.localhost_node_ports {
        flag("iptables-localhost-nodeports", value.to_string());
    }
    if let Some(value) = iptables.sync_period {
        flag("iptables-sync-period", format!("{}ms", value.0.as_millis()));
    }
    let least = iptables.min_sync_period.map_or(0, |value| value.0.as_millis());
    flag("iptables-min-sync-period", format!("{least}ms"));
    if let Some(value) = &file.ipvs.scheduler {
        flag("ipvs-scheduler", value.to_string());
    }
    if let Some(value) = file.ipvs.strict_arp {
        flag("ipvs-strict-arp", value.to_string());
    }
    if let Some(value) = file.ipvs.drain_limit {
        flag("ipvs-drain-limit", format!("{}ms", value.0.as_millis()));
    }
    let times = [
        ("conntrack-udp-timeout", file.conntrack.udp_timeout),
        ("conntrack-tcp-timeout-established", file.conntrack.tcp_established_timeout),
    ];
    for (name, value) in times {
        if let Some(value) = value {
            flag(name, format!("{}ms", value.0.as_millis()));
        }
    }
    if let Some(value) = file.conntrack.tcp_be_liberal {
        flag("conntrack-tcp-be-liberal", value.to_string());
    }
    flags
}
