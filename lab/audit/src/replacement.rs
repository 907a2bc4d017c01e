//! Nodes on which another program serves Services in kube-proxy's place, so that no call can be judged by rules.

use svclab_sim::cluster::NodeState;
use svclab_snapshot::Snapshot;

use crate::ebpf::AttachedPrograms;
use crate::owner::ProxyTables;
use crate::settings::written_by;

/// A program in kube-proxy's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyReplacement {
    /// The program.
    pub owner: &'static str,
    /// Why no call can be judged.
    pub why: String,
}

/// An interface of a CNI that translates Services: always, or in kube-proxy's place.
struct CniInterface {
    prefix: &'static str,
    owner: &'static str,
    by: &'static str,
}

const BY_OVS: &str = "flows of Open vSwitch";
const BY_EBPF: &str = "eBPF programs";
const INTERFACES: [CniInterface; 4] = [
    CniInterface { prefix: "ovn-k8s-mp", owner: "OVN-Kubernetes", by: BY_OVS },
    CniInterface { prefix: "antrea-gw", owner: "Antrea", by: BY_OVS },
    CniInterface { prefix: "cilium_host", owner: "Cilium", by: BY_EBPF },
    CniInterface { prefix: "bpfin.cali", owner: "Calico", by: BY_EBPF },
];

/// The most programs that the reason names.
const PROGRAMS: usize = 2;

impl ProxyReplacement {
    /// `None` if the node has rules of a proxy.
    #[must_use]
    pub fn find(
        snapshot: &Snapshot,
        state: &NodeState,
        programs: &AttachedPrograms<'_>,
        tables: &ProxyTables,
    ) -> Option<ProxyReplacement> {
        if written_by(state, tables).is_some() {
            return None;
        }
        let (owner, by) = match programs.translator() {
            Some((owner, mut own)) => {
                let more = own.len().saturating_sub(PROGRAMS);
                own.truncate(PROGRAMS);
                let more = if more > 0 { format!("; and {more} more") } else { String::new() };
                (owner, format!("{BY_EBPF}, which are not read ({}{more})", own.join("; ")))
            }
            None => {
                let (cni, interface) = by_interface(snapshot)?;
                (cni.owner, format!("{}, which are not read (at {interface})", cni.by))
            }
        };
        Some(ProxyReplacement {
            owner,
            why: format!("{owner} serves this node's Services by {by}: no proxy has rules here"),
        })
    }
}

/// Without a list of programs, and for Open vSwitch, the CNI is known by its interface.
fn by_interface(snapshot: &Snapshot) -> Option<(&'static CniInterface, &str)> {
    // Without a running proxy, the configuration is the ConfigMap's.
    let runs = snapshot.sources.get("proxy/config.yaml").is_none_or(|source| !source.starts_with("ConfigMap"));
    if snapshot.proxy_config.is_some() && runs {
        return None;
    }
    let links = snapshot.network.iter().flat_map(|network| &network.links);
    links.into_iter().find_map(|link| {
        let cni = INTERFACES.iter().find(|cni| link.name.starts_with(cni.prefix))?;
        Some((cni, link.name.as_str()))
    })
}
