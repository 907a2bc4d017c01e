//! Feature gates. kube-proxy evaluates some; only the names of others are checked.

mod known;

use std::collections::BTreeMap;

use super::check::FieldProblem;
use super::fields::FieldSupport;
use crate::config::{FeatureGates, Mode};
use FieldSupport::{Honoured, NoEffect};

/// The stage of a gate in Kubernetes 1.37.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateStage {
    Alpha,
    Beta,
    /// Stable, but may still be set to another value.
    Stable,
    /// Stable, and fixed to its default.
    Locked,
    Deprecated,
}

#[derive(Debug, Clone, Copy)]
pub struct Gate {
    pub name: &'static str,
    pub stage: GateStage,
    pub default: bool,
    pub help: &'static str,
    pub state: FieldSupport,
}

const fn gate(name: &'static str, stage: GateStage, default: bool, state: FieldSupport, help: &'static str) -> Gate {
    Gate { name, stage, default, help, state }
}

const LOCALHOST: FieldSupport = FieldSupport::Different(
    "a loopback range in `nodePortAddresses` is enough; only `false` keeps the relays from listening",
);
const WINDOWS: FieldSupport = NoEffect("it is for Windows nodes");
const GO_CLIENT: FieldSupport =
    NoEffect("it selects an implementation in Go's client library, which this program does not use");
const GO_LOGGING: FieldSupport = NoEffect("it guards options of Go's logging library");

use GateStage::{Alpha, Beta, Deprecated, Locked, Stable};

/// The gates that cmd/kube-proxy, pkg/proxy and the packages that they call read with `utilfeature`.
#[rustfmt::skip]
pub const GATES: &[Gate] = &[
    gate("AllAlpha", Alpha, false, Honoured, "Value of the alpha gates of this table that are not set themselves"),
    gate("AllBeta", Beta, false, Honoured, "Value of the beta gates of this table that are not set themselves"),
    gate("AllowServiceExternalIPs", Deprecated, true, Honoured, "Serve `spec.externalIPs` of Services; any user who may write a Service can take an address with it (CVE-2020-8554)"),
    gate("AtomicFIFO", Beta, true, GO_CLIENT, "Client: take a whole list at once"),
    gate("ClientsAllowCARotation", Beta, true, NoEffect("kubeconfig and certificates are read anew for each new connection after a failure"), "Client: follow a change of the cluster's certificate authority"),
    gate("ClientsAllowCBOR", Alpha, false, GO_CLIENT, "Client: accept CBOR"),
    gate("ClientsAllowTLSCacheGC", Beta, true, GO_CLIENT, "Client: forget unused connections"),
    gate("ClientsPreferCBOR", Alpha, false, GO_CLIENT, "Client: prefer CBOR"),
    gate("ComponentFlagz", Beta, true, Honoured, "`/flagz` on the metrics port"),
    gate("ComponentStatusz", Beta, true, Honoured, "`/statusz` on the metrics port"),
    gate("ContextualLogging", Beta, true, NoEffect("log lines always carry their context"), "Log lines with the names of what they are about"),
    gate("InOrderInformers", Locked, true, GO_CLIENT, "Client: tell changes in their order"),
    gate("InOrderInformersBatchProcess", Beta, true, GO_CLIENT, "Client: tell changes in batches"),
    gate("InformerResourceVersion", Stable, true, GO_CLIENT, "Client: tell the last version seen"),
    gate("KubeProxyIPVS", Deprecated, true, Honoured, "Allow the mode ipvs"),
    gate("KubeProxyNFTablesLocalhostNodePorts", Alpha, false, LOCALHOST, "nftables mode: node ports on the loopback range, by a relay"),
    gate("LoggingAlphaOptions", Alpha, false, GO_LOGGING, "Allow logging options in stage alpha"),
    gate("LoggingBetaOptions", Beta, true, GO_LOGGING, "Allow logging options in stage beta"),
    gate("MultiCIDRServiceAllocator", Locked, true, NoEffect("nftables mode watches ServiceCIDRs wherever the API server serves them; no other mode has a use for them"), "Watch ServiceCIDRs"),
    gate("NFTablesNetlink", Beta, true, NoEffect("tables are read and written by netlink, always"), "nftables mode: read tables by netlink"),
    gate("NFTablesProxyMode", Locked, true, Honoured, "Allow the mode nftables"),
    gate("NativeHistograms", Beta, true, NoEffect("metrics are in the text format, which has no native histograms"), "Native histograms beside those with buckets"),
    gate("PreferSameTrafficDistribution", Locked, true, Honoured, "Follow the hints of `trafficDistribution: PreferSameZone` and `PreferSameNode`"),
    gate("UnlockWhileProcessingFIFO", Beta, true, GO_CLIENT, "Client: take changes in while others are worked on"),
    gate("WatchListClient", Beta, true, NoEffect("first lists are packed, and streams are not before 1.37"), "Client: first lists as streams"),
    gate("WinDSR", Locked, true, WINDOWS, "Windows: direct server return"),
    gate("WinOverlay", Locked, true, WINDOWS, "Windows: overlay networks"),
];

/// Rejects an unknown gate, one locked to another value, and one that forbids the mode.
pub(super) fn checked(given: &BTreeMap<String, bool>, mode: Mode) -> Result<FeatureGates, FieldProblem> {
    for (name, on) in given {
        let problem = match locked(name) {
            _ if !exists(name) => {
                format!("there is no feature gate {name} in Kubernetes 1.36 and 1.37{}", similar(name))
            }
            Some(value) if value != *on => format!("the feature gate {name} is locked to {value}"),
            _ => continue,
        };
        return Err(FieldProblem { field: format!("{FIELD}{name}").into(), problem });
    }
    if mode == Mode::Ipvs && !is_on(given, "KubeProxyIPVS") {
        let problem = "the feature gate KubeProxyIPVS, which is off, forbids the mode ipvs".to_owned();
        return Err(FieldProblem { field: "mode".into(), problem });
    }
    Ok(FeatureGates {
        service_external_ips: is_on(given, "AllowServiceExternalIPs"),
        flagz: is_on(given, "ComponentFlagz"),
        statusz: is_on(given, "ComponentStatusz"),
        // A loopback range in `nodePortAddresses` is enough; kube-proxy also requires the gate while it is alpha.
        nftables_localhost_node_ports: given_value(given, "KubeProxyNFTablesLocalhostNodePorts").unwrap_or(true),
    })
}

pub(super) const FIELD: &str = "featureGates.";

pub(super) fn without_effect(given: &BTreeMap<String, bool>) -> impl Iterator<Item = String> {
    given.iter().filter_map(|(name, on)| {
        let why = match GATES.iter().find(|gate| gate.name == name) {
            None => "kube-proxy does not act on it, nor does this proxy",
            Some(gate) if gate.default == *on => return None,
            Some(gate) => match gate.state {
                FieldSupport::NoEffect(why) | FieldSupport::Pending(why) => why,
                FieldSupport::Honoured | FieldSupport::Different(_) => return None,
            },
        };
        Some(format!("feature gate {name}={on} has no effect: {why}"))
    })
}

/// Precedence is as in k8s.io/component-base `featuregate`: the gate, then `AllAlpha` or `AllBeta`, then the default.
fn is_on(given: &BTreeMap<String, bool>, name: &str) -> bool {
    let default = || GATES.iter().any(|gate| gate.name == name && gate.default);
    given_value(given, name).unwrap_or_else(default)
}

fn given_value(given: &BTreeMap<String, bool>, name: &str) -> Option<bool> {
    let gate = GATES.iter().find(|gate| gate.name == name)?;
    let of_stage = match gate.stage {
        GateStage::Alpha => given.get("AllAlpha"),
        GateStage::Beta => given.get("AllBeta"),
        GateStage::Stable | GateStage::Locked | GateStage::Deprecated => None,
    };
    given.get(name).or(of_stage).copied()
}

fn exists(name: &str) -> bool {
    names().any(|known| known == name)
}

fn names() -> impl Iterator<Item = &'static str> {
    let others = [known::OPEN, known::LOCKED_ON, known::LOCKED_OFF].into_iter().flatten().copied();
    GATES.iter().map(|gate| gate.name).chain(others)
}

fn locked(name: &str) -> Option<bool> {
    let of_table =
        GATES.iter().find(|gate| gate.name == name && gate.stage == GateStage::Locked).map(|gate| gate.default);
    let on = || known::LOCKED_ON.contains(&name).then_some(true);
    let off = || known::LOCKED_OFF.contains(&name).then_some(false);
    of_table.or_else(on).or_else(off)
}

fn similar(name: &str) -> String {
    let plain = |name: &str| name.to_lowercase().trim_end_matches('s').to_owned();
    let found = names().find(|known| plain(known) == plain(name));
    found.map_or_else(String::new, |known| format!("; is {known} meant?"))
}

pub(super) fn document() -> String {
    let mut text = String::from(INTRODUCTION);
    text.push_str("\n| Gate | Stage | Default | What it is | State |\n| --- | --- | --- | --- | --- |\n");
    for gate in GATES {
        let stage = match gate.stage {
            GateStage::Alpha => "alpha",
            GateStage::Beta => "beta",
            GateStage::Stable => "stable",
            GateStage::Locked => "stable, locked",
            GateStage::Deprecated => "deprecated",
        };
        let state = match gate.state {
            FieldSupport::Honoured if gate.stage == GateStage::Locked => "always on".to_owned(),
            FieldSupport::NoEffect(why) | FieldSupport::Pending(why) if gate.stage == GateStage::Locked => {
                format!("no effect: {why}")
            }
            other => other.to_string(),
        };
        text.push_str(&format!("| `{}` | {stage} | `{}` | {} | {state} |\n", gate.name, gate.default, gate.help));
    }
    text
}

const INTRODUCTION: &str = "
## Feature gates

These are the gates that kube-proxy 1.36 or 1.37 evaluates, in its own code or in a library. A gate without effect that is not at its default is
a warning. Any other gate of Kubernetes is accepted, as in kube-proxy, with a warning that it has no effect. As in kube-proxy, an unknown gate is an
error with file and line, or with the flag, and so is a *locked* gate with another value.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn given(gates: &[(&str, bool)]) -> BTreeMap<String, bool> {
        gates.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect()
    }

    fn iptables(gates: &[(&str, bool)]) -> Result<FeatureGates, String> {
        checked(&given(gates), Mode::Iptables).map_err(|problem| format!("{}: {}", problem.field, problem.problem))
    }

    #[test]
    fn every_gate_is_listed_once() {
        let mut all: Vec<&str> = names().collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(GATES.is_sorted_by_key(|gate| gate.name));
    }

    #[test]
    fn a_gate_overrides_its_stage_which_overrides_the_default() {
        let default = FeatureGates::default();
        assert_eq!(iptables(&[]).unwrap(), default);
        assert!(default.service_external_ips && default.flagz && default.statusz);
        assert!(!iptables(&[("AllowServiceExternalIPs", false)]).unwrap().service_external_ips);
        let gates = iptables(&[("AllBeta", false), ("ComponentFlagz", true)]).unwrap();
        assert_eq!(gates, FeatureGates { statusz: false, ..default });
        assert_eq!(iptables(&[("AllAlpha", true), ("AllBeta", true)]).unwrap(), default);
        let localhost = |gates: &[(&str, bool)]| iptables(gates).unwrap().nftables_localhost_node_ports;
        assert!(localhost(&[]) && localhost(&[("KubeProxyNFTablesLocalhostNodePorts", true)]));
        assert!(localhost(&[("AllAlpha", false), ("KubeProxyNFTablesLocalhostNodePorts", true)]));
        assert!(!localhost(&[("KubeProxyNFTablesLocalhostNodePorts", false)]) && !localhost(&[("AllAlpha", false)]));
    }

    #[test]
    fn an_unknown_or_locked_gate_is_an_error() {
        for (name, on, problem) in [
            ("Nonsense", true, "featureGates.Nonsense: there is no feature gate Nonsense in Kubernetes 1.36 and 1.37"),
            (
                "allowServiceExternalIP",
                false,
                "featureGates.allowServiceExternalIP: there is no feature gate allowServiceExternalIP in Kubernetes 1.36 and \
                 1.37; is AllowServiceExternalIPs meant?",
            ),
            (
                "PreferSameTrafficDistribution",
                false,
                "featureGates.PreferSameTrafficDistribution: the feature gate PreferSameTrafficDistribution is locked to true",
            ),
            (
                "SidecarContainers",
                false,
                "featureGates.SidecarContainers: the feature gate SidecarContainers is locked to true",
            ),
            (
                "GitRepoVolumeDriver",
                true,
                "featureGates.GitRepoVolumeDriver: the feature gate GitRepoVolumeDriver is locked to false",
            ),
        ] {
            let reported = iptables(&[(name, on)]).unwrap_err();
            assert!(reported.starts_with(problem), "{reported}");
            assert!(name.contains("IP") || name == "Nonsense" || iptables(&[(name, !on)]).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_gate_forbids_the_mode_ipvs() {
        let off = given(&[("KubeProxyIPVS", false)]);
        assert_eq!(checked(&off, Mode::Ipvs).unwrap_err().field, "mode");
        assert!(checked(&off, Mode::Iptables).is_ok() && checked(&given(&[]), Mode::Ipvs).is_ok());
    }

    #[test]
    fn gates_without_effect_are_reported_unless_at_their_default() {
        let reported = |name, on| without_effect(&given(&[(name, on)])).collect::<Vec<_>>();
        assert_eq!(reported("AllowServiceExternalIPs", false), Vec::<String>::new());
        assert_eq!(reported("WatchListClient", true), Vec::<String>::new());
        assert!(
            reported("WatchListClient", false)[0].ends_with("first lists are packed, and streams are not before 1.37")
        );
        assert_eq!(
            reported("MemoryQoS", true),
            ["feature gate MemoryQoS=true has no effect: kube-proxy does not act on it, nor does this proxy"]
        );
    }
}
