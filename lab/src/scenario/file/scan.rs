//! `scan:` tries to connect to every TCP port of an address.

use std::ops::RangeInclusive;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::OneFamily;
use crate::scenario::values::{OneOrMany, PlaceRef, ProbeTarget, TimeSpan};

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ScanFile {
    /// The caller: `pod/NAME`, `node/NAME`, `client/NAME` or `load-balancer`.
    #[schemars(with = "PlaceRef")]
    pub from: Spanned<PlaceRef>,
    /// The target, as in `probe`; its port is ignored.
    #[schemars(with = "ProbeTarget")]
    pub to: Spanned<ProbeTarget>,
    /// `ipv4` or `ipv6`; default: the cluster's primary family.
    #[schemars(with = "Option<OneFamily>")]
    pub family: Option<Spanned<OneFamily>>,
    /// The node to which an outside client sends packets for this address.
    #[schemars(with = "Option<String>")]
    pub via: Option<Spanned<String>>,
    /// Ports and ranges of ports, one or a list, such as `[1-1024, 9090]`; default: all.
    pub ports: Option<OneOrMany<PortRange>>,
    /// How long each port has to answer; default `700ms`.
    pub timeout: Option<TimeSpan>,
}

/// A port, or `A-B`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRange(pub RangeInclusive<u16>);

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(PortRange(first..=last)),
            _ => Err(format!("{text:?}: expected a port from 1 to 65535, or A-B")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_parse_as_a_number_or_a_range() {
        assert_eq!("80".parse(), Ok(PortRange(80..=80)));
        assert_eq!("1-65535".parse(), Ok(PortRange(1..=65535)));
        for wrong in ["0", "5-4", "65536", "", "http", "1-", "0-7"] {
            let expected = format!("{wrong:?}: expected a port from 1 to 65535, or A-B");
            assert_eq!(wrong.parse::<PortRange>(), Err(expected));
        }
    }
}
