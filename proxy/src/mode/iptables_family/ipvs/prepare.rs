use crate::kernel::sysctl::{self, SettingChange, SysctlError};

const CONNTRACK: &str = "net/ipv4/vs/conntrack";
const CONN_REUSE_MODE: &str = "net/ipv4/vs/conn_reuse_mode";
const EXPIRE_NODEST_CONN: &str = "net/ipv4/vs/expire_nodest_conn";
const EXPIRE_QUIESCENT_TEMPLATE: &str = "net/ipv4/vs/expire_quiescent_template";
const IP_FORWARD: &str = "net/ipv4/ip_forward";
const ARP_IGNORE: &str = "net/ipv4/conf/all/arp_ignore";
const ARP_ANNOUNCE: &str = "net/ipv4/conf/all/arp_announce";

/// Returns IPVS mode's kernel settings. `kernel`: major, minor.
pub fn settings(strict_arp: bool, kernel: (u32, u32)) -> Vec<(&'static str, &'static str)> {
    // conntrack masquerades, so it must know IPVS's connections.
    let mut settings = vec![(CONNTRACK, "1")];
    // `conn_reuse_mode`, for clients that reuse their port. Before 5.9, modes other than 0 delay the connection by a
    // second (kubernetes/kubernetes#81775), and mode 0 sends it to a removed backend. Since 5.9 the default does
    // neither (kubernetes/kubernetes#93297). The setting exists since 4.1.
    if ((4, 1)..(5, 9)).contains(&kernel) {
        settings.push((CONN_REUSE_MODE, "0"));
    }
    settings.extend([(EXPIRE_NODEST_CONN, "1"), (EXPIRE_QUIESCENT_TEMPLATE, "1"), (IP_FORWARD, "1")]);
    if strict_arp {
        settings.extend([(ARP_IGNORE, "1"), (ARP_ANNOUNCE, "2")]);
    }
    settings
}

/// Writes or tries the settings. If a write fails, IPVS would send packets to wrong destinations.
pub fn apply(strict_arp: bool, change: SettingChange) -> Result<(), SysctlError> {
    let settings = settings(strict_arp, kernel_version().unwrap_or((u32::MAX, 0)));
    settings.into_iter().try_for_each(|(key, value)| sysctl::ensure(key, value, change))
}

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
    fn conn_reuse_mode_depends_on_the_kernel() {
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
    fn arp_is_strict_only_if_configured() {
        let arp = |strict| settings(strict, (6, 1)).iter().filter(|(key, _)| key.contains("arp")).count();
        assert_eq!((arp(false), arp(true)), (0, 2));
    }
}
