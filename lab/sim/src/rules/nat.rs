//! NAT targets' addresses and ports.

use std::fmt;
use std::net::IpAddr;

use super::error::ParseResult;
use super::options;
use super::tokens::OptionReader;

/// The addresses and ports of a NAT target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NatRange {
    /// `None`: unchanged.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// `None`: unchanged if free.
    pub ports: Option<(u16, u16)>,
    /// `--random`.
    pub random: bool,
    /// `--random-fully`.
    pub random_fully: bool,
    /// `--persistent`: a client's address is the same for all destinations.
    pub persistent: bool,
}

pub(crate) fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = (first.parse().ok()?, last.parse().ok()?);
    (range.0 <= range.1).then_some(range)
}

pub(crate) fn addresses(text: &str) -> Option<(IpAddr, IpAddr)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range: (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
    (range.0 <= range.1 && range.0.is_ipv4() == range.1.is_ipv4()).then_some(range)
}

/// Parses `10.0.0.1`, `10.0.0.1-10.0.0.9:80-90`, `:80`, `fd00::1`, `[fd00::1]:80`, `[fd00::1-fd00::9]:80`.
fn destination(text: &str) -> Option<NatRange> {
    let (address, port) = if let Some(inner) = text.strip_prefix('[') {
        let (address, port) = inner.split_once(']')?;
        (address, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
    } else if text.matches(':').count() > 1 {
        (text, None)
    } else {
        text.split_once(':').map_or((text, None), |(address, port)| (address, Some(port)))
    };
    let addresses = if address.is_empty() { None } else { Some(addresses(address)?) };
    let ports = match port {
        Some(port) => Some(ports(port)?),
        None => None,
    };
    (addresses.is_some() || ports.is_some()).then_some(NatRange { addresses, ports, ..NatRange::default() })
}

impl NatRange {
    pub(crate) fn read(words: &mut OptionReader<'_>, what: &str) -> ParseResult<NatRange> {
        let mut range = NatRange::default();
        let known = |option: &str| option == what || ["--random", "--random-fully", "--persistent"].contains(&option);
        while let Some(option) = words.option(known) {
            words.plain()?;
            match option {
                "--random" => range.random = true,
                "--random-fully" => range.random_fully = true,
                "--persistent" => range.persistent = true,
                "--to-ports" => range.ports = Some(words.parse("a port or first-last", ports)?),
                _ => {
                    let read = words.parse("address, address:port or :port", destination)?;
                    (range.addresses, range.ports) = (read.addresses, read.ports);
                }
            }
        }
        Ok(range)
    }

    pub(crate) fn print(&self, f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        let ports =
            self.ports.map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
        match (self.addresses, ports) {
            (None, None) => {}
            (None, Some(ports)) if what == "--to-ports" => write!(f, " {what} {ports}")?,
            (None, Some(ports)) => write!(f, " {what} :{ports}")?,
            (Some((first, last)), ports) => {
                let text = if first == last { first.to_string() } else { format!("{first}-{last}") };
                match ports {
                    Some(ports) if first.is_ipv6() => write!(f, " {what} [{text}]:{ports}")?,
                    Some(ports) => write!(f, " {what} {text}:{ports}")?,
                    None => write!(f, " {what} {text}")?,
                }
            }
        }
        let flags =
            [("--random", self.random), ("--random-fully", self.random_fully), ("--persistent", self.persistent)];
        options::print_flags(f, &flags)
    }
}
