//! The proxy's settings, from its configuration or its rules.

mod annotations;
mod masquerade;
mod rules;

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::Deserialize;
use svclab_oracle::{DetectLocalMode, LoadBalancing, Mode, NodePortAddress, ProxySettings, Scheduler};
use svclab_sim::cluster::NodeState;
use svclab_sim::rules::TableName;
use svclab_snapshot::Snapshot;

pub use annotations::RespectedAnnotations;

use crate::error::NodeError;
use crate::owner::ProxyTables;

/// The fields of a `KubeProxyConfiguration` (kubeproxy.config.k8s.io/v1alpha1) that promises depend on.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Configuration {
    mode: Option<String>,
    #[serde(rename = "clusterCIDR")]
    cluster_cidr: Option<String>,
    detect_local_mode: Option<String>,
    detect_local: Option<DetectLocalFile>,
    node_port_addresses: Option<Vec<String>>,
    masquerade_source: Option<String>,
    #[serde(rename = "noMasqueradeCIDRs")]
    no_masquerade_cidrs: Option<Vec<String>>,
    iptables: Option<IptablesFields>,
    nftables: Option<Masquerade>,
    ipvs: Option<IpvsFields>,
    feature_gates: BTreeMap<String, bool>,
    load_balancing: Option<String>,
    service_annotations: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DetectLocalFile {
    bridge_interface: Option<String>,
    interface_name_prefix: Option<String>,
    #[serde(rename = "clusterCIDRs")]
    cluster_cidrs: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct IptablesFields {
    masquerade_all: Option<bool>,
    localhost_node_ports: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Masquerade {
    masquerade_all: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct IpvsFields {
    scheduler: Option<String>,
}

/// The proxy's settings and their origin.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditedProxy {
    /// The settings that promises depend on.
    pub settings: ProxySettings,
    /// Whether the configuration, or else the rules, show how the proxy detects local traffic.
    pub configured: bool,
    /// Which annotations of Services have an effect.
    pub annotations: RespectedAnnotations,
    /// The tables of nftables that are the proxy's.
    pub tables: ProxyTables,
}

impl AuditedProxy {
    /// Reads the snapshot's configuration, or else its rules; `mode` overrides the mode.
    ///
    /// # Errors
    /// The configuration is malformed, or its mode is unknown.
    pub fn of(
        snapshot: &Snapshot,
        state: &NodeState,
        mode: Option<Mode>,
        tables: &ProxyTables,
    ) -> Result<AuditedProxy, NodeError> {
        let Some(text) = &snapshot.proxy_config else {
            let mode = mode.or_else(|| written_by(state, tables)).ok_or_else(|| wrong(UNKNOWN_MODE))?;
            let (settings, configured) = rules::settings(snapshot, state, mode, tables);
            let annotations = RespectedAnnotations::of(state, mode, None, tables);
            return Ok(AuditedProxy { settings, configured, annotations, tables: tables.clone() });
        };
        let file: Configuration = serde_saphyr::from_str(text).map_err(|error| wrong(&error.to_string()))?;
        let named = match file.mode.as_deref() {
            // kube-proxy's default on Linux (cmd/kube-proxy/app/server_linux.go).
            None | Some("") => Mode::Iptables,
            Some(name) => {
                let known = Mode::ALL.into_iter().find(|mode| mode.name() == name);
                known.ok_or_else(|| wrong(&format!("mode {name:?} is none that is known")))?
            }
        };
        let mode = mode.unwrap_or(named);
        let masquerade_all = match mode {
            Mode::Nftables => file.nftables.as_ref().and_then(|one| one.masquerade_all),
            _ => file.iptables.as_ref().and_then(|one| one.masquerade_all),
        };
        let mut settings = ProxySettings {
            mode,
            detect_local: detect_local(&file)?,
            masquerade_all: masquerade_all.unwrap_or(false),
            masquerade_source: masquerade::source(file.masquerade_source.as_deref().unwrap_or_default())?,
            no_masquerade: ranges(file.no_masquerade_cidrs.as_deref().unwrap_or_default())?,
            node_port_addresses: node_port_addresses(file.node_port_addresses.as_deref().unwrap_or_default())?,
            localhost_node_ports: file.iptables.as_ref().and_then(|one| one.localhost_node_ports).unwrap_or(true),
            scheduler: scheduler(file.ipvs.as_ref().and_then(|ipvs| ipvs.scheduler.as_deref()).unwrap_or_default())?,
            load_balancing: load_balancing(file.load_balancing.as_deref().unwrap_or_default())?,
            external_ips: file.feature_gates.get(EXTERNAL_IPS).copied().unwrap_or(true),
        };
        let primary = match settings.node_port_addresses.as_slice() {
            [] => mode == Mode::Nftables,
            entries => entries.contains(&NodePortAddress::Primary),
        };
        // Only a Node object tells the primary address.
        if primary && snapshot.objects.as_ref().is_some_and(|objects| objects.nodes.is_empty()) {
            settings.node_port_addresses = rules::settings(snapshot, state, mode, tables).0.node_port_addresses;
        }
        let annotations = RespectedAnnotations::of(state, mode, file.service_annotations.as_deref(), tables);
        Ok(AuditedProxy { settings, configured: true, annotations, tables: tables.clone() })
    }
}

/// The feature gate of KEP-5707.
const EXTERNAL_IPS: &str = "AllowServiceExternalIPs";

const UNKNOWN_MODE: &str =
    "the archive has no configuration of the proxy, and no rules that show its mode: name it with --mode";

fn wrong(problem: &str) -> NodeError {
    NodeError::Wrong { what: "the proxy's configuration".to_owned(), problem: problem.to_owned() }
}

/// Returns the mode of the existing rules; `None` without rules of a proxy.
pub(crate) fn written_by(state: &NodeState, own: &ProxyTables) -> Option<Mode> {
    // Userspace mode has KUBE-SERVICES in filter.
    let has_chain = |prefix: &str| {
        let tables = state.v4.tables.iter().chain(&state.v6.tables).filter(|table| table.name == TableName::Nat);
        tables.flat_map(|table| &table.chains).any(|chain| chain.name.starts_with(prefix))
    };
    if state.nft.tables.iter().any(|table| own.has(table)) {
        Some(Mode::Nftables)
    } else if !state.servers.services.is_empty() {
        Some(Mode::Ipvs)
    } else if has_chain("KUBE-SERVICES") {
        Some(Mode::Iptables)
    } else if has_chain("KUBE-PORTALS") {
        Some(Mode::Userspace)
    } else {
        None
    }
}

fn ranges(texts: &[String]) -> Result<Vec<IpNet>, NodeError> {
    let ranges =
        texts.iter().map(|text| text.trim().parse::<IpNet>().map_err(|_| wrong(&format!("{text:?} is no range"))));
    ranges.collect()
}

fn load_balancing(name: &str) -> Result<LoadBalancing, NodeError> {
    let unknown = || wrong(&format!("loadBalancing {name:?} is not known"));
    if name.is_empty() { Ok(LoadBalancing::Random) } else { LoadBalancing::named(name).ok_or_else(unknown) }
}

fn detect_local(file: &Configuration) -> Result<DetectLocalMode, NodeError> {
    let inner = file.detect_local.as_ref();
    match file.detect_local_mode.as_deref().unwrap_or_default() {
        "" | "ClusterCIDR" => {
            let listed = inner.and_then(|inner| inner.cluster_cidrs.clone()).unwrap_or_default();
            let by_commas = file.cluster_cidr.as_deref().unwrap_or_default();
            let split = by_commas.split(',').map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
            let texts: Vec<String> = if listed.is_empty() { split.collect() } else { listed };
            Ok(if texts.is_empty() { DetectLocalMode::Off } else { DetectLocalMode::ClusterCidr(ranges(&texts)?) })
        }
        "NodeCIDR" => Ok(DetectLocalMode::NodeCidr),
        "BridgeInterface" => {
            let name = inner.and_then(|inner| inner.bridge_interface.clone()).unwrap_or_default();
            Ok(DetectLocalMode::BridgeInterface(name))
        }
        "InterfaceNamePrefix" => {
            let prefix = inner.and_then(|inner| inner.interface_name_prefix.clone()).unwrap_or_default();
            Ok(DetectLocalMode::InterfaceNamePrefix(prefix))
        }
        other => Err(wrong(&format!("detectLocalMode {other:?} is none that is known"))),
    }
}

fn node_port_addresses(texts: &[String]) -> Result<Vec<NodePortAddress>, NodeError> {
    let one = |text: &String| match text.as_str() {
        "primary" => Ok(NodePortAddress::Primary),
        "localhost" => Ok(NodePortAddress::Localhost),
        "all" => Ok(NodePortAddress::All),
        range => {
            let range = range.parse().map_err(|_| wrong(&format!("nodePortAddresses: {range:?} is no range")))?;
            Ok(NodePortAddress::Range(range))
        }
    };
    texts.iter().map(one).collect()
}

fn scheduler(name: &str) -> Result<Scheduler, NodeError> {
    Ok(match name {
        "" | "rr" => Scheduler::RoundRobin,
        "wrr" => Scheduler::WeightedRoundRobin,
        "lc" | "wlc" | "sed" | "nq" => Scheduler::LeastConnections,
        "lblc" | "lblcr" => Scheduler::Locality,
        "dh" => Scheduler::DestinationHash,
        "sh" => Scheduler::SourceHash,
        "mh" => Scheduler::Maglev,
        other => return Err(wrong(&format!("scheduler {other:?} is not modelled"))),
    })
}

#[cfg(test)]
mod tests {
    use svclab_oracle::MasqueradeSource;

    use super::*;

    fn of(text: &str) -> Result<AuditedProxy, NodeError> {
        let snapshot = Snapshot { proxy_config: Some(text.to_owned()), ..Snapshot::default() };
        AuditedProxy::of(&snapshot, &NodeState::default(), None, &ProxyTables::default())
    }

    #[test]
    fn a_configuration_is_read() {
        let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n\
            clusterCIDR: 10.244.0.0/16,fd00:10:244::/56\nnftables: {masqueradeAll: true}\nnodePortAddresses: [primary, 192.0.2.0/24]\n";
        let proxy = of(text).unwrap();
        assert!(proxy.configured);
        assert_eq!(proxy.settings.mode, Mode::Nftables);
        assert!(proxy.settings.masquerade_all);
        let ranges = ["10.244.0.0/16", "fd00:10:244::/56"].map(|text| text.parse().unwrap());
        assert_eq!(proxy.settings.detect_local, DetectLocalMode::ClusterCidr(ranges.to_vec()));
        let addresses = [NodePortAddress::Primary, NodePortAddress::Range("192.0.2.0/24".parse().unwrap())];
        assert_eq!(proxy.settings.node_port_addresses, addresses);
        let proxy = of("masqueradeSource: primary\nnoMasqueradeCIDRs: [10.244.0.0/16]\n").unwrap().settings;
        assert_eq!((proxy.masquerade_source, proxy.no_masquerade), (MasqueradeSource::Primary, ranges[..1].to_vec()));
        let json =
            r#"{"mode":"","detectLocalMode":"InterfaceNamePrefix","detectLocal":{"interfaceNamePrefix":"cali"}}"#;
        let proxy = of(json).unwrap();
        assert_eq!(proxy.settings.detect_local, DetectLocalMode::InterfaceNamePrefix("cali".to_owned()));
        assert_eq!(proxy.settings.mode, Mode::Iptables);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, problem) in [
            ("mode: ebpf", "mode \"ebpf\" is none that is known"),
            ("clusterCIDR: ten", "\"ten\" is no range"),
            ("masqueradeSource: eth0", "\"eth0\" is neither primary nor an address"),
            ("nodePortAddresses: [here]", "\"here\" is no range"),
            ("ipvs: {scheduler: magic}", "scheduler \"magic\" is not modelled"),
            ("detectLocalMode: Magic", "detectLocalMode \"Magic\" is none that is known"),
        ] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        let error = AuditedProxy::of(&Snapshot::default(), &NodeState::default(), None, &ProxyTables::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("--mode"), "{error}");
    }
}
