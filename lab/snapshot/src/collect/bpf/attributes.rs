//! The layout of `union bpf_attr` and `struct bpf_prog_info` (`include/uapi/linux/bpf.h`).

use std::os::fd::RawFd;

use crate::bpf::ProgramHook;

/// Commands (`enum bpf_cmd`).
pub(super) const PROG_GET_FD_BY_ID: i32 = 13;
pub(super) const OBJ_GET_INFO_BY_FD: i32 = 15;
pub(super) const PROG_QUERY: i32 = 16;

/// `BPF_F_QUERY_EFFECTIVE`: also returns the programs of ancestor cgroups.
pub(super) const QUERY_EFFECTIVE: u32 = 1;

/// Older kernels accept a longer union than theirs if the rest is zero (`bpf_check_uarg_tail_zero`).
pub(super) type BpfAttributes = [u8; 64];

/// Up to the name: the kernel writes no more than it is asked for.
pub(super) const INFO_SIZE: usize = 80;

fn put<const N: usize>(attributes: &mut BpfAttributes, at: usize, value: [u8; N]) {
    attributes[at..at + N].copy_from_slice(&value);
}

pub(super) fn query(target: u32, hook: u32, flags: u32, ids: u64, count: usize) -> BpfAttributes {
    let mut attributes = [0; 64];
    put(&mut attributes, 0, target.to_ne_bytes());
    put(&mut attributes, 4, hook.to_ne_bytes());
    put(&mut attributes, 8, flags.to_ne_bytes());
    put(&mut attributes, 16, ids.to_ne_bytes());
    put(&mut attributes, 24, u32::try_from(count).unwrap_or(u32::MAX).to_ne_bytes());
    attributes
}

/// Returns the number of programs that the kernel has written.
pub(super) fn queried(attributes: &BpfAttributes) -> usize {
    number(attributes, 24) as usize
}

pub(super) fn program_by_id(id: u32) -> BpfAttributes {
    let mut attributes = [0; 64];
    put(&mut attributes, 0, id.to_ne_bytes());
    attributes
}

pub(super) fn object_info(fd: RawFd, info: u64) -> BpfAttributes {
    let mut attributes = [0; 64];
    put(&mut attributes, 0, fd.to_ne_bytes());
    put(&mut attributes, 4, u32::try_from(INFO_SIZE).unwrap_or(0).to_ne_bytes());
    put(&mut attributes, 8, info.to_ne_bytes());
    attributes
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// A program's type and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProgramInfo {
    pub(super) kind: String,
    pub(super) name: String,
}

pub(super) fn program_info(info: &[u8; INFO_SIZE]) -> ProgramInfo {
    let name = info[64..].split(|byte| *byte == 0).next().unwrap_or_default();
    ProgramInfo { kind: kind(number(info, 0)), name: String::from_utf8_lossy(name).into_owned() }
}

/// Names of `enum bpf_prog_type` as bpftool prints them.
fn kind(number: u32) -> String {
    let name = match number {
        3 => "sched_cls",
        4 => "sched_act",
        6 => "xdp",
        8 => "cgroup_skb",
        9 => "cgroup_sock",
        18 => "cgroup_sock_addr",
        28 => "ext",
        30 => "sk_lookup",
        other => return format!("type {other}"),
    };
    name.to_owned()
}

/// Returns the hook's number in `enum bpf_attach_type`. XDP and tc are listed by route netlink instead.
pub(super) fn attach_type(hook: ProgramHook) -> Option<u32> {
    Some(match hook {
        ProgramHook::CgroupIngress => 0,
        ProgramHook::CgroupEgress => 1,
        ProgramHook::SockCreate => 2,
        ProgramHook::Bind4 => 8,
        ProgramHook::Bind6 => 9,
        ProgramHook::Connect4 => 10,
        ProgramHook::Connect6 => 11,
        ProgramHook::PostBind4 => 12,
        ProgramHook::PostBind6 => 13,
        ProgramHook::Sendmsg4 => 14,
        ProgramHook::Sendmsg6 => 15,
        ProgramHook::Recvmsg4 => 19,
        ProgramHook::Recvmsg6 => 20,
        ProgramHook::Getpeername4 => 29,
        ProgramHook::Getpeername6 => 30,
        ProgramHook::SkLookup => 36,
        ProgramHook::TcxIngress => 46,
        ProgramHook::TcxEgress => 47,
        ProgramHook::NetkitPrimary => 54,
        ProgramHook::NetkitPeer => 55,
        ProgramHook::Xdp | ProgramHook::TcIngress | ProgramHook::TcEgress | ProgramHook::Other => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux 6.18 wrote on x86-64 for a `sched_cls` program of two instructions.
    #[cfg(target_endian = "little")]
    #[test]
    fn a_recorded_program_is_read() {
        let mut info = [0; INFO_SIZE];
        info[..8].copy_from_slice(&[3, 0, 0, 0, 98, 0, 0, 0]);
        info[8..16].copy_from_slice(&[0xa0, 0x4f, 0x5e, 0xef, 0x06, 0xa7, 0xf5, 0x55]);
        info[16..24].copy_from_slice(&[19, 0, 0, 0, 16, 0, 0, 0]);
        info[64..79].copy_from_slice(b"cil_from_contai");
        let expected = ProgramInfo { kind: "sched_cls".to_owned(), name: "cil_from_contai".to_owned() };
        assert_eq!(program_info(&info), expected);
        info[0] = 200;
        info[64] = 0;
        assert_eq!(program_info(&info), ProgramInfo { kind: "type 200".to_owned(), name: String::new() });
    }

    #[test]
    fn a_query_has_the_fields_of_the_kernel() {
        let attributes = query(7, 46, QUERY_EFFECTIVE, 0x0102_0304_0506_0708, 64);
        let fields = [(0, 7), (4, 46), (8, 1), (12, 0), (24, 64), (28, 0)];
        for (at, value) in fields {
            assert_eq!(number(&attributes, at), value, "{at}");
        }
        assert_eq!(attributes[16..24], 0x0102_0304_0506_0708u64.to_ne_bytes());
        assert_eq!(queried(&attributes), 64);
    }
}
