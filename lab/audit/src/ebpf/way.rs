//! The interfaces of the node that a packet and its answer pass.

use std::collections::BTreeSet;

use svclab_sim::network::Outcomes;
use svclab_sim::trace::{DropReason, Event, Trace};
use svclab_snapshot::bpf::ProgramHook;
use svclab_snapshot::network::Network;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    In,
    Out,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Passage<'a> {
    pub(super) direction: Direction,
    pub(super) interface: &'a str,
}

/// Whether packets in this direction pass the hook. The programs of a netkit pair belong to the interface of the node.
pub(super) fn runs(hook: ProgramHook, direction: Direction) -> bool {
    match direction {
        Direction::In => matches!(
            hook,
            ProgramHook::Xdp | ProgramHook::TcIngress | ProgramHook::TcxIngress | ProgramHook::NetkitPeer
        ),
        Direction::Out => {
            matches!(hook, ProgramHook::TcEgress | ProgramHook::TcxEgress | ProgramHook::NetkitPrimary)
        }
    }
}

pub(super) fn passages<'a>(found: &'a Outcomes, node: &str, network: &'a Network) -> BTreeSet<Passage<'a>> {
    let mut named = BTreeSet::new();
    for (_, journey) in &found.ways {
        for trace in std::iter::once(&journey.request).chain(&journey.reply).map(|leg| &leg.trace) {
            one_way(trace, node, &mut named);
        }
    }
    let mut all = BTreeSet::new();
    for (direction, interface) in named {
        all.extend(devices(interface, network).into_iter().map(|interface| Passage { direction, interface }));
    }
    all
}

fn one_way<'a>(trace: &'a Trace, node: &str, passed: &mut BTreeSet<(Direction, &'a str)>) {
    let mut here = false;
    let mut leaving: Vec<&str> = Vec::new();
    for event in trace {
        match event {
            Event::Sent { host, .. } => here = **host == *node,
            Event::Arrived { host, interface, port, .. } => {
                passed.extend(leaving.drain(..).map(|interface| (Direction::Out, interface)));
                here = **host == *node;
                if here {
                    passed.extend(std::iter::once(interface).chain(port).map(|one| (Direction::In, &**one)));
                }
            }
            Event::Routed { interface, .. } if here => {
                leaving.clear();
                leaving.extend(interface.as_deref());
            }
            Event::Bridged { port } if here => leaving.push(port),
            Event::Lost(DropReason::NoNeighbour(_)) => {
                passed.extend(leaving.drain(..).map(|interface| (Direction::Out, interface)));
            }
            _ => {}
        }
    }
}

/// Returns the interface with those below it: a VLAN's, a bond's ports. A port that the archive lacks may be any port
/// of a bridge.
pub(super) fn devices<'a>(interface: &'a str, network: &'a Network) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::from([interface]);
    let mut next = vec![interface];
    while let Some(name) = next.pop() {
        let link = network.links.iter().find(|link| link.name == name);
        let is_bond = link.is_some_and(|link| matches!(link.kind.as_deref(), Some("bond" | "team")));
        let ports = network.links.iter().filter(|link| is_bond && link.controller.as_deref() == Some(name));
        let bridge = network.links.iter().find(|bridge| {
            link.is_none() && bridge.kind.as_deref() == Some("bridge") && is_invented_port(name, &bridge.name)
        });
        let of_bridge = network
            .links
            .iter()
            .filter(|link| bridge.is_some_and(|bridge| link.controller.as_deref() == Some(bridge.name.as_str())));
        // The other end of a pair is no interface below.
        let above = link.filter(|link| !matches!(link.kind.as_deref(), Some("veth" | "netkit")));
        let lower = above.and_then(|link| link.lower.as_deref());
        for name in ports.chain(of_bridge).map(|link| link.name.as_str()).chain(lower) {
            if found.insert(name) {
                next.push(name);
            }
        }
    }
    found
}

/// The machines around a node are on ports named `BRIDGE-portN` if the archive has too few.
fn is_invented_port(name: &str, bridge: &str) -> bool {
    name.strip_prefix(bridge).is_some_and(|rest| rest.starts_with("-port"))
}
