use super::unread;
use crate::Snapshot;
use crate::archive::entries::{ArchivePart, content};

/// Parts are kept in this order: by importance relative to their size.
const ORDER: [ArchivePart; 18] = [
    ArchivePart::Network,
    ArchivePart::Programs,
    ArchivePart::Sysctls,
    ArchivePart::Sockets,
    ArchivePart::Conntrack,
    ArchivePart::Versions,
    ArchivePart::ProxyConfig,
    ArchivePart::ServiceCidrs,
    ArchivePart::Nodes,
    ArchivePart::Services,
    ArchivePart::EndpointSlices,
    ArchivePart::Sets,
    ArchivePart::Servers,
    ArchivePart::NftV4,
    ArchivePart::NftV6,
    ArchivePart::LegacyV4,
    ArchivePart::LegacyV6,
    ArchivePart::Nft,
];

/// Removes whole parts to fit `most` bytes.
pub(super) fn cut(snapshot: &mut Snapshot, most: u64) {
    let mut used = 0;
    for part in ORDER {
        let Some(size) = content(snapshot, part).map(|bytes| bytes.len() as u64) else {
            snapshot.sources.remove(part.path());
            continue;
        };
        if used + size <= most {
            used += size;
            continue;
        }
        clear(snapshot, part);
        snapshot.sources.remove(part.path());
        let why = format!("it has {size} bytes, and with the others more than {most} (--max-size)");
        snapshot.unread.push(unread(part.path(), why));
    }
}

fn clear(snapshot: &mut Snapshot, part: ArchivePart) {
    match part {
        ArchivePart::Network => snapshot.network = None,
        ArchivePart::Programs => snapshot.programs = None,
        ArchivePart::Sockets => snapshot.sockets = None,
        ArchivePart::Sysctls => snapshot.sysctls.clear(),
        ArchivePart::Conntrack => snapshot.conntrack.clear(),
        ArchivePart::Versions => snapshot.versions.clear(),
        ArchivePart::ProxyConfig => snapshot.proxy_config = None,
        // Some kinds without the others would look like a cluster without endpoints.
        ArchivePart::ServiceCidrs | ArchivePart::Nodes | ArchivePart::Services | ArchivePart::EndpointSlices => {
            snapshot.objects = None;
            snapshot.sources.retain(|path, _| !path.starts_with("objects/"));
        }
        ArchivePart::Sets => snapshot.sets = None,
        ArchivePart::Servers => snapshot.servers = None,
        ArchivePart::NftV4 => snapshot.nft_v4 = None,
        ArchivePart::NftV6 => snapshot.nft_v6 = None,
        ArchivePart::LegacyV4 => snapshot.legacy_v4 = None,
        ArchivePart::LegacyV6 => snapshot.legacy_v6 = None,
        ArchivePart::Nft => snapshot.nft = None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_left_out_whole() {
        let mut snapshot = Snapshot {
            nft_v4: Some("x".repeat(600)),
            nft_v6: Some("y".repeat(600)),
            sets: Some("z".repeat(300)),
            sources: ["rules/ipset", "rules/iptables-nft.v6"].map(|path| (path.to_owned(), "here".to_owned())).into(),
            ..Snapshot::default()
        };
        cut(&mut snapshot, 1000);
        assert!(snapshot.nft_v4.is_some() && snapshot.nft_v6.is_none() && snapshot.sets.is_some());
        let left_out: Vec<&str> = snapshot.unread.iter().map(|unread| unread.what.as_str()).collect();
        assert_eq!(left_out, ["rules/iptables-nft.v6"]);
        assert_eq!(snapshot.sources.keys().collect::<Vec<_>>(), ["rules/ipset"]);
    }
}
