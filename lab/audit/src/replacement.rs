//! Nodes on which another program serves Services in kube-proxy's place, so that no call can be judged by rules.

use svclab_sim::cluster::NodeState;
use svclab_snapshot::Snapshot;

use crate::ebpf::AttachedPrograms;
use crate::settings::written_by;

/// A program in kube-proxy's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyReplacement {
    /// The program.
    pub owner: &'static str,
    /// Why no call can be judged.
    pub why: String,
}

/// Interfaces of CNIs that translate Services by Open vSwitch: always, and without kube-proxy (`proxyAll`).
const BY_OVS: [(&str, &str); 2] = [("ovn-k8s-mp", "OVN-Kubernetes"), ("antrea-gw", "Antrea")];

/// The most programs that the reason names.
const PROGRAMS: usize = 2;

impl ProxyReplacement {
    /// `None` if the node has rules of a proxy.
    #[must_use]
    pub fn find(snapshot: &Snapshot, state: &NodeState, programs: &AttachedPrograms<'_>) -> Option<ProxyReplacement> {
        if written_by(state).is_some() {
            return None;
        }
        let (owner, by) = match programs.translator() {
            Some((owner, mut own)) => {
                let more = own.len().saturating_sub(PROGRAMS);
                own.truncate(PROGRAMS);
                let more = if more > 0 { format!("; and {more} more") } else { String::new() };
                (owner, format!("eBPF programs, which are not read ({}{more})", own.join("; ")))
            }
            None => {
                let (owner, interface) = by_switch(snapshot)?;
                (owner, format!("flows of Open vSwitch, which are not read (at {interface})"))
            }
        };
        Some(ProxyReplacement {
            owner,
            why: format!("{owner} serves this node's Services by {by}: no proxy has rules here"),
        })
    }
}

fn by_switch(snapshot: &Snapshot) -> Option<(&'static str, &str)> {
    // Without a running proxy, the configuration is the ConfigMap's.
    let runs = snapshot.sources.get("proxy/config.yaml").is_none_or(|source| !source.starts_with("ConfigMap"));
    if snapshot.proxy_config.is_some() && runs {
        return None;
    }
    let links = snapshot.network.iter().flat_map(|network| &network.links);
    let mut ports = links.filter(|link| link.kind.as_deref() == Some("openvswitch"));
    ports.find_map(|link| {
        let known = BY_OVS.iter().find(|(prefix, _)| link.name.starts_with(prefix))?;
        Some((known.1, link.name.as_str()))
    })
}
