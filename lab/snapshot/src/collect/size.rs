//! The bound on all of it.

use super::unread;
use crate::Snapshot;
use crate::archive::entries::{Part, content};

/// From what is needed most, for its size, to what is needed least.
const ORDER: [Part; 17] = [
    Part::Network,
    Part::Sysctls,
    Part::Sockets,
    Part::Conntrack,
    Part::Versions,
    Part::ProxyConfig,
    Part::ServiceCidrs,
    Part::Nodes,
    Part::Services,
    Part::EndpointSlices,
    Part::Sets,
    Part::Servers,
    Part::NftV4,
    Part::NftV6,
    Part::LegacyV4,
    Part::LegacyV6,
    Part::Nft,
];

/// Leaves out parts that do not fit, each as a whole.
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

fn clear(snapshot: &mut Snapshot, part: Part) {
    match part {
        Part::Network => snapshot.network = None,
        Part::Sockets => snapshot.sockets = None,
        Part::Sysctls => snapshot.sysctls.clear(),
        Part::Conntrack => snapshot.conntrack.clear(),
        Part::Versions => snapshot.versions.clear(),
        Part::ProxyConfig => snapshot.proxy_config = None,
        // Some objects without the others would look like a cluster that has lost its endpoints.
        Part::ServiceCidrs | Part::Nodes | Part::Services | Part::EndpointSlices => {
            snapshot.objects = None;
            snapshot.sources.retain(|path, _| !path.starts_with("objects/"));
        }
        Part::Sets => snapshot.sets = None,
        Part::Servers => snapshot.servers = None,
        Part::NftV4 => snapshot.nft_v4 = None,
        Part::NftV6 => snapshot.nft_v6 = None,
        Part::LegacyV4 => snapshot.legacy_v4 = None,
        Part::LegacyV6 => snapshot.legacy_v6 = None,
        Part::Nft => snapshot.nft = None,
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
