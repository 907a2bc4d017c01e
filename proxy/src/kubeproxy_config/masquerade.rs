use std::net::IpAddr;

use ipnet::IpNet;

use super::check::{Checked, wrong};
use crate::config::{MasqueradeSource, Mode};
use crate::model::{Family, parse_ip};

/// `noMasqueradeCIDRs`. The modes that refuse it cannot give the node's own packets a source that endpoints can reply
/// to without masquerade.
pub(super) fn exceptions(entries: &[String], mode: Mode) -> Checked<Vec<IpNet>> {
    let field = "noMasqueradeCIDRs";
    let mut ranges = Vec::new();
    for entry in entries.iter().map(|entry| entry.trim()) {
        match entry.parse::<IpNet>() {
            Ok(range) => ranges.push(range.trunc()),
            Err(_) => {
                return wrong(field, format!("{entry:?} is no range such as 10.244.0.0/16 or fd00:244::/64"));
            }
        }
    }
    match mode {
        Mode::Iptables | Mode::Nftables => Ok(ranges),
        _ if ranges.is_empty() => Ok(ranges),
        Mode::Ipvs => {
            let why = "in IPVS mode the node's own packets have the service's address as their source, to which no endpoint replies";
            wrong(field, format!("{why}; use mode iptables or nftables"))
        }
        Mode::Userspace => wrong(
            field,
            "in userspace mode this process opens the connections to endpoints, and nothing is masqueraded",
        ),
    }
}

/// `masqueradeSource`.
pub(super) fn source(text: &str, mode: Mode) -> Checked<MasqueradeSource> {
    let field = "masqueradeSource";
    let source = match text.trim() {
        "" => return Ok(MasqueradeSource::OutgoingInterface),
        "primary" => MasqueradeSource::Primary,
        list => MasqueradeSource::Addresses(addresses(field, list)?),
    };
    if mode == Mode::Userspace {
        let why = "in userspace mode this process opens the connections to endpoints, and routes choose their source";
        return wrong(field, why);
    }
    Ok(source)
}

fn addresses(field: &'static str, list: &str) -> Checked<Vec<IpAddr>> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for part in list.split(',').map(str::trim) {
        let Some(address) = parse_ip(part) else {
            return wrong(field, format!("{part:?} is neither primary nor an IP address"));
        };
        if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
            return wrong(field, format!("{address} cannot be a packet's source on a network"));
        }
        if addresses.iter().any(|other| Family::of(other) == Family::of(&address)) {
            return wrong(field, "takes at most one address per family");
        }
        addresses.push(address);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_primary_or_an_address_per_family() {
        let read = |text: &str| source(text, Mode::Nftables).map_err(|problem| problem.problem);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(read(""), Ok(MasqueradeSource::OutgoingInterface));
        assert_eq!(read("primary"), Ok(MasqueradeSource::Primary));
        let both = MasqueradeSource::Addresses(vec![ip("172.18.0.2"), ip("fd00::2")]);
        assert_eq!(read("172.18.0.2, fd00::2"), Ok(both));
        for (text, problem) in [
            ("eth0", "neither primary nor an IP address"),
            ("172.18.0.2,", "\"\" is neither"),
            ("172.18.0.2,172.18.0.3", "at most one address per family"),
            ("127.0.0.1", "cannot be a packet's source"),
            ("0.0.0.0", "cannot be a packet's source"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(problem), "{text}: {said}");
        }
    }

    #[test]
    fn modes_that_cannot_refuse() {
        let ranges = ["10.244.7.1/16".to_owned()];
        assert_eq!(exceptions(&ranges, Mode::Iptables).unwrap(), ["10.244.0.0/16".parse().unwrap()]);
        assert!(exceptions(&ranges, Mode::Ipvs).unwrap_err().problem.contains("use mode iptables or nftables"));
        assert!(exceptions(&ranges, Mode::Userspace).is_err());
        assert!(exceptions(&["x".to_owned()], Mode::Iptables).unwrap_err().problem.contains("no range"));
        assert!(source("primary", Mode::Ipvs).is_ok() && source("primary", Mode::Userspace).is_err());
        assert!(exceptions(&[], Mode::Ipvs).is_ok() && source("", Mode::Userspace).is_ok());
    }
}
