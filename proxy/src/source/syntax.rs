//! The syntax of names, labels and addresses by `apimachinery/pkg/util/validation`, as published in the API reference
//! ("Object Names and IDs", "Labels and Selectors"). Accepted texts are ASCII, so they are safe in kernel rules.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::problem::quote;

/// The error is a sentence about the value.
pub(super) type Checked<T = ()> = Result<T, String>;

/// In bytes (RFC 1035, 2.3.4).
const LABEL: usize = 63;
/// In bytes (Kubernetes' limit for DNS subdomains).
const SUBDOMAIN: usize = 253;
/// The longest address, in bytes (`INET6_ADDRSTRLEN` without its NUL).
const ADDRESS: usize = 45;

/// Checks an RFC 1123 label: a namespace, a port or, since Kubernetes relaxed its rule, a Service.
pub(super) fn label(text: &str) -> Checked {
    if text.len() <= LABEL && is_label(text) {
        return Ok(());
    }
    Err(format!(
        "{} is not a DNS label (1-63 lower-case letters, digits and '-', beginning and ending with a letter or digit)",
        quote(text)
    ))
}

/// Checks an RFC 1123 subdomain: a Node or an EndpointSlice.
pub(super) fn subdomain(text: &str) -> Checked {
    if text.len() <= SUBDOMAIN && text.split('.').all(is_label) {
        return Ok(());
    }
    Err(format!(
        "{} is not a DNS name (1-253 lower-case letters, digits, '-' and '.', each part beginning and ending with a \
         letter or digit)",
        quote(text)
    ))
}

pub(super) fn label_value(text: &str) -> Checked {
    if text.is_empty() || is_name_part(text) {
        return Ok(());
    }
    Err(format!(
        "{} is not a label value (at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or \
         digit)",
        quote(text)
    ))
}

/// Checks `[DNS subdomain/]name`, such as a label's key.
pub(super) fn qualified_name(text: &str) -> Checked {
    let fits = match text.split_once('/') {
        Some((prefix, name)) => subdomain(prefix).is_ok() && is_name_part(name),
        None => is_name_part(text),
    };
    if fits {
        return Ok(());
    }
    Err(format!("{} is not a qualified name ([DNS name/]name)", quote(text)))
}

/// Checks a service name by RFC 6335, 5.1, in lower case.
pub(super) fn container_port_name(text: &str) -> Checked {
    let fits =
        text.len() <= 15 && is_label(text) && !text.contains("--") && text.bytes().any(|b| b.is_ascii_lowercase());
    if fits {
        return Ok(());
    }
    Err(format!(
        "{} is not a port name (1-15 lower-case letters, digits and '-', with at least one letter)",
        quote(text)
    ))
}

pub(super) fn port(number: i32) -> Checked {
    if (1..=65535).contains(&number) {
        return Ok(());
    }
    Err(format!("{number} is not a port (1-65535)"))
}

pub(super) fn protocol(text: &str) -> Checked {
    one_of(text, &["TCP", "UDP", "SCTP"])
}

pub(super) fn one_of(text: &str, words: &[&str]) -> Checked {
    if words.contains(&text) {
        return Ok(());
    }
    Err(format!("{} is not one of {}", quote(text), words.join(", ")))
}

/// As in Kubernetes' older fields, IPv4 octets lose leading zeros (`010.0.0.1` is `10.0.0.1`), and IPv4-mapped IPv6
/// addresses become IPv4.
pub(super) fn address(text: &str) -> Checked<IpAddr> {
    let parsed = (text.len() <= ADDRESS).then(|| text.parse().ok().or_else(|| zero_padded(text))).flatten();
    parsed.map(|ip: IpAddr| ip.to_canonical()).ok_or_else(|| format!("{} is not an IP address", quote(text)))
}

/// Parses `address/length`, trims blanks and clears host bits.
pub(super) fn network(text: &str) -> Checked<IpNet> {
    let wrong = || format!("{} is not a network (address/length)", quote(text));
    let (ip, length) = text.trim().split_once('/').ok_or_else(wrong)?;
    let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    // IPv4-mapped networks are rejected: their length counts IPv6 bits.
    let mapped = ip.contains(':') && address(ip).is_ok_and(|ip| ip.is_ipv4());
    if !digits || mapped {
        return Err(wrong());
    }
    let length = length.parse().map_err(|_| wrong())?;
    let net = IpNet::new(address(ip).map_err(|_| wrong())?, length).map_err(|_| wrong())?;
    Ok(net.trunc())
}

/// Rejects addresses forbidden for endpoints and external IPs.
pub(super) fn not_special(ip: IpAddr) -> Checked {
    let what = match ip {
        _ if ip.is_unspecified() => "the unspecified address",
        _ if ip.is_loopback() => "a loopback address",
        IpAddr::V4(v4) if v4.is_link_local() => "a link-local address",
        IpAddr::V6(v6) if v6.is_unicast_link_local() => "a link-local address",
        IpAddr::V4(v4) if v4.octets()[..3] == [224, 0, 0] => "a link-local multicast address",
        IpAddr::V6(v6) if v6.segments()[0] & 0xff0f == 0xff02 => "a link-local multicast address",
        _ => return Ok(()),
    };
    Err(format!("{ip} is {what}"))
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    bytes.len() <= LABEL && edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner)
}

fn zero_padded(text: &str) -> Option<IpAddr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        for good in ["a", "web-1", "0a", &"x".repeat(63)] {
            assert_eq!(label(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "a b", "a\n", "a\"", "ä", "web -j ACCEPT", &"x".repeat(64)] {
            assert!(label(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn other_names() {
        assert!(subdomain("a.b-c.0").is_ok());
        for bad in ["", ".", "a.", "a..b", "a.-b", &"a.".repeat(127)] {
            assert!(subdomain(bad).is_err(), "{bad:?}");
        }
        assert!(label_value("").is_ok() && label_value("A_b.c-1").is_ok());
        assert!(label_value("_a").is_err() && label_value("a b").is_err());
        assert!(qualified_name("kubernetes.io/service-name").is_ok());
        assert!(qualified_name("a/b/c").is_err() && qualified_name("/b").is_err());
        assert!(container_port_name("http-web").is_ok());
        for bad in ["80", "a--b", "toolongforaportname", ""] {
            assert!(container_port_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn addresses_come_out_canonical() {
        for (text, ip) in [
            ("10.0.0.1", "10.0.0.1"),
            ("010.0.000.01", "10.0.0.1"),
            ("::FFFF:10.0.0.1", "10.0.0.1"),
            ("2001:DB8:0::1", "2001:db8::1"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), ip, "{text}");
        }
        for bad in [
            "",
            "10.0.0",
            "10.0.0.256",
            "10.0.0.1 ",
            " 10.0.0.1",
            "10.0.0.1/32",
            "0x0a.0.0.1",
            "fe80::1%eth0",
            "1.2.3.4.5",
            "[::1]",
            "localhost",
            "10.0.0.1\n",
            "+1.2.3.4",
            "::ffff:010.0.0.1",
        ] {
            assert!(address(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn networks_come_out_masked() {
        for (text, net) in
            [(" 10.1.2.3/8\t", "10.0.0.0/8"), ("0.0.0.0/0", "0.0.0.0/0"), ("2001:db8::1/32", "2001:db8::/32")]
        {
            assert_eq!(network(text).unwrap().to_string(), net, "{text:?}");
        }
        for bad in [
            "",
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "/8",
            "10.0.0.0/8/8",
            "::ffff:10.0.0.0/104",
            "10.0.0.0/8 -j ACCEPT",
        ] {
            assert!(network(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn special_addresses() {
        for bad in ["0.0.0.0", "127.0.0.9", "169.254.1.1", "224.0.0.5", "::", "::1", "fe80::1", "ff02::1"] {
            assert!(not_special(bad.parse().unwrap()).is_err(), "{bad}");
        }
        for good in ["10.0.0.1", "224.0.1.1", "fd00::1", "ff05::1"] {
            assert!(not_special(good.parse().unwrap()).is_ok(), "{good}");
        }
    }
}
