//! Settings that are accepted and ignored.

use std::time::Duration;

use crate::config::{Config, DetectLocal, Mode, NodePortAddresses};
use crate::model::{FlowFate, LoadBalancing, ServiceAnnotation};
use crate::mutants::{Hook, Mutant};

const IPTABLES: &[Mode] = &[Mode::Iptables];
const NFTABLES: &[Mode] = &[Mode::Nftables];

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "settings-masquerade-all-ignored",
        "ignores masqueradeAll",
        "masquerade-all",
        Hook::Config(|config| config.masquerade_all = false),
    ),
    Mutant::new(
        "settings-tcp-be-liberal-ignored",
        "ignores conntrack.tcpBeLiberal",
        "invalid-packets-liberal",
        Hook::Config(|config| config.tcp_be_liberal = false),
    ),
    Mutant::new(
        "settings-invalid-packets-always-pass",
        "acts as if conntrack.tcpBeLiberal were set",
        "invalid-packets",
        Hook::NodePlan(|plan| plan.drop_invalid = false),
    ),
    Mutant::new(
        "settings-localhost-node-ports-ignored",
        "ignores iptables.localhostNodePorts",
        "localhost-nodeport-off",
        Hook::Config(|config| config.localhost_node_ports = true),
    )
    .only(IPTABLES),
    Mutant::new(
        "settings-no-localhost-node-ports",
        "serves no node ports on loopback addresses",
        "localhost-nodeport",
        Hook::Config(|config| config.localhost_node_ports = false),
    )
    .only(IPTABLES),
    Mutant::new(
        "settings-no-localhost-node-ports-nftables",
        "ignores loopback ranges in nodePortAddresses",
        "localhost-nodeport-nftables",
        Hook::Config(|config| config.gates.nftables_localhost_node_ports = false),
    )
    .only(NFTABLES),
    Mutant::new(
        "settings-localhost-not-counted",
        "ignores iptables.countLocalhostNodePorts",
        "localhost-nodeport-count",
        Hook::Config(|config| config.count_localhost_node_ports = false),
    )
    .only(IPTABLES),
    Mutant::new(
        "settings-localhost-counts-every-address",
        "counts connections to node ports on every address as ones on localhost",
        "localhost-nodeport-count",
        Hook::Rules(|chain, rules| {
            rules.iter_mut().filter(|_| chain == "KUBE-MARK-MASQ").for_each(|rule| rule.destination = None);
        }),
    )
    .only(IPTABLES),
    Mutant::new(
        "settings-loopback-range-unguarded",
        "lets other machines reach the node's loopback addresses",
        "localhost-nodeport",
        Hook::NodePlan(|plan| plan.guard_loopback = false),
    )
    .only(IPTABLES),
    Mutant::new(
        "settings-node-port-addresses-ignored",
        "ignores nodePortAddresses",
        "node-port-addresses",
        Hook::Config(|config| config.node_port_addresses = NodePortAddresses::All),
    ),
    Mutant::new(
        "settings-primary-means-all",
        "takes nodePortAddresses primary for all addresses",
        "node-port-primary",
        Hook::Config(|config| {
            if config.node_port_addresses == NodePortAddresses::Primary {
                config.node_port_addresses = NodePortAddresses::All;
            }
        }),
    ),
    Mutant::new(
        "settings-external-ips-gate-ignored",
        "ignores the gate AllowServiceExternalIPs",
        "external-ip-gate",
        Hook::Config(|config| config.gates.service_external_ips = true),
    ),
    Mutant::new(
        "settings-detect-local-bridge-ignored",
        "detects pods by the cluster's range under detectLocalMode BridgeInterface",
        "detect-local-bridge",
        Hook::Config(by_cluster_range),
    ),
    Mutant::new(
        "settings-detect-local-prefix-ignored",
        "detects pods by the cluster's range under detectLocalMode InterfaceNamePrefix",
        "detect-local-prefix",
        Hook::Config(by_cluster_range),
    ),
    Mutant::new(
        "settings-detect-local-node-cidr-ignored",
        "detects pods by the cluster's range under detectLocalMode NodeCIDR",
        "detect-local-node-cidr",
        Hook::Config(by_cluster_range),
    ),
    Mutant::new(
        "settings-pods-not-detected",
        "detects no pods, so it masquerades none of the calls to cluster IPs",
        "clusterip",
        Hook::NodePlan(|plan| plan.pods = None),
    ),
    Mutant::new(
        "settings-udp-timeout-ignored",
        "ignores conntrack.udpTimeout",
        "userspace-udp-timeout",
        Hook::Config(|config| config.conntrack.udp = Duration::ZERO),
    )
    .only(&[Mode::Userspace]),
    Mutant::new(
        "settings-load-balancing-ignored",
        "ignores loadBalancing",
        "node-options",
        Hook::Config(|config| config.load_balancing = LoadBalancing::Random),
    )
    .only(NFTABLES),
    Mutant::new(
        "settings-flow-fate-ignored",
        "ignores flowFate",
        "node-options",
        Hook::Config(|config| config.flow_fate = FlowFate::Keep),
    )
    .only(NFTABLES),
    Mutant::new(
        "settings-restart-on-config-change-ignored",
        "ignores restartOnConfigChange",
        "configuration-change",
        Hook::Config(|config| config.restart_on_config_change = false),
    ),
    Mutant::new(
        "settings-service-annotations-ignored",
        "takes every annotation, though serviceAnnotations lists some",
        "node-options",
        Hook::Config(|config| config.annotations = ServiceAnnotation::ALL.into()),
    )
    .only(NFTABLES),
];

fn by_cluster_range(config: &mut Config) {
    if !matches!(config.detect_local, DetectLocal::ClusterCidr(_)) {
        config.detect_local = DetectLocal::ClusterCidr("10.244.0.0/16".parse().into_iter().collect());
    }
}
