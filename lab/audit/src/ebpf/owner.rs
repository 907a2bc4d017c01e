//! Owners of programs by their names, of which the kernel keeps 15 bytes.

use svclab_snapshot::bpf::AttachedProgram;
use svclab_snapshot::network::Network;

const CILIUM: &str = "Cilium";
const CALICO: &str = "Calico";

/// Prefixes of programs and of tc's filters. Cilium before 1.12 (`bpf_lxc.o:[from-container]`) named only the filters.
const PREFIXES: [(&str, &str); 9] = [
    ("cil_", CILIUM),
    ("cilium", CILIUM),
    ("bpf_lxc", CILIUM),
    ("bpf_host", CILIUM),
    ("bpf_netdev", CILIUM),
    ("bpf_overlay", CILIUM),
    ("cali", CALICO),
    ("tailscale", "Tailscale"),
    ("aws_", "the Amazon VPC CNI"),
];

/// Programs of aws-eks-nodeagent (`pkg/ebpf/c/tc.v4ingress.bpf.c`), on pods' interfaces.
const OF_EKS: [&str; 2] = ["handle_ingress", "handle_egress"];
const INTERFACES_OF_EKS: [&str; 2] = ["eni", "vlan"];

/// Interfaces that show whose an unnamed program is. (Names need more capabilities than ids.)
const INTERFACES: [(&str, &str); 2] = [("cilium_host", CILIUM), ("bpfin.cali", CALICO)];

pub(super) fn owner(program: &AttachedProgram, network: Option<&Network>) -> Option<&'static str> {
    if program.id.is_some() && program.name.is_empty() && program.filter.is_none() {
        let has = |name: &str| network.is_some_and(|network| network.links.iter().any(|link| link.name == name));
        return INTERFACES.iter().find(|(name, _)| has(name)).map(|(_, owner)| *owner);
    }
    let names = [Some(program.name.as_str()), program.filter.as_deref()];
    let by_name = |name: &str| PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, owner)| *owner);
    let interface = program.interface.as_deref().unwrap_or_default();
    let of_eks =
        OF_EKS.contains(&program.name.as_str()) && INTERFACES_OF_EKS.iter().any(|prefix| interface.starts_with(prefix));
    names.into_iter().flatten().find_map(by_name).or(of_eks.then_some("the Amazon VPC CNI's network policies"))
}

pub(super) fn can_translate_services(owner: &str) -> bool {
    [CILIUM, CALICO].contains(&owner)
}
