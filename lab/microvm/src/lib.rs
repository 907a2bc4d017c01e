//! A kernel other than the host's: a distribution's, in a small virtual machine under QEMU's software emulation.
//!
//! Left to right: Debian packages ([`apt`]) are unpacked into a [`cache`], and so are kernels ([`bzimage`]) and modules, so that
//! no guest has to; kernel, modules, tools and this project's binaries become one [`image`] that never moves; a [`job`] (scenario files and arguments) is appended to it; [`qemu`]
//! writes the command line and [`launch`] carries it out; inside, [`guest`] is PID 1, runs the job and sends the results
//! over the serial line ([`console`]); a command that talks with the user has a line of its own ([`session`]). Nothing is known here of
//! what runs inside: a program of the caller's, usually the caller itself. `examples/other_kernel.rs` runs itself on Debian's kernel,
//! twice with the same seed, and finds the same nanosecond and the same random bytes.

#![warn(missing_docs)]

pub mod apt;
pub mod bzimage;
pub mod cache;
pub mod console;
pub mod cpio;
pub mod elf;
pub mod error;
pub mod guest;
pub mod image;
pub mod job;
pub mod kernels;
pub mod kvm;
pub mod launch;
pub mod modules;
pub mod probe;
pub mod qemu;
pub mod session;
mod tools;
mod tree;

pub use error::VmError;
