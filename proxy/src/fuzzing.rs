//! What comes from outside, read from any bytes: the entry points of the fuzzers in `proxy/fuzz` and of the property tests
//! (`tests/it/fuzzing.rs`). Nothing here may panic, whatever it is given; none of it does I/O.
//!
//! Hidden from the documentation: it is for those alone.

use kube::config::Kubeconfig;

use crate::kernel::{conntrack, ipset, iptables, ipvs, multicast, netlink};
use crate::ruleset::SavedTable;

/// A list, a watch's lines, or a credential plugin's answer.
///
/// # Panics
/// When an answer takes away what the same answer brought: a fault.
pub fn api(bytes: &[u8]) {
    assert!(!crate::source::fuzz_api(bytes), "a list takes away what it shows");
}

/// A file of manifests.
pub fn manifest(bytes: &[u8]) {
    crate::source::fuzz_manifest(bytes);
}

/// A kubeconfig. What it names is not read, nor run.
pub fn kubeconfig(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Kubeconfig::from_yaml(text);
    }
}

/// A configuration of kube-proxy.
pub fn configuration(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        crate::kubeproxy_config::fuzz(text);
    }
}

/// Answers and announcements of the kernel: nf_tables, IPVS, ipset, connection tracking.
pub fn netlink(bytes: &[u8]) {
    netlink::fuzz(bytes, |payload| {
        ipvs::fuzz(payload);
        ipset::fuzz(payload);
    });
    multicast::fuzz(bytes, conntrack::fuzz);
    conntrack::fuzz(bytes);
}

/// A table of the packet filter: what `iptables-save` prints, or what the kernel hands out of the legacy variant's.
pub fn dump(bytes: &[u8]) {
    iptables::fuzz(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = SavedTable::parse(text);
    }
}
