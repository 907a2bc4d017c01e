//! Gives up the rights that proxying does not need (capabilities(7)).
//!
//! Capabilities are a thread's own, and new threads inherit them: this must run before the threads start that are to
//! have no more. Threads that start earlier give up their own.

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

/// Gives up every capability of the calling thread, for a thread that starts before the others and needs none.
pub fn keep_none() {
    // A thread that may not do so keeps what it was given.
    caps::all().into_iter().for_each(|capability| drop(drop_bounding(capability)));
    for set in [CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        let _ = caps::clear(None, set);
    }
}

/// What a process lacks that has to write the packet filter: `None` if it has the capabilities. With the `legacy` commands it needs
/// one more than by netlink.
pub fn lacking(legacy: bool) -> Option<String> {
    let needed = [(Capability::CAP_NET_ADMIN, true), (Capability::CAP_NET_RAW, legacy)];
    let lacks = |capability: Capability| !caps::has_cap(None, CapSet::Effective, capability).unwrap_or(true);
    let lacking: Vec<String> =
        needed.into_iter().filter(|(one, needed)| *needed && lacks(*one)).map(|(one, _)| one.to_string()).collect();
    match lacking.as_slice() {
        [] => None,
        [one] => Some(format!("{one} is missing")),
        all => Some(format!("{} are missing", all.join(" and "))),
    }
}

/// What to do about a packet filter that may not be written.
pub fn advice(legacy: bool) -> String {
    let capabilities = if legacy { "CAP_NET_ADMIN and CAP_NET_RAW" } else { "CAP_NET_ADMIN" };
    match lacking(legacy) {
        Some(lacking) => format!("{lacking}; run as root, or with {capabilities}"),
        None => format!(
            "{capabilities} {} there, but not in the user namespace that owns this network namespace",
            if legacy { "are" } else { "is" }
        ),
    }
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
    fn what_is_missing_is_named() {
        // A thread's capabilities are its own, and what a thread gives up stays with it.
        let told = std::thread::spawn(|| {
            let held = CapsHashSet::from([Capability::CAP_NET_ADMIN]);
            let held: CapsHashSet = caps::read(None, CapSet::Permitted).unwrap().intersection(&held).copied().collect();
            let has_admin = !held.is_empty();
            caps::set(None, CapSet::Effective, &held).unwrap();
            let with_admin = has_admin.then(|| (lacking(false), lacking(true), advice(false)));
            caps::set(None, CapSet::Effective, &CapsHashSet::new()).unwrap();
            (with_admin, lacking(false), advice(true))
        });
        let (with_admin, nothing, advice) = told.join().unwrap();
        if let Some((by_netlink, legacy, advice)) = with_admin {
            assert_eq!((by_netlink, legacy.as_deref()), (None, Some("CAP_NET_RAW is missing")));
            assert!(advice.contains("but not in the user namespace"), "{advice}");
        }
        assert_eq!(nothing.as_deref(), Some("CAP_NET_ADMIN is missing"));
        let both = "CAP_NET_ADMIN and CAP_NET_RAW are missing; run as root, or with CAP_NET_ADMIN and CAP_NET_RAW";
        assert_eq!(advice, both);
    }

    #[test]
    fn low_ports_need_a_right_of_their_own() {
        let network = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW];
        assert_eq!(needed([10256, 10249]), CapsHashSet::from(network));
        assert!(needed([10256, 80]).contains(&Capability::CAP_NET_BIND_SERVICE));
    }
}
