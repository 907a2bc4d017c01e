//! Runs a program on a distribution's kernel, in a small virtual machine under QEMU.
//!
//! [`apt`] fetches Debian packages into a [`cache`], where [`bzimage`] and [`modules`] unpack them; kernel, modules,
//! tools and programs become an [`image`], followed by a [`job`]; [`qemu`] writes the command line, [`launch`] runs it.
//! In the guest [`guest`] is PID 1, runs the job and sends results over the serial line ([`console`]); an interactive
//! command has its own line ([`session`]). In `examples/other_kernel.rs` equal seeds give equal times and random bytes.

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
