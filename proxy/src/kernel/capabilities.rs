//! Gives up the rights that proxying does not need (capabilities(7)).
//!
//! Capabilities are a thread's own, and new threads inherit them: this must run before there is a second thread.

use caps::{CapSet, Capability, CapsHashSet, errors::CapsError};

/// Ports below this need a capability (`net.ipv4.ip_unprivileged_port_start`, by default).
const UNPRIVILEGED: u16 = 1024;

/// Rights that could not be given up.
#[derive(Debug, thiserror::Error)]
#[error("cannot give up the capabilities that are not needed: {0}")]
pub struct CapabilitiesError(#[from] CapsError);

/// Keeps what the packet filter and conntrack need, and what listening on these ports needs; gives up everything
/// else, for this process and for the commands that it runs.
///
/// # Errors
/// When the kernel refuses, as it does for a process that has no `CAP_SETPCAP` and more than it needs. The rest is
/// given up nevertheless.
pub fn keep_what_is_needed(ports: impl IntoIterator<Item = u16>) -> Result<(), CapabilitiesError> {
    let needed = needed(ports);
    // What is not in this set, children of root's do not get back. First: dropping from it is a right of its own.
    let bounding =
        caps::all().into_iter().filter(|capability| !needed.contains(capability)).try_for_each(drop_bounding);
    for set in [CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        let kept = caps::read(None, set)?.intersection(&needed).copied().collect();
        caps::set(None, set, &kept)?;
    }
    bounding.map_err(CapabilitiesError::from)
}

fn needed(ports: impl IntoIterator<Item = u16>) -> CapsHashSet {
    // RAW is for legacy iptables, which opens a raw socket.
    let mut needed = CapsHashSet::from([Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW]);
    if ports.into_iter().any(|port| port < UNPRIVILEGED) {
        needed.insert(Capability::CAP_NET_BIND_SERVICE);
    }
    needed
}

fn drop_bounding(capability: Capability) -> Result<(), CapsError> {
    // The kernel may be older than the library, and not know a capability.
    if caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false) {
        caps::drop(None, CapSet::Bounding, capability)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_ports_need_a_right_of_their_own() {
        let network = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW];
        assert_eq!(needed([10256, 10249]), CapsHashSet::from(network));
        assert!(needed([10256, 80]).contains(&Capability::CAP_NET_BIND_SERVICE));
    }
}
