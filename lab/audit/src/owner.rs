//! Whose a rule is, by the names of chains and tables.

use svclab_oracle::Mode;
use svclab_sim::nft::{Table, TableFamily};

/// The owner of a rule, by the names of chains and tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleOwner {
    /// A service proxy in this mode: chains named `KUBE-…`, tables of [`ProxyTables`], virtual servers.
    Proxy(Mode),
    /// Another program.
    Other(&'static str),
    /// No known program.
    Unknown,
}

const PREFIXES: [(&str, &str); 28] = [
    ("cali-", "Calico"),
    ("DOCKER", "docker"),
    ("CNI-", "a CNI plugin (portmap)"),
    ("FLANNEL", "flannel"),
    ("FLANNEL-", "flannel"),
    ("CILIUM_", "Cilium"),
    ("OLD_CILIUM_", "Cilium"),
    ("KUBE-ROUTER", "kube-router"),
    ("KUBE-POD-FW-", "kube-router"),
    ("KUBE-NWPLCY-", "kube-router"),
    ("KUBE-MARK-DROP", "kubelet"),
    ("KUBE-KUBELET-CANARY", "kubelet"),
    ("IP-MASQ", "ip-masq-agent"),
    ("KIND-MASQ-AGENT", "kindnet"),
    ("ANTREA-", "Antrea"),
    ("OPENSHIFT-", "OpenShift SDN"),
    ("AWS-", "the VPC CNI of AWS"),
    ("OVN-KUBE-", "OVN-Kubernetes"),
    ("WEAVE", "Weave"),
    ("ISTIO_", "Istio"),
    ("LINKERD_", "Linkerd"),
    ("PROXY_INIT_", "Linkerd"),
    ("ufw", "ufw"),
    ("f2b-", "fail2ban"),
    ("LIBVIRT_", "libvirt"),
    ("NETAVARK", "podman"),
    ("ts-", "Tailscale"),
    ("nixos-", "NixOS' firewall"),
];

pub(crate) fn of_chain(chain: &str) -> RuleOwner {
    if let Some((_, name)) = PREFIXES.iter().find(|(prefix, _)| chain.starts_with(prefix)) {
        return RuleOwner::Other(name);
    }
    if chain.starts_with("KUBE-PORTALS") {
        RuleOwner::Proxy(Mode::Userspace)
    } else if chain.starts_with("KUBE-") {
        RuleOwner::Proxy(Mode::Iptables)
    } else {
        RuleOwner::Unknown
    }
}

/// kube-proxy's table, and svcproxy's, in each family.
const KUBE_PROXY: &str = "kube-proxy";

/// The tables of nftables that are the audited proxy's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxyTables(Option<Vec<(TableFamily, String)>>);

impl ProxyTables {
    /// Takes tables as `nft` names them, such as `inet my-proxy`; `None` if one is no table's name. The default is the
    /// tables named kube-proxy.
    #[must_use]
    pub fn named(names: &[String]) -> Option<ProxyTables> {
        let table = |name: &String| match name.split_whitespace().collect::<Vec<_>>()[..] {
            [family, name] => Some((TableFamily::parse(family)?, name.to_owned())),
            _ => None,
        };
        names.iter().map(table).collect::<Option<Vec<_>>>().map(|tables| ProxyTables(Some(tables)))
    }

    /// Whether a description of the proxy names its tables.
    pub(crate) fn are_described(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn has(&self, table: &Table) -> bool {
        match &self.0 {
            None => table.name == KUBE_PROXY,
            Some(tables) => tables.iter().any(|(family, name)| *family == table.family && *name == table.name),
        }
    }

    pub(crate) fn owner(&self, table: &Table, chain: &str) -> RuleOwner {
        match table.name.as_str() {
            _ if self.has(table) => RuleOwner::Proxy(Mode::Nftables),
            KUBE_PROXY => RuleOwner::Other("kube-proxy"),
            "firewalld" => RuleOwner::Other("firewalld"),
            // Tables of iptables-nft in an nft listing.
            _ => of_chain(chain),
        }
    }
}

#[cfg(test)]
mod tests {
    use svclab_sim::cluster::NodeState;

    use super::*;

    #[test]
    fn described_tables_are_the_proxys_and_kube_proxys_are_not() {
        let mut state = NodeState::default();
        let text = "table inet mine { chain c { } }\ntable ip mine { chain c { } }\ntable ip kube-proxy { chain c { } }\n\
                    table inet firewalld { chain c { } }\n";
        assert!(state.read_nft("tables", text).is_ok());
        let owners = |tables: &ProxyTables| -> Vec<RuleOwner> {
            state.nft.tables.iter().map(|table| tables.owner(table, "c")).collect()
        };
        let (proxy, other) = (RuleOwner::Proxy(Mode::Nftables), |name| RuleOwner::Other(name));
        let usual = [RuleOwner::Unknown, RuleOwner::Unknown, proxy, other("firewalld")];
        assert_eq!(owners(&ProxyTables::default()), usual);
        let described = ProxyTables::named(&["inet mine".to_owned()]);
        let told_apart = [proxy, RuleOwner::Unknown, other("kube-proxy"), other("firewalld")];
        assert_eq!(described.as_ref().map(owners), Some(told_apart.to_vec()));
        assert_eq!(ProxyTables::named(&["mine".to_owned()]), None);
        assert_eq!(ProxyTables::named(&["ipv4 mine".to_owned()]), None);
    }
}
