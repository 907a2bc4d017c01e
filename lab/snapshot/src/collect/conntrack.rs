//! Counts connections without listing any, for privacy.

use std::collections::BTreeMap;

use super::{files, unread};
use crate::Unread;
use crate::archive::entries::ArchivePart;

const STATISTICS: &str = "stat/nf_conntrack";

/// Returns counts and statistics; empty if connections are not tracked.
pub(super) fn read() -> Result<BTreeMap<String, u64>, Unread> {
    let mut figures = BTreeMap::new();
    for name in ["count", "max", "buckets"] {
        let number = files::proc(&format!("/proc/sys/net/netfilter/nf_conntrack_{name}")).ok();
        if let Some(number) = number.and_then(|text| text.trim().parse().ok()) {
            figures.insert(name.to_owned(), number);
        }
    }
    match files::net(STATISTICS) {
        Ok(text) => figures.extend(sums(&text).map_err(|why| unread(ArchivePart::Conntrack.path(), why))?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(unread(ArchivePart::Conntrack.path(), format!("/proc/net/{STATISTICS}: {error}"))),
    }
    Ok(figures)
}

/// Sums hexadecimal numbers per processor (`ct_cpu_seq_show`, `net/netfilter/nf_conntrack_standalone.c`), except the
/// first column, the table's size.
fn sums(text: &str) -> Result<BTreeMap<String, u64>, String> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().skip(1).collect();
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for line in lines {
        for (name, number) in names.iter().zip(line.split_whitespace().skip(1)) {
            let number = u64::from_str_radix(number, 16)
                .map_err(|_| format!("/proc/net/{STATISTICS}: {number} is no number"))?;
            let sum = sums.entry((*name).to_owned()).or_default();
            *sum = sum.saturating_add(number);
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_added_up() {
        let text = "entries  found invalid drop  insert_failed\n\
                    00000010  00000001 0000000a 00000000  00000002\n\
                    00000010  00000001 00000006 000000ff  00000000\n";
        let expected = [("found", 2), ("invalid", 16), ("drop", 255), ("insert_failed", 2)];
        assert_eq!(sums(text).unwrap(), expected.map(|(name, sum)| (name.to_owned(), sum)).into());
        assert!(sums("entries x\n1 what\n").is_err());
        assert!(sums("").unwrap().is_empty());
    }
}
