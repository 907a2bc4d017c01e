//! Explains a packet's path on a node, by a snapshot or by bare rules.

mod bare;
mod names;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use svclab_sim::assume::Assumptions;
use svclab_sim::cluster::NodeState;
use svclab_sim::network::{Flow, HostId, Outcomes, PacketVerdict};
use svclab_sim::protocol::Protocol;
use svclab_snapshot::Snapshot;

use crate::cluster::{self, KnownAddresses};
use crate::ebpf::{AttachedPrograms, PassedCall, ProcessPlace};
use crate::error::NodeError;
use crate::judge::destination;
use crate::machines::{Around, Machines, Peer, destinations};

pub use bare::Bare;
pub use names::{NameError, Named};

/// The caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// The node itself.
    Node,
    /// The machine with this address, or the node from this address.
    Address(IpAddr),
    /// A host beyond the default route.
    Outside,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainCall {
    /// The caller.
    pub from: Caller,
    /// The destination.
    pub to: SocketAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The ingress interface. `None`: by the node's route to the caller; unknown in a bare dump.
    pub input: Option<String>,
    /// Answers to unknown matches.
    pub assumptions: Assumptions,
}

/// The node besides its rules.
#[derive(Debug, Clone, Copy)]
pub enum NodeFacts<'a> {
    /// A snapshot with its addresses.
    Snapshot(&'a Snapshot, &'a KnownAddresses),
    /// A bare dump.
    Bare(&'a Bare),
}

impl NodeFacts<'_> {
    fn name(&self, address: IpAddr) -> String {
        match self {
            NodeFacts::Snapshot(_, known) => known.name(address),
            NodeFacts::Bare(_) => address.to_string(),
        }
    }
}

/// The explanation of a call.
#[derive(Debug, Clone)]
pub struct Explained {
    /// The outcomes.
    pub outcomes: Outcomes,
    /// The machines that the outcomes name.
    pub machines: Machines,
    /// Assumptions, in sentences.
    pub assumed: BTreeSet<String>,
    /// Programs on the way that are not read, in sentences: the outcomes hold if they let the packets pass unchanged.
    pub programs: Vec<String>,
}

/// Addresses of hosts outside (RFC 5737, TEST-NET-3; RFC 3849).
const OUTSIDE_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 77));
const OUTSIDE_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x77));

/// Returns an unused address of the same family.
#[must_use]
pub fn outside(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { OUTSIDE_V4 } else { OUTSIDE_V6 }
}

const NAMED: usize = 32;

/// Explains a call. The endpoints that a first walk reaches become machines in a second.
///
/// # Errors
/// The snapshot is malformed, the caller has no route, or the outcome depends on unknown facts.
pub fn explain(node: NodeFacts<'_>, state: &NodeState, call: &ExplainCall) -> Result<Explained, NodeError> {
    let address = match call.from {
        Caller::Node => None,
        Caller::Address(address) => Some(address),
        Caller::Outside => Some(outside(call.to.ip())),
    };
    let input = call.input.as_ref();
    if let Some(input) = input.filter(|_| address.is_none()) {
        let problem = "what the node itself sends comes in by no interface".to_owned();
        return Err(NodeError::Wrong { what: format!("--in {input}"), problem });
    }
    let caller = address.map(|address| Peer { name: node.name(address), addresses: vec![address] });
    let (names, endpoints) = match node {
        NodeFacts::Snapshot(_, known) => (known.names.clone(), known.endpoints.keys().copied().collect()),
        NodeFacts::Bare(_) => Default::default(),
    };
    let crowd: BTreeSet<IpAddr> = endpoints;
    let mut around = Around {
        peers: caller.iter().cloned().collect(),
        crowd: crowd.into_iter().chain(destinations(state)).collect(),
        names,
        assumptions: call.assumptions.clone(),
        sockets: match node {
            NodeFacts::Snapshot(snapshot, _) => cluster::sockets(snapshot),
            NodeFacts::Bare(_) => None,
        },
        announced: match node {
            NodeFacts::Snapshot(snapshot, known) => cluster::announced(snapshot, known),
            NodeFacts::Bare(_) => BTreeSet::new(),
        },
        entry: match node {
            NodeFacts::Snapshot(..) => address.zip(input.cloned()),
            NodeFacts::Bare(_) => None,
        },
        ..Around::default()
    };
    let mut first = walk(node, state, &around, call, caller.as_ref())?;
    // A destination that would be a neighbour is assumed to exist.
    let is_announced = around.announced.contains(&call.to.ip());
    if !is_announced && first.machines.is_neighbour(call.to.ip()) && first.machines.at(call.to.ip()).is_none() {
        around.crowd.insert(call.to.ip());
        first = walk(node, state, &around, call, caller.as_ref())?;
    }
    for address in reached(&first.outcomes).into_iter().take(NAMED) {
        if !around.peers.iter().any(|peer| peer.addresses.contains(&address)) {
            around.peers.push(Peer { name: node.name(address), addresses: vec![address] });
        }
    }
    let more = around.peers.len() > usize::from(caller.is_some());
    let mut explained = if more { walk(node, state, &around, call, caller.as_ref())? } else { first };
    if matches!(call.from, Caller::Outside) {
        explained.assumed.insert(format!("the caller outside has the address {}", outside(call.to.ip())));
    }
    if let NodeFacts::Snapshot(snapshot, _) = node {
        let unread = snapshot.unread.iter().filter(|unread| {
            unread.what.starts_with("rules") || ["sockets.json", "bpf.json"].contains(&unread.what.as_str())
        });
        explained
            .assumed
            .extend(unread.map(|one| format!("{} could not be read ({}): as if there were none", one.what, one.why)));
    }
    if let NodeFacts::Snapshot(snapshot, known) = node {
        let programs = AttachedPrograms::of(snapshot, known);
        explained.assumed.extend(programs.assumed(snapshot));
        let caller = caller_place(address, known, &explained.machines);
        let (machines, found) = (&explained.machines, Some(&explained.outcomes));
        let passed = PassedCall { caller, to: call.to, protocol: call.protocol, machines, found };
        explained.programs = programs.passed(&passed);
    }
    if let (NodeFacts::Snapshot(..), Some(input)) = (node, input) {
        explained
            .assumed
            .insert(format!("the caller's packets come in by {input}; answers go where the node's routes lead"));
    }
    explained.assumed.extend(explained.machines.unanswering(&explained.outcomes));
    let undecided = explained.outcomes.undecided.iter();
    explained.assumed.extend(undecided.map(|part| format!("{part}; it does not matter here")));
    explained.assumed.extend(untouched(&explained, call.to.ip()));
    explained.assumed.extend(sockets(&explained, around.sockets.is_some()));
    Ok(explained)
}

fn caller_place(address: Option<IpAddr>, known: &KnownAddresses, machines: &Machines) -> ProcessPlace {
    let Some(address) = address.filter(|address| !machines.is_own(*address)) else { return ProcessPlace::Node };
    match known.endpoints.get(&address) {
        Some(endpoint) if endpoint.node.as_ref() == Some(&known.node) => ProcessPlace::Pod,
        _ => ProcessPlace::Elsewhere,
    }
}

fn walk(
    node: NodeFacts<'_>,
    state: &NodeState,
    around: &Around,
    call: &ExplainCall,
    caller: Option<&Peer>,
) -> Result<Explained, NodeError> {
    let machines = match node {
        NodeFacts::Snapshot(snapshot, _) => Machines::build(snapshot, state, around)?,
        NodeFacts::Bare(bare) => bare.machines(state, around, caller, call.input.as_deref())?,
    };
    let (from, source) = place(&machines, caller)?;
    let flow = Flow { from, source, source_port: 40_000, to: call.to, protocol: call.protocol };
    let outcomes = machines.network.outcomes(&flow)?;
    Ok(Explained { outcomes, assumed: machines.assumed.clone(), programs: Vec::new(), machines })
}

/// Returns the calling machine, and the source unless the machine chooses it.
fn place(machines: &Machines, caller: Option<&Peer>) -> Result<(HostId, Option<IpAddr>), NodeError> {
    let Some(peer) = caller else { return Ok((machines.node, None)) };
    let address = peer.addresses.first().copied();
    if address.is_some_and(|address| machines.is_own(address)) {
        return Ok((machines.node, address));
    }
    let found = address.and_then(|address| machines.at(address));
    found.map(|host| (host, address)).ok_or_else(|| NodeError::NoWay { name: peer.name.clone() })
}

fn reached(outcomes: &Outcomes) -> BTreeSet<IpAddr> {
    let at = outcomes.outcomes.iter().filter_map(|one| match &one.verdict {
        PacketVerdict::Answered { at, .. }
        | PacketVerdict::Unanswered { at, .. }
        | PacketVerdict::Refused { at, .. } => Some(at.ip()),
        _ => None,
    });
    at.collect()
}

fn untouched(explained: &Explained, to: IpAddr) -> Option<String> {
    let lost = explained.outcomes.outcomes.iter().filter(|one| matches!(one.verdict, PacketVerdict::Dropped { .. }));
    let mut ends = lost.filter_map(|one| destination(&explained.outcomes, &one.verdict));
    let went_on = ends.any(|end| end == to) && explained.machines.at(to).is_none() && !explained.machines.is_own(to);
    went_on.then(|| {
        format!(
            "no machine is known to have {to}: no rule has translated it, and the packet is lost where it would go on"
        )
    })
}

fn sockets(explained: &Explained, of_node: bool) -> Option<String> {
    let taken = explained.outcomes.outcomes.iter().filter_map(|one| match &one.verdict {
        PacketVerdict::Answered { by, .. } | PacketVerdict::Unanswered { by, .. }
            if of_node && *by == explained.machines.node =>
        {
            None
        }
        PacketVerdict::Answered { at, .. } | PacketVerdict::Unanswered { at, .. } => Some(at.to_string()),
        _ => None,
    });
    let taken: BTreeSet<String> = taken.collect();
    let listed: Vec<String> = taken.iter().take(4).cloned().collect();
    let more = if taken.len() > 4 { format!(" and {} more", taken.len() - 4) } else { String::new() };
    (!listed.is_empty()).then(|| format!("a program waits at {}{more}", listed.join(", ")))
}
