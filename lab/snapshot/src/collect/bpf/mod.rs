//! Lists the programs that may decide about packets and calls, without bpftool: by route netlink (XDP, tc) and bpf(2)
//! (all other hooks, and the names). Attaches and changes nothing.

mod attributes;
mod cgroups;
mod filters;
mod sys;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use futures_util::TryStreamExt;
use nix::libc;

use self::attributes::{ProgramInfo, QUERY_EFFECTIVE, attach_type, program_info};
use self::filters::{FilterParent, Interfaces};
use super::{elsewhere, unread};
use crate::Unread;
use crate::archive::entries::ArchivePart;
use crate::bpf::{AttachedProgram, ProgramHook};

pub(super) async fn read() -> (Option<Vec<AttachedProgram>>, Vec<Unread>) {
    let mut failures = Failures::default();
    let (connection, handle, _) = match rtnetlink::new_connection() {
        Ok(opened) => opened,
        Err(error) => return (None, vec![failed("opening a route netlink socket", &error)]),
    };
    let task = tokio::spawn(connection);
    let listed = by_netlink(&handle).await;
    task.abort();
    let (interfaces, programs) = match listed {
        Ok(listed) => listed,
        Err(error) => return (None, vec![failed("listing filters of tc", &error)]),
    };
    let queried = elsewhere(ArchivePart::Programs.path(), move || {
        let programs = by_bpf(programs, &interfaces, &mut failures);
        (programs, failures)
    });
    match queried.await {
        Ok((programs, failures)) => (Some(programs), failures.unread()),
        Err(unread) => (None, vec![unread]),
    }
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Unread {
    unread(ArchivePart::Programs.path(), format!("{what}: {error}"))
}

async fn by_netlink(handle: &rtnetlink::Handle) -> Result<(Interfaces, Vec<AttachedProgram>), rtnetlink::Error> {
    let links = handle.link().get().execute().try_collect::<Vec<_>>().await?;
    let interfaces = filters::interfaces(&links);
    let mut programs = Vec::new();
    for interface in interfaces.values() {
        let of_xdp = interface.xdp.iter().map(|id| program(ProgramHook::Xdp, *id, "xdp"));
        programs.extend(of_xdp.map(|program| AttachedProgram { interface: Some(interface.name.clone()), ..program }));
    }
    let qdiscs = match handle.qdisc().get().execute().try_collect::<Vec<_>>().await {
        Ok(qdiscs) => qdiscs,
        // The kernel has no traffic control.
        Err(rtnetlink::Error::NetlinkError(refusal)) if refusal.raw_code() == -libc::EOPNOTSUPP => Vec::new(),
        Err(error) => return Err(error),
    };
    for qdisc in &qdiscs {
        let Some(interface) = u32::try_from(qdisc.header.index).ok().and_then(|index| interfaces.get(&index)) else {
            continue;
        };
        for parent in filters::parents(qdisc) {
            let request = handle.traffic_filter(qdisc.header.index).get();
            let request = match parent {
                FilterParent::Ingress => request.ingress(),
                FilterParent::Egress => request.egress(),
                FilterParent::Root => request,
            };
            let found = match request.execute().try_collect::<Vec<_>>().await {
                Ok(found) => found,
                // The interface or its qdisc is gone, or the qdisc takes no filters.
                Err(rtnetlink::Error::NetlinkError(_)) => continue,
                Err(error) => return Err(error),
            };
            programs.extend(found.iter().filter_map(|one| filters::filter(one, *parent, &interface.name, &interfaces)));
        }
    }
    Ok((interfaces, programs))
}

fn program(hook: ProgramHook, id: u32, kind: &str) -> AttachedProgram {
    AttachedProgram {
        hook,
        interface: None,
        cgroup: None,
        id: Some(id),
        kind: kind.to_owned(),
        name: String::new(),
        filter: None,
        actions: Vec::new(),
    }
}

/// The first failure of each kind.
#[derive(Default)]
struct Failures(BTreeMap<&'static str, String>);

impl Failures {
    fn note(&mut self, what: &'static str, why: impl std::fmt::Display) {
        self.0.entry(what).or_insert_with(|| why.to_string());
    }

    /// `None`, and notes it, unless the answer means that nothing can be attached there: without bpf(2) (`ENOSYS`),
    /// of a hook that the kernel does not know (`EINVAL`), or of what is gone (`ENODEV`).
    fn answer<T>(&mut self, (what, needed): Need, answer: io::Result<T>) -> Option<T> {
        match answer {
            Ok(answer) => return Some(answer),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOSYS | libc::EINVAL | libc::ENODEV | libc::ENOENT) => {}
                Some(libc::EPERM) => self.note(what, format!("not permitted without {needed}")),
                _ => self.note(what, error),
            },
        }
        None
    }

    fn unread(self) -> Vec<Unread> {
        self.0.into_iter().map(|(what, why)| failed(what, &why)).collect()
    }
}

/// A request, and the capabilities that it needs (`kernel/bpf/syscall.c`).
type Need = (&'static str, &'static str);

const HOOKS: Need = ("listing programs of tcx, netkit, sk_lookup and cgroups", "root (CAP_BPF and CAP_NET_ADMIN)");
const NAMES: Need = ("reading names of programs", "root (CAP_SYS_ADMIN)");
const CGROUPS: &str = "listing cgroups";

fn by_bpf(
    mut programs: Vec<AttachedProgram>,
    interfaces: &Interfaces,
    failures: &mut Failures,
) -> Vec<AttachedProgram> {
    for (index, interface) in interfaces {
        let netkit: &[ProgramHook] =
            if interface.is_netkit { &[ProgramHook::NetkitPrimary, ProgramHook::NetkitPeer] } else { &[] };
        for hook in [ProgramHook::TcxIngress, ProgramHook::TcxEgress].iter().chain(netkit) {
            let found = attached(*index, *hook, 0, failures).into_iter();
            programs
                .extend(found.map(|program| AttachedProgram { interface: Some(interface.name.clone()), ..program }));
        }
    }
    if let Ok(namespace) = File::open("/proc/thread-self/ns/net") {
        programs.extend(attached(descriptor(&namespace), ProgramHook::SkLookup, 0, failures));
    }
    // Without the permission, every query would fail.
    if failures.0.is_empty() {
        programs.extend(of_cgroups(failures));
    }
    name(&mut programs, failures);
    programs
}

fn descriptor(file: &File) -> u32 {
    u32::try_from(file.as_raw_fd()).unwrap_or(u32::MAX)
}

fn attached(target: u32, hook: ProgramHook, flags: u32, failures: &mut Failures) -> Vec<AttachedProgram> {
    let Some(number) = attach_type(hook) else { return Vec::new() };
    let ids = failures.answer(HOOKS, sys::attached(target, number, flags)).unwrap_or_default();
    ids.into_iter().map(|id| program(hook, id, "")).collect()
}

fn of_cgroups(failures: &mut Failures) -> Vec<AttachedProgram> {
    let Some(mount_point) = cgroups::mount_point() else { return Vec::new() };
    let cgroups = cgroups::below(&mount_point);
    if cgroups.has_more {
        failures.note(CGROUPS, format!("there are more than {}: the others are left out", cgroups.paths.len()));
    }
    let mut programs = Vec::new();
    for (index, (name, path)) in cgroups.paths.iter().enumerate() {
        // A cgroup without processes may be removed meanwhile.
        let Ok(directory) = File::open(path) else { continue };
        let flags = if index == 0 { QUERY_EFFECTIVE } else { 0 };
        for hook in ProgramHook::CGROUP {
            let found = attached(descriptor(&directory), hook, flags, failures).into_iter();
            programs.extend(found.map(|program| AttachedProgram { cgroup: Some(name.clone()), ..program }));
        }
    }
    programs
}

fn name(programs: &mut [AttachedProgram], failures: &mut Failures) {
    let ids: BTreeSet<u32> = programs.iter().filter_map(|program| program.id).collect();
    let infos: BTreeMap<u32, ProgramInfo> = ids
        .into_iter()
        .filter_map(|id| Some((id, program_info(&failures.answer(NAMES, sys::program_info(id))?))))
        .collect();
    for program in programs {
        if let Some(info) = program.id.and_then(|id| infos.get(&id)) {
            program.kind.clone_from(&info.kind);
            program.name.clone_from(&info.name);
        }
    }
}
