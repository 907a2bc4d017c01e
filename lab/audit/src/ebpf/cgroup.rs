//! Which calls pass the programs of a cgroup, by its path.

use std::collections::BTreeSet;

use svclab_sim::protocol::Protocol;
use svclab_snapshot::bpf::ProgramHook;

use super::{PassedCall, ProcessPlace};

/// Whose calls pass a cgroup's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupKind {
    /// The node's and all pods'.
    Root,
    /// Those of many programs of the node (`system.slice`).
    Slice,
    /// Those of all pods, or of all pods of a class (`kubepods`, `kubepods-burstable.slice`).
    Pods,
    /// Those of one unit, pod or container.
    Other,
}

impl CgroupKind {
    pub(super) fn of(path: &str) -> CgroupKind {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let classes = ["burstable", "besteffort", "guaranteed"];
        let is_class = |part: &str| {
            let name = part.strip_suffix(".slice").unwrap_or(part);
            let last = name.rsplit('-').next().unwrap_or(name);
            last == "kubepods" || classes.contains(&last) || last == "kubelet"
        };
        if path == "/" {
            CgroupKind::Root
        } else if is_of_pods(path) {
            if parts.all(is_class) { CgroupKind::Pods } else { CgroupKind::Other }
        } else if parts.all(|part| part.ends_with(".slice")) {
            CgroupKind::Slice
        } else {
            CgroupKind::Other
        }
    }

    fn holds(self, place: ProcessPlace) -> bool {
        match self {
            CgroupKind::Root => place != ProcessPlace::Elsewhere,
            CgroupKind::Slice => place == ProcessPlace::Node,
            CgroupKind::Pods => place == ProcessPlace::Pod,
            CgroupKind::Other => false,
        }
    }
}

pub(super) fn is_of_pods(path: &str) -> bool {
    path.contains("kubepods")
}

pub(super) fn passes_cgroup(
    hook: ProgramHook,
    path: &str,
    call: &PassedCall<'_>,
    answerers: &BTreeSet<ProcessPlace>,
) -> bool {
    let kind = CgroupKind::of(path);
    let holds = |place: ProcessPlace| kind.holds(place);
    let (v4, udp) = (call.to.is_ipv4(), call.protocol == Protocol::UDP);
    match hook {
        ProgramHook::Connect4 => holds(call.caller) && v4,
        ProgramHook::Connect6 => holds(call.caller) && !v4,
        ProgramHook::Sendmsg4 => holds(call.caller) && v4 && udp,
        ProgramHook::Sendmsg6 => holds(call.caller) && !v4 && udp,
        ProgramHook::SockCreate => holds(call.caller),
        ProgramHook::CgroupIngress | ProgramHook::CgroupEgress => {
            holds(call.caller) || answerers.iter().any(|place| holds(*place))
        }
        _ => false,
    }
}
