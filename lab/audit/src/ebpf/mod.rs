//! The eBPF programs and tc filters on a call's way. No archive tells what a program does, so a call that passes one
//! cannot be judged by rules.

mod cgroup;
mod owner;
mod way;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use svclab_sim::network::{Outcomes, PacketVerdict};
use svclab_sim::protocol::Protocol;
use svclab_snapshot::Snapshot;
use svclab_snapshot::bpf::{AttachedProgram, ProgramHook};
use svclab_snapshot::network::Network;

use crate::cluster::KnownAddresses;
use crate::machines::Machines;
use cgroup::{CgroupKind, passes_cgroup};
use owner::{can_translate_services, owner};
use way::{Passage, passages};

/// Where a process runs that calls or answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessPlace {
    /// The node itself.
    Node,
    /// A pod of this node.
    Pod,
    /// Another machine.
    Elsewhere,
}

/// A call and its outcomes.
#[derive(Debug, Clone, Copy)]
pub struct PassedCall<'a> {
    /// The caller.
    pub caller: ProcessPlace,
    /// The destination.
    pub to: SocketAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The node and the machines around it.
    pub machines: &'a Machines,
    /// The packet's paths; `None` if it does not leave the caller.
    pub found: Option<&'a Outcomes>,
}

/// The programs that may decide about calls, grouped by hook and program.
#[derive(Debug, Clone)]
pub struct AttachedPrograms<'a> {
    network: Option<&'a Network>,
    known: &'a KnownAddresses,
    groups: Vec<ProgramGroup<'a>>,
    /// Programs on cgroups of single pods.
    of_pods: usize,
}

/// One program at one kind of hook, on all its interfaces and cgroups.
#[derive(Debug, Clone)]
struct ProgramGroup<'a> {
    program: &'a AttachedProgram,
    owner: Option<&'static str>,
    places: BTreeSet<&'a str>,
}

/// Up to so many interfaces of one program are told apart.
const PLACES: usize = 3;

impl ProgramGroup<'_> {
    fn sentence(&self, place: Option<&str>) -> String {
        let owner = self.owner.map(|owner| format!(" ({owner})")).unwrap_or_default();
        format!("{} runs {}{owner}", self.place(place), self.title())
    }

    fn place(&self, place: Option<&str>) -> String {
        let hook = self.program.hook.name();
        let first = self.places.first().copied();
        match (self.program.cgroup.is_some(), place.filter(|_| self.places.len() <= PLACES).or(first)) {
            (true, Some(cgroup)) => format!("{hook} of cgroup {cgroup}"),
            (false, Some(interface)) if self.places.len() > PLACES => {
                format!("{hook} of {interface} and {} more interfaces", self.places.len() - 1)
            }
            (false, Some(interface)) => format!("{hook} of {interface}"),
            (_, None) => format!("{hook} of the node"),
        }
    }

    fn title(&self) -> String {
        let program = self.program;
        match (program.name.as_str(), &program.filter, program.id) {
            ("", Some(filter), _) => format!("the program {filter}"),
            ("", None, Some(id)) => format!("the program with id {id}"),
            ("", None, None) => {
                let actions: BTreeSet<&str> = program.actions.iter().map(|action| action.kind.as_str()).collect();
                let actions = actions.into_iter().collect::<Vec<_>>().join(", ");
                format!("a tc filter ({}: {actions})", program.kind)
            }
            (name, _, _) => format!("the program {name}"),
        }
    }
}

impl<'a> AttachedPrograms<'a> {
    /// Selects the programs that may decide about calls.
    #[must_use]
    pub fn of(snapshot: &'a Snapshot, known: &'a KnownAddresses) -> AttachedPrograms<'a> {
        let network = snapshot.network.as_ref();
        let mut groups: BTreeMap<_, ProgramGroup<'_>> = BTreeMap::new();
        let mut of_pods = 0;
        for program in snapshot.programs.iter().flatten().filter(|program| may_decide(program, network)) {
            if program.cgroup.as_deref().is_some_and(|path| CgroupKind::of(path) == CgroupKind::Other) {
                of_pods += usize::from(program.cgroup.as_deref().is_some_and(cgroup::is_of_pods));
                continue;
            }
            let named = (&program.name, &program.filter, program.id.filter(|_| program.name.is_empty()));
            let actions: Vec<&str> = program.actions.iter().map(|action| action.kind.as_str()).collect();
            // Programs of cgroups are told apart, because each has callers of its own.
            let owner = owner(program, network);
            let key = (program.hook, &program.cgroup, named, &program.kind, actions, owner);
            let group = groups.entry(key).or_insert_with(|| ProgramGroup { program, owner, places: BTreeSet::new() });
            group.places.extend(program.interface.as_deref().or(program.cgroup.as_deref()));
        }
        AttachedPrograms { network, known, groups: groups.into_values().collect(), of_pods }
    }

    /// Says that programs of single pods are ignored, and that older archives list no programs.
    #[must_use]
    pub fn assumed(&self, snapshot: &Snapshot) -> Option<String> {
        let is_unread = snapshot.unread.iter().any(|unread| unread.what == "bpf.json");
        if snapshot.programs.is_none() && !is_unread {
            return Some("no eBPF program is attached: the archive does not list them".to_owned());
        }
        (self.of_pods > 0).then(|| {
            format!(
                "calls of the pods with eBPF programs on their own cgroups are like others' ({} programs)",
                self.of_pods
            )
        })
    }

    /// Names each program that the call passes.
    #[must_use]
    pub fn passed(&self, call: &PassedCall<'_>) -> Vec<String> {
        if self.groups.is_empty() {
            return Vec::new();
        }
        let passages = match (call.found, self.network) {
            (Some(found), Some(network)) => {
                passages(found, call.machines.network.host(call.machines.node).name(), network)
            }
            _ => BTreeSet::new(),
        };
        let answerers = self.answerers(call);
        let passed = |group: &ProgramGroup<'_>| match &group.program.cgroup {
            Some(path) => passes_cgroup(group.program.hook, path, call, &answerers).then_some(None),
            None if group.program.hook == ProgramHook::SkLookup => {
                answerers.contains(&ProcessPlace::Node).then_some(None)
            }
            None => {
                let runs = |passage: &&Passage<'_>| {
                    way::runs(group.program.hook, passage.direction) && group.places.contains(passage.interface)
                };
                passages.iter().find(runs).map(|passage| Some(passage.interface))
            }
        };
        let sentences = self.groups.iter().filter_map(|group| Some(group.sentence(passed(group)?)));
        sentences.collect()
    }

    /// Returns why a call cannot be judged.
    #[must_use]
    pub fn unjudgeable(&self, call: &PassedCall<'_>) -> Option<String> {
        let first = self.passed(call).into_iter().next()?;
        Some(format!("{first}: what it does with calls is not known"))
    }

    fn answerers(&self, call: &PassedCall<'_>) -> BTreeSet<ProcessPlace> {
        let outcomes = call.found.into_iter().flat_map(|found| &found.outcomes);
        let places = outcomes.filter_map(|one| match &one.verdict {
            PacketVerdict::Answered { by, .. }
            | PacketVerdict::Unanswered { by, .. }
            | PacketVerdict::Refused { by, .. }
                if *by == call.machines.node =>
            {
                Some(ProcessPlace::Node)
            }
            PacketVerdict::Answered { at, .. } | PacketVerdict::Unanswered { at, .. } => {
                let endpoint = self.known.endpoints.get(&at.ip())?;
                (endpoint.node.as_ref() == Some(&self.known.node)).then_some(ProcessPlace::Pod)
            }
            _ => None,
        });
        places.collect()
    }

    /// Returns the owner of programs that can translate Services, with those programs and their places.
    #[must_use]
    pub fn translator(&self) -> Option<(&'static str, Vec<String>)> {
        let owner = self.groups.iter().find_map(|group| group.owner.filter(|owner| can_translate_services(owner)))?;
        let own = self.groups.iter().filter(|group| group.owner == Some(owner));
        Some((owner, own.map(|group| format!("{} at {}", group.title(), group.place(None))).collect()))
    }
}

/// Whether the program may redirect, drop or change the packets of calls.
fn may_decide(program: &AttachedProgram, network: Option<&Network>) -> bool {
    match program.hook {
        // Listening and the addresses that a program sees of its peer decide no call.
        ProgramHook::Bind4
        | ProgramHook::Bind6
        | ProgramHook::PostBind4
        | ProgramHook::PostBind6
        | ProgramHook::Recvmsg4
        | ProgramHook::Recvmsg6
        | ProgramHook::Getpeername4
        | ProgramHook::Getpeername6
        | ProgramHook::Other => false,
        // systemd counts and filters traffic of its units (`IPAccounting=`, `IPAddressDeny=`, `RestrictNetworkInterfaces=`).
        _ if program.cgroup.is_some() => !program.name.starts_with("sd_"),
        _ if program.id.is_some() || program.actions.is_empty() => true,
        _ => !program.actions.iter().all(|action| match action.kind.as_str() {
            "police" | "sample" => true,
            // Shaping by an ifb device returns packets to where they were (CNI's bandwidth plugin).
            "mirred" => match &action.redirect {
                Some(to) => network.is_some_and(|network| is_of_kind(network, to, "ifb")),
                None => action.mirror.is_some(),
            },
            _ => false,
        }),
    }
}

fn is_of_kind(network: &Network, interface: &str, kind: &str) -> bool {
    network.links.iter().any(|link| link.name == interface && link.kind.as_deref() == Some(kind))
}

#[cfg(test)]
mod tests;
