//! Owners of programs by their names, of which the kernel keeps 15 bytes.

use svclab_snapshot::bpf::AttachedProgram;

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

pub(super) fn owner(program: &AttachedProgram) -> Option<&'static str> {
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
