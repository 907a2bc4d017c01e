//! What IPVS needs of the kernel once, at the start.

use crate::kernel::sysctl::{self, SysctlError};

const CONNTRACK: &str = "net/ipv4/vs/conntrack";
const CONN_REUSE_MODE: &str = "net/ipv4/vs/conn_reuse_mode";
const EXPIRE_NODEST_CONN: &str = "net/ipv4/vs/expire_nodest_conn";
const EXPIRE_QUIESCENT_TEMPLATE: &str = "net/ipv4/vs/expire_quiescent_template";
const IP_FORWARD: &str = "net/ipv4/ip_forward";
const ARP_IGNORE: &str = "net/ipv4/conf/all/arp_ignore";
const ARP_ANNOUNCE: &str = "net/ipv4/conf/all/arp_announce";

/// Kernel settings and their values, for a kernel of this version (major and minor).
pub fn settings(strict_arp: bool, kernel: (u32, u32)) -> Vec<(&'static str, &'static str)> {
    // Masquerade is conntrack's work, so conntrack must know the connections of IPVS.
    let mut settings = vec![(CONNTRACK, "1")];
    // A client that uses its port again: before 5.9, a mode other than 0 held such a connection up for a second
    // (kubernetes/kubernetes#81775); with 0, it goes to a backend that has left. Since 5.9 the kernel's default does neither
    // (kubernetes/kubernetes#93297). Before 4.1 there is no such setting.
    if ((4, 1)..(5, 9)).contains(&kernel) {
        settings.push((CONN_REUSE_MODE, "0"));
    }
    settings.extend([(EXPIRE_NODEST_CONN, "1"), (EXPIRE_QUIESCENT_TEMPLATE, "1"), (IP_FORWARD, "1")]);
    if strict_arp {
        settings.extend([(ARP_IGNORE, "1"), (ARP_ANNOUNCE, "2")]);
    }
    settings
}

/// Writes them.
///
/// # Errors
/// The first that is refused: IPVS would lead packets wrongly without.
pub fn apply(strict_arp: bool) -> Result<(), SysctlError> {
    let settings = settings(strict_arp, kernel_version().unwrap_or((u32::MAX, 0)));
    settings.into_iter().try_for_each(|(key, value)| sysctl::ensure(key, value))
}

/// Major and minor number of the running kernel.
fn kernel_version() -> Option<(u32, u32)> {
    let release = nix::sys::utsname::uname().ok()?.release().to_string_lossy().into_owned();
    parse_version(&release)
}

fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuse_of_connections_goes_by_the_kernel() {
        for (release, value) in [
            ("3.10.0-1160.el7.x86_64", None),
            ("4.1.0", Some("0")),
            ("5.8.18-generic", Some("0")),
            ("5.9.0", None),
            ("6.1.0-56-cloud-amd64", None),
            ("6.18", None),
        ] {
            let settings = settings(false, parse_version(release).unwrap());
            let found = settings.iter().find(|(key, _)| *key == CONN_REUSE_MODE).map(|(_, value)| *value);
            assert_eq!(found, value, "{release}");
        }
        assert_eq!(parse_version("what"), None);
    }

    #[test]
    fn arp_is_strict_only_if_asked_for() {
        let arp = |strict| settings(strict, (6, 1)).iter().filter(|(key, _)| key.contains("arp")).count();
        assert_eq!((arp(false), arp(true)), (0, 2));
    }
}
