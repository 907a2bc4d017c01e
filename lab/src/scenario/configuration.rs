//! `proxy:` as the configuration file that every proxy is started with.

use std::time::Duration;

use serde_json::{Map, Value, json};
use serde_saphyr::Location;

use super::error::Problem;
use super::file::{DetectLocalMode, Mode, ProxyFile, Scheduler, Writer};
use crate::cluster::spec::ClusterSpec;

/// What a scenario says about its proxies, the same on every node.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxySettings {
    /// A KubeProxyConfiguration without a mode.
    configuration: Value,
    /// Flags of svcproxy for what is no field of that file.
    pub flags: Vec<String>,
}

/// A time that is left out makes syncs immediate: the default of one second between two of them would only make the run
/// longer. It is not zero, because in the file that means the default.
const IMMEDIATE: Duration = Duration::from_millis(1);

/// The settings; what does not fit together is a problem.
pub(super) fn of(file: &ProxyFile, cluster: &ClusterSpec, problems: &mut Vec<Problem>) -> ProxySettings {
    let mut fields = Fields(json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
    }));
    detect_local(file, cluster, &mut fields, problems);
    if let Some(written) = &file.node_port_addresses {
        let texts: Vec<&str> = written.0.iter().map(|text| text.value.0.as_str()).collect();
        let right = texts == ["primary"] || texts.iter().all(|text| text.parse::<ipnet::IpNet>().is_ok());
        if !right {
            let at = written.0.first().map_or(Location::UNKNOWN, |text| text.referenced);
            problems
                .push(Problem::new(at, "nodePortAddresses: expected ranges such as 172.18.0.0/24, or `primary` alone"));
        }
        fields.set("", "nodePortAddresses", Some(texts));
    }
    let iptables = &file.iptables;
    if iptables.masquerade_bit.is_some_and(|bit| bit > 31) {
        problems.push(Problem::new(Location::UNKNOWN, "proxy.iptables.masqueradeBit: expected 0 to 31"));
    }
    fields.set("iptables", "masqueradeAll", iptables.masquerade_all);
    fields.set("iptables", "masqueradeBit", iptables.masquerade_bit);
    fields.set("iptables", "localhostNodePorts", iptables.localhost_node_ports);
    let least = iptables.min_sync_period.map_or(IMMEDIATE, |period| period.0.max(IMMEDIATE));
    for mode in ["iptables", "ipvs"] {
        fields.set(mode, "syncPeriod", iptables.sync_period.map(|period| time(period.0)));
        fields.set(mode, "minSyncPeriod", Some(time(least)));
    }
    fields.set("ipvs", "scheduler", file.ipvs.scheduler.map(|scheduler| scheduler.to_string()));
    fields.set("ipvs", "strictARP", file.ipvs.strict_arp);
    let conntrack = &file.conntrack;
    fields.set("conntrack", "udpTimeout", conntrack.udp_timeout.map(|span| time(span.0)));
    fields.set("conntrack", "tcpEstablishedTimeout", conntrack.tcp_established_timeout.map(|span| time(span.0)));
    fields.set("conntrack", "tcpBeLiberal", conntrack.tcp_be_liberal);
    for (gate, on) in &file.feature_gates {
        fields.set("featureGates", gate, Some(*on));
    }
    let drain = file.ipvs.drain_limit.map(|limit| format!("--ipvs-drain-limit={}", time(limit.0)));
    let writer = iptables.writer.map(|writer| {
        let word = match writer {
            Writer::Netlink => "netlink",
            Writer::Commands => "commands",
        };
        format!("--iptables-writer={word}")
    });
    ProxySettings { configuration: fields.0, flags: drain.into_iter().chain(writer).collect() }
}

/// How the proxy tells pods from others.
fn detect_local(file: &ProxyFile, cluster: &ClusterSpec, fields: &mut Fields, problems: &mut Vec<Problem>) {
    let nets = |nets: Vec<ipnet::IpNet>| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let by_range = matches!(file.detect_local_mode, None | Some(DetectLocalMode::ClusterCIDR));
    let written = file.cluster_cidr.as_ref().map(|list| list.0.iter().map(|net| net.value.0).collect());
    let ranges = written.or_else(|| by_range.then(|| cluster.cluster_cidrs.clone()));
    fields.set("", "clusterCIDR", ranges.map(nets));
    fields.set("", "detectLocalMode", file.detect_local_mode.map(|mode| format!("{mode:?}")));
    let bridge = file.detect_local_mode == Some(DetectLocalMode::BridgeInterface);
    let prefix = file.detect_local_mode == Some(DetectLocalMode::InterfaceNamePrefix);
    for (wanted, value, key) in [
        (bridge, &file.detect_local.bridge_interface, "bridgeInterface"),
        (prefix, &file.detect_local.interface_name_prefix, "interfaceNamePrefix"),
    ] {
        if value.is_some() != wanted {
            let message =
                format!("proxy.detectLocal.{key} goes with the detectLocalMode of the same name, and only with it");
            problems.push(Problem::new(Location::UNKNOWN, message));
        }
        fields.set("detectLocal", key, value.clone());
    }
}

/// A time in the notation of the configuration file.
fn time(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

/// The file's fields, as far as they are set.
struct Fields(Value);

impl Fields {
    fn set(&mut self, section: &str, field: &str, value: Option<impl Into<Value>>) {
        let Some(value) = value else { return };
        let field = Value::from(Map::from_iter([(field.to_owned(), value.into())]));
        let whole = if section.is_empty() { field } else { Value::from(Map::from_iter([(section.to_owned(), field)])) };
        lay_over(&mut self.0, &whole);
    }
}

impl ProxySettings {
    /// The configuration of a proxy in `mode`, with another IPVS scheduler than the scenario's if one is given.
    pub fn configuration(&self, mode: Mode, scheduler: Option<Scheduler>) -> Value {
        let mut fields = Fields(self.configuration.clone());
        fields.set("", "mode", Some(mode.to_string()));
        fields.set("ipvs", "scheduler", scheduler.map(|scheduler| scheduler.to_string()));
        fields.0
    }

    /// Whether the field at this path (RFC 6901) is set to `value`.
    pub(super) fn is(&self, path: &str, value: bool) -> bool {
        self.configuration.pointer(path) == Some(&Value::from(value))
    }

    /// The time at this path, if it is set.
    pub(super) fn time(&self, path: &str) -> Option<Duration> {
        let text = self.configuration.pointer(path)?.as_str()?;
        text.strip_suffix("ms")?.parse().ok().map(Duration::from_millis)
    }
}

/// JSON Merge Patch (RFC 7396).
pub(super) fn lay_over(value: &mut Value, overlay: &Value) {
    let Some(fields) = overlay.as_object() else {
        *value = overlay.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (key, part) in fields {
        if part.is_null() {
            value.as_object_mut().map(|object| object.remove(key));
        } else {
            lay_over(&mut value[key.as_str()], part);
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn a_scenario_that_says_nothing_syncs_at_once() {
        let expected = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "ipvs",
            "clusterCIDR": "10.244.0.0/16",
            "iptables": { "minSyncPeriod": "1ms" },
            "ipvs": { "minSyncPeriod": "1ms" },
        });
        let settings = settings("{}").unwrap();
        assert_eq!(settings.configuration(Mode::Ipvs, None), expected);
        assert_eq!(settings.flags, [""; 0]);
    }

    #[test]
    fn every_key_of_a_scenario_has_its_place() {
        let text = "
            clusterCIDR: [10.0.0.0/8, 'fd00::/56']
            detectLocalMode: BridgeInterface
            detectLocal: {bridgeInterface: cni0}
            nodePortAddresses: [10.0.0.0/8, 172.18.0.0/24]
            iptables: {masqueradeAll: true, masqueradeBit: 3, localhostNodePorts: false, syncPeriod: 1h, minSyncPeriod: 0s}
            ipvs: {scheduler: wrr, strictARP: true, drainLimit: 3s}
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
            "iptables": {
                "masqueradeAll": true, "masqueradeBit": 3, "localhostNodePorts": false, "syncPeriod": "3600000ms",
                "minSyncPeriod": "1ms",
            },
            "ipvs": { "syncPeriod": "3600000ms", "minSyncPeriod": "1ms", "scheduler": "sh", "strictARP": true },
            "conntrack": { "tcpBeLiberal": true, "tcpEstablishedTimeout": "7200000ms", "udpTimeout": "300ms" },
        });
        assert_eq!(settings.configuration(Mode::Iptables, Some(Scheduler::Sh)), expected);
        assert_eq!(settings.flags, ["--ipvs-drain-limit=3000ms"]);
        assert!(settings.is("/conntrack/tcpBeLiberal", true) && !settings.is("/iptables/localhostNodePorts", true));
        assert_eq!(settings.time("/conntrack/udpTimeout"), Some(Duration::from_millis(300)));
    }

    #[test]
    fn what_does_not_fit_together_is_told() {
        let wrong = |text: &str| settings(text).unwrap_err().join("\n");
        assert!(wrong("detectLocalMode: BridgeInterface").contains("detectLocal.bridgeInterface goes with"));
        assert!(wrong("detectLocal: {interfaceNamePrefix: veth}").contains("detectLocal.interfaceNamePrefix"));
        assert!(wrong("nodePortAddresses: [primary, 10.0.0.0/8]").contains("`primary` alone"));
        assert!(wrong("iptables: {masqueradeBit: 32}").contains("expected 0 to 31"));
    }

    #[test]
    fn a_merge_patch_adds_replaces_and_removes() {
        let mut value = json!({ "a": { "b": 1, "c": 2 }, "d": [1] });
        lay_over(&mut value, &json!({ "a": { "b": null, "e": { "f": 3 } }, "d": 4 }));
        assert_eq!(value, json!({ "a": { "c": 2, "e": { "f": 3 } }, "d": 4 }));
    }
}
