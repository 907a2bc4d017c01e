//! Drops unneeded capabilities (capabilities(7)), before other threads start and inherit them.

use caps::{CapSet, Capability, CapsHashSet, errors::CapsError};

/// `net.ipv4.ip_unprivileged_port_start`.
const UNPRIVILEGED: u16 = 1024;

#[derive(Debug, thiserror::Error)]
#[error("cannot give up the capabilities that are not needed: {0}")]
pub struct CapabilitiesError(#[from] CapsError);

/// Drops capabilities that packet filter, conntrack and these ports do not need, also for child processes. Without
/// `CAP_SETPCAP` the bounding set keeps them.
pub fn keep_what_is_needed(ports: impl IntoIterator<Item = u16>) -> Result<(), CapabilitiesError> {
    let needed = needed(ports);
    // Reduces the bounding set first, because that needs a capability. Root's children regain its capabilities.
    let bounding =
        caps::all().into_iter().filter(|capability| !needed.contains(capability)).try_for_each(drop_bounding);
    for set in [CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        let kept = caps::read(None, set)?.intersection(&needed).copied().collect();
        caps::set(None, set, &kept)?;
    }
    bounding.map_err(CapabilitiesError::from)
}

pub fn keep_none() {
    caps::all().into_iter().for_each(|capability| drop(drop_bounding(capability)));
    for set in [CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        let _ = caps::clear(None, set);
    }
}

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
    // Legacy iptables opens a raw socket.
    let mut needed = CapsHashSet::from([Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW]);
    if ports.into_iter().any(|port| port < UNPRIVILEGED) {
        needed.insert(Capability::CAP_NET_BIND_SERVICE);
    }
    needed
}

fn drop_bounding(capability: Capability) -> Result<(), CapsError> {
    // An older kernel lacks some of the library's capabilities.
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
        // Uses a separate thread, since a thread cannot regain dropped capabilities.
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
