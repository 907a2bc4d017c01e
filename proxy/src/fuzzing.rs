//! For `proxy/fuzz` and `tests/it/fuzzing.rs`: parsers of untrusted input, which must not panic and do no I/O.

use kube::config::Kubeconfig;

use crate::kernel::{conntrack, ipset, iptables, ipvs, netlink};
use crate::ruleset::SavedTable;

/// Parses a list, a watch and a credential plugin's output.
///
/// # Panics
/// If a list removes an object that it contains, which is a bug.
pub fn api(bytes: &[u8]) {
    assert!(!crate::source::fuzz_api(bytes), "a list takes away what it shows");
}

/// Parses a list and a watch in protobuf.
///
/// # Panics
/// If a list removes an object that it contains, which is a bug.
pub fn protobuf(bytes: &[u8]) {
    assert!(!crate::source::fuzz_protobuf(bytes), "a list takes away what it shows");
}

/// Decodes a state file.
///
/// # Panics
/// If what it has changes when it is encoded, which is a bug.
pub fn state_file(bytes: &[u8]) {
    assert!(!crate::source::fuzz_state_file(bytes), "a state file is not what was written");
}

pub fn manifest(bytes: &[u8]) {
    crate::source::fuzz_manifest(bytes);
}

/// Parses a kubeconfig; neither reads the files nor runs the plugin that it names.
pub fn kubeconfig(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Kubeconfig::from_yaml(text);
    }
}

pub fn configuration(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        crate::kubeproxy_config::fuzz(text);
    }
}

pub fn netlink(bytes: &[u8]) {
    netlink::fuzz(bytes, |payload| {
        ipvs::fuzz(payload);
        ipset::fuzz(payload);
    });
    conntrack::fuzz(bytes);
}

/// Parses `iptables-save` output and the kernel's tables of the legacy variant.
pub fn dump(bytes: &[u8]) {
    iptables::fuzz(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = SavedTable::parse(text);
    }
}
