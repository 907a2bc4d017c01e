//! Programs on the paths of packets and calls, from bpf(2) and route netlink.

use serde::{Deserialize, Serialize};

/// An attached eBPF program, or a tc filter with an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedProgram {
    /// Where it runs.
    pub hook: ProgramHook,
    /// The interface of the hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The path of the cgroup below the mounted hierarchy; `/` is the topmost cgroup and its ancestors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The program's id; `None` for a tc filter without a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// The program's type (`sched_cls`, `xdp`, …) or the tc filter's kind (`u32`, `flower`, …).
    #[serde(rename = "type")]
    pub kind: String,
    /// The program's name, of at most 15 bytes; empty if it has none, or if names could not be read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The name that tc gives its filter (`TCA_BPF_NAME`): often the object file with the section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The actions of a tc filter without a program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<TcActionKind>,
}

/// An action of a tc filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcActionKind {
    /// `gact`, `mirred`, `pedit`, …
    pub kind: String,
    /// `mirred`: the interface that gets the packet instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<String>,
    /// `mirred`: the interface that gets a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
}

/// A place where the kernel runs a program. The numbers are of `enum bpf_attach_type` (`include/uapi/linux/bpf.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are the kernel's")]
pub enum ProgramHook {
    Xdp,
    TcIngress,
    TcEgress,
    TcxIngress,
    TcxEgress,
    /// Packets to the peer of a netkit interface.
    NetkitPrimary,
    /// Packets from the peer of a netkit interface.
    NetkitPeer,
    SkLookup,
    CgroupIngress,
    CgroupEgress,
    SockCreate,
    Bind4,
    Bind6,
    PostBind4,
    PostBind6,
    Connect4,
    Connect6,
    Sendmsg4,
    Sendmsg6,
    Recvmsg4,
    Recvmsg6,
    Getpeername4,
    Getpeername6,
    /// Unknown to this version.
    #[serde(other)]
    Other,
}

impl ProgramHook {
    /// The hooks of cgroups.
    pub const CGROUP: [ProgramHook; 15] = [
        ProgramHook::CgroupIngress,
        ProgramHook::CgroupEgress,
        ProgramHook::SockCreate,
        ProgramHook::Bind4,
        ProgramHook::Bind6,
        ProgramHook::PostBind4,
        ProgramHook::PostBind6,
        ProgramHook::Connect4,
        ProgramHook::Connect6,
        ProgramHook::Sendmsg4,
        ProgramHook::Sendmsg6,
        ProgramHook::Recvmsg4,
        ProgramHook::Recvmsg6,
        ProgramHook::Getpeername4,
        ProgramHook::Getpeername6,
    ];

    /// The hook's name in texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ProgramHook::Xdp => "XDP",
            ProgramHook::TcIngress => "tc ingress",
            ProgramHook::TcEgress => "tc egress",
            ProgramHook::TcxIngress => "tcx ingress",
            ProgramHook::TcxEgress => "tcx egress",
            ProgramHook::NetkitPrimary => "netkit primary",
            ProgramHook::NetkitPeer => "netkit peer",
            ProgramHook::SkLookup => "sk_lookup",
            ProgramHook::CgroupIngress => "cgroup_skb ingress",
            ProgramHook::CgroupEgress => "cgroup_skb egress",
            ProgramHook::SockCreate => "sock_create",
            ProgramHook::Bind4 => "bind4",
            ProgramHook::Bind6 => "bind6",
            ProgramHook::PostBind4 => "post_bind4",
            ProgramHook::PostBind6 => "post_bind6",
            ProgramHook::Connect4 => "connect4",
            ProgramHook::Connect6 => "connect6",
            ProgramHook::Sendmsg4 => "sendmsg4",
            ProgramHook::Sendmsg6 => "sendmsg6",
            ProgramHook::Recvmsg4 => "recvmsg4",
            ProgramHook::Recvmsg6 => "recvmsg6",
            ProgramHook::Getpeername4 => "getpeername4",
            ProgramHook::Getpeername6 => "getpeername6",
            ProgramHook::Other => "unknown hook",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_of_a_later_version_is_read() {
        let text = r#"{"hook": "later", "type": "later", "id": 1, "new": true}"#;
        let read: AttachedProgram = serde_json::from_str(text).unwrap();
        assert_eq!(read.hook, ProgramHook::Other);
    }
}
