//! The modes: each writes plans down as kernel objects of its kind and brings the kernel there.

pub mod iptables;
