//! Converts `proxy:` to the proxies' configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_saphyr::Location;
use svclab_spec::ClusterSpec;

use super::error::Problem;
use super::file::{DetectLocalMode, IptablesWriter, Net, ProxyFile, ProxyOverride, Scheduler};
use super::values::{OneOrMany, PlainText, TimeSpan};
use crate::mode::Mode;

/// Fields of KubeProxyConfiguration (`kubeproxy.config.k8s.io/v1alpha1`), and settings that only svcproxy has.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxySettings {
    #[serde(rename = "clusterCIDR", serialize_with = "by_commas")]
    cluster_cidr: Vec<IpNet>,
    detect_local_mode: Option<DetectLocalMode>,
    detect_local: DetectLocalConfig,
    node_port_addresses: Option<Vec<String>>,
    #[serde(rename = "noMasqueradeCIDRs")]
    no_masquerade_cidrs: Option<Vec<IpNet>>,
    masquerade_source: Option<String>,
    pub(super) iptables: IptablesConfig,
    ipvs: IpvsConfig,
    nftables: NftablesConfig,
    pub(super) conntrack: ConntrackConfig,
    feature_gates: BTreeMap<String, bool>,
    flow_fate: Option<String>,
    load_balancing: Option<String>,
    service_annotations: Option<Vec<String>>,
    /// `--ipvs-drain-limit`
    #[serde(skip)]
    drain_limit: Option<ConfigTime>,
    /// `--iptables-writer`
    #[serde(skip)]
    writer: Option<IptablesWriter>,
    /// Whether svcproxy has a state file, whose path depends on the node.
    #[serde(skip)]
    state_file: bool,
    /// Whether svcproxy ends when the file changes; no field for kube-proxy, which always does.
    #[serde(skip)]
    restart_on_config_change: bool,
    /// `--service-counters`
    #[serde(skip)]
    service_counters: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct DetectLocalConfig {
    bridge_interface: Option<String>,
    interface_name_prefix: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IptablesConfig {
    masquerade_all: Option<bool>,
    masquerade_bit: Option<u8>,
    pub(super) localhost_node_ports: Option<bool>,
    count_localhost_node_ports: Option<bool>,
    sync_period: Option<ConfigTime>,
    min_sync_period: Option<ConfigTime>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NftablesConfig {
    flowtable: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct IpvsConfig {
    scheduler: Option<Scheduler>,
    #[serde(rename = "strictARP")]
    strict_arp: Option<bool>,
    sync_period: Option<ConfigTime>,
    min_sync_period: Option<ConfigTime>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConntrackConfig {
    pub(super) udp_timeout: Option<ConfigTime>,
    tcp_established_timeout: Option<ConfigTime>,
    pub(super) tcp_be_liberal: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConfigTime(pub(super) Duration);

impl fmt::Display for ConfigTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0.as_millis())
    }
}

impl Serialize for ConfigTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn by_commas<S: Serializer>(nets: &[IpNet], serializer: S) -> Result<S::Ok, S::Error> {
    let texts: Vec<String> = nets.iter().map(IpNet::to_string).collect();
    if texts.is_empty() { serializer.serialize_none() } else { serializer.serialize_str(&texts.join(",")) }
}

/// The lab's default of `minSyncPeriod`, so that a run does not wait; zero would mean kube-proxy's default of one
/// second.
const IMMEDIATE: Duration = Duration::from_millis(1);

pub(super) fn of(file: &ProxyFile, cluster: &ClusterSpec, problems: &mut Vec<Problem>) -> ProxySettings {
    detect_local(file, problems);
    let by_range = matches!(file.detect_local_mode, None | Some(DetectLocalMode::ClusterCIDR));
    let written = file.cluster_cidr.as_ref().map(nets);
    let iptables = &file.iptables;
    if iptables.masquerade_bit.is_some_and(|bit| bit > 31) {
        problems.push(Problem::new(Location::UNKNOWN, "proxy.iptables.masqueradeBit: expected 0 to 31"));
    }
    let time = |span: &Option<TimeSpan>| span.as_ref().map(|span| ConfigTime(span.0));
    let sync_period = time(&iptables.sync_period);
    let min_sync_period =
        Some(ConfigTime(iptables.min_sync_period.as_ref().map_or(IMMEDIATE, |span| span.0.max(IMMEDIATE))));
    ProxySettings {
        cluster_cidr: written.or_else(|| by_range.then(|| cluster.cluster_cidrs.clone())).unwrap_or_default(),
        detect_local_mode: file.detect_local_mode,
        detect_local: DetectLocalConfig {
            bridge_interface: file.detect_local.bridge_interface.clone(),
            interface_name_prefix: file.detect_local.interface_name_prefix.clone(),
        },
        node_port_addresses: node_port_addresses(file, problems),
        no_masquerade_cidrs: file.no_masquerade_cidrs.as_ref().map(nets),
        masquerade_source: file.masquerade_source.clone(),
        iptables: IptablesConfig {
            masquerade_all: iptables.masquerade_all,
            masquerade_bit: iptables.masquerade_bit,
            localhost_node_ports: iptables.localhost_node_ports,
            count_localhost_node_ports: iptables.count_localhost_node_ports,
            sync_period,
            min_sync_period,
        },
        ipvs: IpvsConfig {
            scheduler: file.ipvs.scheduler,
            strict_arp: file.ipvs.strict_arp,
            sync_period,
            min_sync_period,
        },
        nftables: NftablesConfig { flowtable: file.nftables.flowtable },
        conntrack: ConntrackConfig {
            udp_timeout: time(&file.conntrack.udp_timeout),
            tcp_established_timeout: time(&file.conntrack.tcp_established_timeout),
            tcp_be_liberal: file.conntrack.tcp_be_liberal,
        },
        feature_gates: file.feature_gates.clone(),
        flow_fate: text(&file.flow_fate),
        load_balancing: text(&file.load_balancing),
        service_annotations: file.service_annotations.as_ref().map(texts),
        drain_limit: time(&file.ipvs.drain_limit),
        writer: iptables.writer,
        state_file: file.state_file,
        restart_on_config_change: file.restart_on_config_change,
        service_counters: text(&file.service_counters),
    }
}

fn text(written: &Option<PlainText>) -> Option<String> {
    written.as_ref().map(|text| text.0.clone())
}

fn texts(list: &OneOrMany<PlainText>) -> Vec<String> {
    list.0.iter().map(|text| text.value.0.clone()).collect()
}

fn nets(list: &OneOrMany<Net>) -> Vec<IpNet> {
    list.0.iter().map(|net| net.value.0).collect()
}

fn node_port_addresses(file: &ProxyFile, problems: &mut Vec<Problem>) -> Option<Vec<String>> {
    let list = file.node_port_addresses.as_ref()?;
    let written = &list.0;
    let is_word = |text: &String| matches!(text.as_str(), "primary" | "localhost" | "all");
    let wrong = written.iter().find(|text| !is_word(&text.value.0) && text.value.0.parse::<IpNet>().is_err());
    if let Some(wrong) = wrong {
        let message = format!(
            "nodePortAddresses: {:?}: expected a range such as 172.18.0.0/24, `primary`, `localhost` or `all`",
            wrong.value.0
        );
        problems.push(Problem::new(wrong.referenced, message));
    }
    Some(texts(list))
}

fn detect_local(file: &ProxyFile, problems: &mut Vec<Problem>) {
    let written = &file.detect_local;
    for (mode, value, key) in [
        (DetectLocalMode::BridgeInterface, &written.bridge_interface, "bridgeInterface"),
        (DetectLocalMode::InterfaceNamePrefix, &written.interface_name_prefix, "interfaceNamePrefix"),
    ] {
        if value.is_some() != (file.detect_local_mode == Some(mode)) {
            let message =
                format!("proxy.detectLocal.{key} goes with the detectLocalMode of the same name, and only with it");
            problems.push(Problem::new(Location::UNKNOWN, message));
        }
    }
}

impl ProxySettings {
    pub fn configuration(&self, mode: Mode, different: ProxyOverride) -> Value {
        let mut settings = self.clone();
        settings.ipvs.scheduler = different.scheduler.or(settings.ipvs.scheduler);
        settings.iptables.masquerade_all = different.masquerade_all.or(settings.iptables.masquerade_all);
        let mut configuration = serde_json::json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
        });
        // A KubeProxyConfiguration has no such mode; the proxy's description may name one.
        if mode != Mode::Other {
            configuration["mode"] = mode.to_string().into();
        }
        // A merge patch (RFC 7396) drops null values.
        json_patch::merge(&mut configuration, &serde_json::to_value(settings).unwrap_or_default());
        // The section `iptables` of a scenario applies to nftables mode as well, which a description of another mode may name.
        if matches!(mode, Mode::Nftables | Mode::Other)
            && let Some(mut section) = configuration.get("iptables").cloned()
        {
            if let Some(section) = section.as_object_mut() {
                section.retain(|name, _| !name.ends_with("ocalhostNodePorts"));
            }
            json_patch::merge(&mut configuration["nftables"], &section);
        }
        if let Some(fields) = configuration.as_object_mut() {
            fields.retain(|_, value| value.as_object().is_none_or(|section| !section.is_empty()));
        }
        configuration
    }

    /// Whether node ports are on every local address of both families, in nftables mode.
    pub fn names_every_address(&self) -> bool {
        let is_every = |text: &String| text == "all" || text.parse().is_ok_and(|range: IpNet| range.prefix_len() == 0);
        self.node_port_addresses.iter().flatten().any(is_every)
    }

    /// Whether node ports are on some of the local addresses, in every mode.
    pub fn names_some_addresses(&self) -> bool {
        self.node_port_addresses.is_some() && !self.names_every_address()
    }

    pub fn has_state_file(&self) -> bool {
        self.state_file
    }

    pub fn restarts_on_config_change(&self) -> bool {
        self.restart_on_config_change
    }

    /// Returns svcproxy's flags for settings that its configuration file has no field for.
    pub fn flags(&self) -> Vec<String> {
        let drain = self.drain_limit.map(|limit| format!("--ipvs-drain-limit={limit}"));
        let writer = self.writer.map(|writer| {
            let word = match writer {
                IptablesWriter::Netlink => "netlink",
                IptablesWriter::Commands => "commands",
            };
            format!("--iptables-writer={word}")
        });
        let counters = self.service_counters.as_ref().map(|services| format!("--service-counters={services}"));
        drain.into_iter().chain(writer).chain(counters).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(proxy: &str) -> Result<ProxySettings, Vec<String>> {
        let file: ProxyFile = serde_saphyr::from_str(proxy).unwrap();
        let mut problems = Vec::new();
        let (cluster, _) = crate::scenario::topology::build(&Default::default(), &mut problems);
        let settings = of(&file, &cluster, &mut problems);
        let problems: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
        if problems.is_empty() { Ok(settings) } else { Err(problems) }
    }

    #[test]
    fn the_default_configuration_syncs_at_once() {
        let expected = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "ipvs",
            "clusterCIDR": "10.244.0.0/16",
            "iptables": { "minSyncPeriod": "1ms" },
            "ipvs": { "minSyncPeriod": "1ms" },
        });
        let settings = settings("{}").unwrap();
        assert_eq!(settings.configuration(Mode::Ipvs, ProxyOverride::default()), expected);
        assert_eq!(settings.flags(), [""; 0]);
    }

    #[test]
    fn every_proxy_key_reaches_the_configuration_or_the_flags() {
        let text = "
            clusterCIDR: [10.0.0.0/8, 'fd00::/56']
            detectLocalMode: BridgeInterface
            detectLocal: {bridgeInterface: cni0}
            nodePortAddresses: [10.0.0.0/8, 172.18.0.0/24]
            noMasqueradeCIDRs: 10.244.0.0/16
            masqueradeSource: primary
            flowFate: drain=30s
            loadBalancing: maglev
            serviceAnnotations: [flow-fate]
            restartOnConfigChange: true
            iptables: {masqueradeAll: true, masqueradeBit: 3, localhostNodePorts: false, syncPeriod: 1h, minSyncPeriod: 0s}
            ipvs: {scheduler: wrr, strictARP: true, drainLimit: 3s}
            nftables: {flowtable: true}
            conntrack: {tcpBeLiberal: true, tcpEstablishedTimeout: 2h, udpTimeout: 300ms}";
        let settings = settings(text).unwrap();
        let expected = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clusterCIDR": "10.0.0.0/8,fd00::/56",
            "detectLocalMode": "BridgeInterface",
            "detectLocal": { "bridgeInterface": "cni0" },
            "nodePortAddresses": ["10.0.0.0/8", "172.18.0.0/24"],
            "noMasqueradeCIDRs": ["10.244.0.0/16"],
            "masqueradeSource": "primary",
            "flowFate": "drain=30s",
            "loadBalancing": "maglev",
            "serviceAnnotations": ["flow-fate"],
            "iptables": {
                "masqueradeAll": true, "masqueradeBit": 3, "localhostNodePorts": false, "syncPeriod": "3600000ms",
                "minSyncPeriod": "1ms",
            },
            "ipvs": { "syncPeriod": "3600000ms", "minSyncPeriod": "1ms", "scheduler": "sh", "strictARP": true },
            "nftables": { "flowtable": true },
            "conntrack": { "tcpBeLiberal": true, "tcpEstablishedTimeout": "7200000ms", "udpTimeout": "300ms" },
        });
        let different = ProxyOverride { scheduler: Some(Scheduler::Sh), ..ProxyOverride::default() };
        assert_eq!(settings.configuration(Mode::Iptables, different), expected);
        assert_eq!(settings.flags(), ["--ipvs-drain-limit=3000ms"]);
        assert!(settings.restarts_on_config_change());
        let different = ProxyOverride { masquerade_all: Some(false), ..ProxyOverride::default() };
        assert_eq!(settings.configuration(Mode::Nftables, different)["nftables"]["masqueradeAll"], false);
    }

    #[test]
    fn contradictory_settings_are_errors() {
        let wrong = |text: &str| settings(text).unwrap_err().join("\n");
        assert!(wrong("detectLocalMode: BridgeInterface").contains("detectLocal.bridgeInterface goes with"));
        assert!(wrong("detectLocal: {interfaceNamePrefix: veth}").contains("detectLocal.interfaceNamePrefix"));
        assert!(wrong("nodePortAddresses: [primary, eth0]").contains("\"eth0\": expected a range"));
        assert!(wrong("iptables: {masqueradeBit: 32}").contains("expected 0 to 31"));
    }
}
