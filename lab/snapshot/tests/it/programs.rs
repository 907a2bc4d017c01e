//! Attaches programs that pass every packet and call.
#![allow(unsafe_code, reason = "bpf(2) has no safe form")]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use futures_util::StreamExt;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcHeader, TcMessage, TcOption,
};
use svclab_snapshot::Snapshot;
use svclab_snapshot::bpf::ProgramHook;
use tempfile::TempDir;

const PROG_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;

/// A program of `enum bpf_prog_type`, and where it is attached by `enum bpf_attach_type`.
struct Wanted {
    kind: u32,
    attach_type: u32,
    name: &'static str,
    hook: ProgramHook,
}

const CLASSIFIER: u32 = 3;
const OF_INTERFACE: [Wanted; 3] = [
    Wanted { kind: CLASSIFIER, attach_type: 46, name: "cil_from_contai", hook: ProgramHook::TcxIngress },
    Wanted { kind: CLASSIFIER, attach_type: 47, name: "cil_to_contain", hook: ProgramHook::TcxEgress },
    Wanted { kind: 6, attach_type: 37, name: "xdp_pass", hook: ProgramHook::Xdp },
];
const OF_CGROUP: [Wanted; 2] = [
    Wanted { kind: 18, attach_type: 10, name: "cil_sock4_conn", hook: ProgramHook::Connect4 },
    Wanted { kind: 8, attach_type: 1, name: "sd_fw_egress", hook: ProgramHook::CgroupEgress },
];
const OF_TC: &str = "handle_ingress";
const OF_FILTER: &str = "test.o:[from-container]";

/// The links end with their descriptors, the filter with the namespace.
pub struct Attached {
    interface: &'static str,
    links: Vec<(&'static Wanted, OwnedFd)>,
    cgroup: Cgroup,
}

/// `None` without permission for bpf(2).
pub async fn attach(index: u32, interface: &'static str) -> Option<Attached> {
    let program = match load(CLASSIFIER, OF_TC) {
        Ok(program) => program,
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => return None,
        Err(error) => panic!("loading a program: {error}"),
    };
    filter(index, &program).await;
    let cgroup = Cgroup::new();
    let targets = OF_INTERFACE.iter().map(|wanted| (wanted, index));
    let fd = cgroup.directory.as_raw_fd().try_into().unwrap();
    let targets = targets.chain(OF_CGROUP.iter().map(|wanted| (wanted, fd)));
    let link = |(wanted, target): (&'static Wanted, u32)| {
        let program = load(wanted.kind, wanted.name).unwrap();
        let link = bpf(LINK_CREATE, &[program.as_raw_fd().try_into().unwrap(), target, wanted.attach_type, 0]);
        // Links of tcx are newer than kernel 6.5.
        let link = link.inspect_err(|error| assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{}", wanted.name));
        Some((wanted, link.ok()?))
    };
    let links = targets.filter_map(link).collect();
    Some(Attached { interface, links, cgroup })
}

impl Attached {
    pub fn are_found(&self, snapshot: &Snapshot) {
        let all = snapshot.programs.as_ref().unwrap();
        assert!(self.links.len() >= 3, "{all:?}");
        for (wanted, _) in &self.links {
            let found =
                all.iter().find(|one| one.name == wanted.name).unwrap_or_else(|| panic!("{}: {all:?}", wanted.name));
            assert_eq!(found.hook, wanted.hook);
            match &found.cgroup {
                Some(path) => assert_eq!(*path, format!("/{}", self.cgroup.name)),
                None => assert_eq!(found.interface.as_deref(), Some(self.interface)),
            }
            assert!(found.id.is_some(), "{found:?}");
        }
        let found = all.iter().find(|one| one.name == OF_TC).unwrap();
        assert_eq!((found.hook, found.interface.as_deref()), (ProgramHook::TcIngress, Some(self.interface)));
        assert_eq!((found.kind.as_str(), found.filter.as_deref()), ("sched_cls", Some(OF_FILTER)));
    }
}

/// A cgroup of version 2, in a mount of its own.
struct Cgroup {
    mount: TempDir,
    name: String,
    directory: File,
}

impl Cgroup {
    fn new() -> Cgroup {
        let at = tempfile::tempdir().unwrap();
        mount(Some("cgroup2"), at.path(), Some("cgroup2"), MsFlags::empty(), None::<&str>).unwrap();
        let name = format!("svclab-test-{}", std::process::id());
        let path: PathBuf = at.path().join(&name);
        fs::create_dir(&path).unwrap();
        Cgroup { mount: at, name, directory: File::open(path).unwrap() }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.mount.path().join(&self.name));
        let _ = umount2(self.mount.path(), MntFlags::MNT_DETACH);
    }
}

/// Loads `r0 = 1; exit`, which all of these hooks take for an answer that lets pass (`XDP_ABORTED` is 0).
fn load(kind: u32, name: &str) -> io::Result<OwnedFd> {
    let (instructions, license) = ([0x0000_0001_0000_00b7u64, 0x95], c"GPL");
    let [code, license] =
        [instructions.as_ptr() as u64, license.as_ptr() as u64].map(|at| [at as u32, (at >> 32) as u32]);
    let mut text = [0; 16];
    text[..name.len()].copy_from_slice(name.as_bytes());
    let words = text.chunks(4).map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()));
    let expected = OF_CGROUP.iter().find(|wanted| wanted.name == name).map_or(0, |wanted| wanted.attach_type);
    let mut attributes = vec![kind, 2, code[0], code[1], license[0], license[1], 0, 0, 0, 0, 0, 0];
    attributes.extend(words);
    attributes.extend([0, expected]);
    bpf(PROG_LOAD, &attributes)
}

/// Calls bpf(2) with the fields of `union bpf_attr` as words.
fn bpf(command: i32, words: &[u32]) -> io::Result<OwnedFd> {
    let mut attributes = [0u32; 32];
    attributes[..words.len()].copy_from_slice(words);
    // SAFETY: the kernel reads the words, whose pointers are valid.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of_val(&attributes)) };
    let fd = i32::try_from(fd).unwrap();
    // SAFETY: the kernel has just opened the descriptor.
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

async fn filter(index: u32, program: &OwnedFd) {
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    let mut header = TcHeader { index: index.try_into().unwrap(), ..TcHeader::default() };
    (header.parent, header.handle) = (TcHandle::CLSACT, TcHandle { major: 0xffff, minor: 0 });
    let clsact = TcMessage::from_parts(header.clone(), vec![TcAttribute::Kind("clsact".to_owned())]);
    send(&handle, RouteNetlinkMessage::NewQueueDiscipline(clsact)).await;
    header.parent.minor = TcHandle::MIN_INGRESS;
    header.handle = TcHandle::UNSPEC;
    // Priority 1, and `ETH_P_ALL` in network order.
    header.info = 1 << 16 | u32::from(3u16.to_be());
    let options = [
        TcFilterBpfOption::ProgFd(program.as_raw_fd().try_into().unwrap()),
        TcFilterBpfOption::ProgName(OF_FILTER.to_owned()),
        TcFilterBpfOption::Flags(TcBpfFlags::DirectAction),
    ];
    let options = TcAttribute::Options(options.map(TcOption::Bpf).into());
    let filter = TcMessage::from_parts(header, vec![TcAttribute::Kind("bpf".to_owned()), options]);
    send(&handle, RouteNetlinkMessage::NewTrafficFilter(filter)).await;
}

async fn send(handle: &rtnetlink::Handle, message: RouteNetlinkMessage) {
    let mut message = NetlinkMessage::from(message);
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
    let mut answers = handle.clone().request(message).unwrap();
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(error) = answer.payload {
            assert_eq!(error.raw_code(), 0, "{error}");
        }
    }
}
