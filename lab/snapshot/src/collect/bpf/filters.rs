//! Filters of tc and programs of XDP, by route netlink.

use std::collections::BTreeMap;

use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage, LinkXdp};
use rtnetlink::packet_route::tc::{
    TcAction, TcActionAttribute, TcActionMirrorOption, TcActionOption, TcAttribute, TcFilterBpfOption,
    TcFilterFlowerOption, TcFilterMatchAllOption, TcFilterU32Option, TcHandle, TcMessage, TcMirrorActionType, TcOption,
};

use crate::bpf::{AttachedProgram, ProgramHook, TcActionKind};

/// An interface whose hooks are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) is_netkit: bool,
    /// The ids of its XDP programs.
    pub(super) xdp: Vec<u32>,
}

pub(super) type Interfaces = BTreeMap<u32, Interface>;

pub(super) fn interfaces(links: &[LinkMessage]) -> Interfaces {
    links.iter().map(|link| (link.header.index, interface(link))).collect()
}

fn interface(link: &LinkMessage) -> Interface {
    let mut interface = Interface { name: format!("#{}", link.header.index), is_netkit: false, xdp: Vec::new() };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name.clone_from(name),
            LinkAttribute::LinkInfo(infos) => {
                let is_netkit = |info: &LinkInfo| matches!(info, LinkInfo::Kind(kind) if is_netkit(kind));
                interface.is_netkit = infos.iter().any(is_netkit);
            }
            LinkAttribute::Xdp(parts) => interface.xdp = xdp(parts),
            _ => {}
        }
    }
    interface
}

fn is_netkit(kind: &InfoKind) -> bool {
    kind.to_string() == "netkit"
}

/// `IFLA_XDP_PROG_ID` is absent if programs of several modes are attached.
fn xdp(parts: &[LinkXdp]) -> Vec<u32> {
    let mut ids: Vec<u32> = parts
        .iter()
        .filter_map(|part| match part {
            LinkXdp::ProgId(id) | LinkXdp::DrvProgId(id) | LinkXdp::SkbProgId(id) | LinkXdp::HwProgId(id) => Some(*id),
            _ => None,
        })
        .filter(|id| *id != 0)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Where the filters of a queueing discipline hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilterParent {
    Ingress,
    Egress,
    /// The root qdisc: its filters choose a class, and may have actions.
    Root,
}

impl FilterParent {
    fn hook(self) -> ProgramHook {
        match self {
            FilterParent::Ingress => ProgramHook::TcIngress,
            FilterParent::Egress | FilterParent::Root => ProgramHook::TcEgress,
        }
    }
}

pub(super) fn parents(qdisc: &TcMessage) -> &'static [FilterParent] {
    match kind(qdisc) {
        "clsact" => &[FilterParent::Ingress, FilterParent::Egress],
        "ingress" => &[FilterParent::Ingress],
        _ if qdisc.header.parent == TcHandle::ROOT && qdisc.header.handle != TcHandle::UNSPEC => &[FilterParent::Root],
        _ => &[],
    }
}

fn kind(message: &TcMessage) -> &str {
    let kind = message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.as_str()),
        _ => None,
    });
    kind.unwrap_or_default()
}

/// `None` if the filter runs neither a program nor an action: such a filter chooses a class.
pub(super) fn filter(
    message: &TcMessage,
    parent: FilterParent,
    interface: &str,
    interfaces: &Interfaces,
) -> Option<AttachedProgram> {
    let mut found = AttachedProgram {
        hook: parent.hook(),
        interface: Some(interface.to_owned()),
        cgroup: None,
        id: None,
        kind: kind(message).to_owned(),
        name: String::new(),
        filter: None,
        actions: Vec::new(),
    };
    let options = message.attributes.iter().filter_map(|attribute| match attribute {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    });
    let (mut all, mut unread) = (Vec::new(), false);
    for option in options.flatten() {
        match option {
            TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => found.id = Some(*id),
            TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => found.filter = Some(name.clone()),
            TcOption::U32(TcFilterU32Option::Action(actions))
            | TcOption::Flower(TcFilterFlowerOption::Actions(actions))
            | TcOption::MatchAll(TcFilterMatchAllOption::Action(actions)) => all.extend(actions),
            // Not decoded. Filters of the root qdisc seldom have actions.
            TcOption::Other(_) => unread = parent != FilterParent::Root,
            _ => {}
        }
    }
    found.actions = all.into_iter().map(|one| action(one, interfaces)).collect();
    let acts = found.id.is_some() || !found.actions.is_empty() || unread;
    acts.then_some(found)
}

fn action(action: &TcAction, interfaces: &Interfaces) -> TcActionKind {
    let mut found = TcActionKind { kind: String::new(), redirect: None, mirror: None };
    for attribute in &action.attributes {
        match attribute {
            TcActionAttribute::Kind(kind) => found.kind.clone_from(kind),
            TcActionAttribute::Options(options) => {
                for option in options {
                    let TcActionOption::Mirror(TcActionMirrorOption::Parms(target)) = option else { continue };
                    let name = interfaces
                        .get(&target.ifindex)
                        .map_or_else(|| format!("#{}", target.ifindex), |one| one.name.clone());
                    match target.eaction {
                        TcMirrorActionType::EgressMirror | TcMirrorActionType::IngressMirror => {
                            found.mirror = Some(name);
                        }
                        _ => found.redirect = Some(name),
                    }
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use netlink_packet_core::Parseable;

    use super::*;

    fn recorded(hex: &str) -> TcMessage {
        TcMessage::parse(&HEXLOWER.decode(hex.as_bytes()).unwrap()).unwrap()
    }

    fn read(hex: &str, parent: FilterParent) -> Option<AttachedProgram> {
        let named = |name: &str| Interface { name: name.to_owned(), is_netkit: false, xdp: Vec::new() };
        filter(&recorded(hex), parent, "eth0", &[(3, named("ifb0")), (5, named("eth0"))].into())
    }

    // Recorded from Linux 6.18: `RTM_NEWTFILTER` and `RTM_NEWQDISC` without the netlink header.
    const HEAD: &str = "000000000300000000000000f2ffffff00030100080001006270660008000b0000000000";
    const BPF: &str = "000000000300000001000000f2ffffff00030100080001006270660008000b0000000000480002001f0007006270665f6c78632e6f3a\
        5b66726f6d2d636f6e7461696e65725d000008000b00640000000c000a0059f4a931744dcdc608000800010000000800090008000000";
    const REDIRECT: &str = "\
        0000000005000000000800800000ffff000300c0080001007533320008000b0000000000e0000200240005000100010000000000\
        000000000000000000000000000000000000000000000000080002000000008008000b0008000000a8000700a40001000b000100\
        6d697272656400004400040014000100000000000000000000000000000000001400070000000000000000000000000000000000\
        18000300000000000000000000000000000000000000000008000a00000000004800020020000200010000000000000004000000\
        01000000010000000100000003000000240001000000000000000000000000000000000000000000000000000000000000000000";
    const CLASSIFIER: &str = "00000000050000000008008000000100080000c0080001007533320008000b00000000004000020024000500010000000000000000\
        00000000000000ffffffff0102030410000000000000000800020000000080080001000100010008000b0008000000";

    #[test]
    fn a_recorded_filter_with_a_program_is_read() {
        let found = read(BPF, FilterParent::Ingress).unwrap();
        assert_eq!((found.hook, found.id, found.kind.as_str()), (ProgramHook::TcIngress, Some(100), "bpf"));
        assert_eq!(found.filter.as_deref(), Some("bpf_lxc.o:[from-container]"));
        assert_eq!(read(HEAD, FilterParent::Ingress), None);
    }

    #[test]
    fn a_recorded_filter_that_redirects_is_read() {
        let found = read(REDIRECT, FilterParent::Ingress).unwrap();
        let action = TcActionKind { kind: "mirred".to_owned(), redirect: Some("ifb0".to_owned()), mirror: None };
        assert_eq!((found.kind.as_str(), found.actions), ("u32", vec![action]));
    }

    #[test]
    fn a_filter_that_only_chooses_a_class_is_left_out() {
        assert_eq!(read(CLASSIFIER, FilterParent::Root), None);
    }

    #[test]
    fn recorded_qdiscs_say_where_filters_hang() {
        for (hex, expected) in [
            ("000000000300000000000000ffffffff020000000c0001006e6f717565756500", &[][..]),
            (
                "00000000030000000000fffff1ffffff010000000b000100636c736163740000",
                &[FilterParent::Ingress, FilterParent::Egress],
            ),
            ("000000000500000000000100ffffffff030000000800010068746200", &[FilterParent::Root]),
            ("00000000050000000000fffff1ffffff010000000c000100696e677265737300", &[FilterParent::Ingress]),
        ] {
            assert_eq!(parents(&recorded(hex)), expected, "{hex}");
        }
    }

    #[test]
    fn an_interface_has_the_programs_of_every_xdp_mode() {
        let parts = [LinkXdp::ProgId(0), LinkXdp::SkbProgId(9), LinkXdp::DrvProgId(7), LinkXdp::SkbProgId(7)];
        assert_eq!(xdp(&parts), [7, 9]);
    }
}
