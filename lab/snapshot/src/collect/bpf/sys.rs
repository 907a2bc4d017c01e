//! The system call bpf(2). The only file with `unsafe`.
#![allow(unsafe_code, reason = "bpf(2) has no safe form")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::libc;

use super::attributes::{
    BpfAttributes, INFO_SIZE, OBJ_GET_INFO_BY_FD, PROG_GET_FD_BY_ID, PROG_QUERY, object_info, program_by_id, queried,
    query,
};

/// The most programs of one hook that are asked for; the kernel attaches at most 64 (`BPF_CGROUP_MAX_PROGS`,
/// `BPF_MPROG_MAX`).
const PROGRAMS: usize = 64;

fn bpf(command: libc::c_int, attributes: &mut BpfAttributes) -> io::Result<RawFd> {
    let size = size_of::<BpfAttributes>();
    // SAFETY: the kernel reads and writes `size` bytes there. The pointers in it are those of the callers' buffers, which
    // outlive the call.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(RawFd::try_from(answer).unwrap_or(-1)) }
}

/// Returns the ids of the programs at a hook. `target` is the number of an interface, a cgroup or a namespace.
pub(super) fn attached(target: u32, hook: u32, flags: u32) -> io::Result<Vec<u32>> {
    let mut ids = [0u32; PROGRAMS];
    let mut attributes = query(target, hook, flags, ids.as_mut_ptr() as u64, PROGRAMS);
    bpf(PROG_QUERY, &mut attributes)?;
    let count = queried(&attributes).min(PROGRAMS);
    Ok(ids[..count].to_vec())
}

/// Returns the start of a program's `struct bpf_prog_info`.
pub(super) fn program_info(id: u32) -> io::Result<[u8; INFO_SIZE]> {
    let fd = bpf(PROG_GET_FD_BY_ID, &mut program_by_id(id))?;
    // SAFETY: the kernel has just opened the descriptor for this call.
    let program = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut info = [0; INFO_SIZE];
    bpf(OBJ_GET_INFO_BY_FD, &mut object_info(program.as_raw_fd(), info.as_mut_ptr() as u64))?;
    Ok(info)
}
