use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{changes_of_every_kind, inside, shell};
use ipnet::IpNet;
use svcproxy::config::{Config, DetectLocal, Mode, NodeAddresses, NodePortAddresses};
use svcproxy::kernel::nftables::{NetlinkTable, NftTable as _};
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::nftables::layout;
use svcproxy::mode::nftables::syncer::{NftablesSyncer, probe};
use svcproxy::model::{Batch, Change, Family};
use svcproxy::relay;

fn table(family: Family) -> NetlinkTable {
    NetlinkTable::open(family, layout::TABLE, layout::COMMENT).unwrap()
}

fn proxy(family: Family, node_ports: NodePortAddresses, batch: &Batch) -> FamilyProxy<NftablesSyncer<NetlinkTable>> {
    let config = Config {
        mode: Mode::Nftables,
        detect_local: DetectLocal::ClusterCidr(vec![
            "10.244.0.0/16".parse().unwrap(),
            "fd00:10:244::/56".parse().unwrap(),
        ]),
        node_port_addresses: node_ports,
        ..Config::for_node("node-a")
    };
    let mut proxy = assemble::nftables(&config, family, table(family), |_| relay::FakeRelays::default());
    let own: Vec<IpAddr> = vec!["172.18.0.2".parse().unwrap(), "fd00:172:18::2".parse().unwrap()];
    proxy.set_addresses(&NodeAddresses { local: own.clone(), primary: own, ..NodeAddresses::default() });
    proxy.apply(&batch.changes);
    proxy
}

#[test]
fn the_table_reads_back_as_written() {
    if !inside!() {
        return;
    }
    let batch = Batch { changes: changes_of_every_kind(&[2, 3]), ..Batch::default() };
    for family in Family::ALL {
        NetlinkTable::probe(family, layout::PROBE, &probe(family, true)).unwrap();
        for node_ports in [NodePortAddresses::All, NodePortAddresses::Primary] {
            let mut first = proxy(family, node_ports.clone(), &batch);
            assert!(first.sync().unwrap().full);
            assert_eq!(first.detect_flush().unwrap(), None);
            let report = proxy(family, node_ports, &batch).sync().unwrap();
            assert!(report.is_empty(), "{family}: a successor sends {report:?}");
        }
        // Deletes everything, also unused objects.
        let mut last = proxy(family, NodePortAddresses::Primary, &Batch::default());
        let report = last.sync().unwrap();
        assert!(report.changes > 0, "{report:?}");
        assert_eq!(last.follow_up(Instant::now() + Duration::from_secs(5)).unwrap(), None);
        assert!(proxy(family, NodePortAddresses::Primary, &Batch::default()).sync().unwrap().is_empty());
        assert!(table(family).delete().unwrap());
        let lost = last.detect_flush().unwrap().unwrap();
        assert!(lost.contains("chain") && lost.contains("kube-proxy"), "{lost}");
        assert!(!table(family).delete().unwrap());
    }
}

/// A change of ranges changes only elements, and `nft` loads the table that it prints.
#[test]
fn ranges_of_cluster_ips_are_added_and_removed() {
    if !inside!() {
        return;
    }
    let change = |ranges: &[&str]| {
        let object = serde_json::json!({ "metadata": { "name": "kubernetes" }, "spec": { "cidrs": ranges } });
        Change::ServiceCidr("kubernetes".to_owned(), Some(Arc::new(serde_json::from_value(object).unwrap())))
    };
    // In turn: containing, adjacent, up to the last address, a single address.
    let steps: [(&[&str], &[&str]); 6] = [
        (&["10.96.0.0/16"], &["fd00:10:96::/112"]),
        (&["10.64.0.0/10"], &["fd00:10::/40"]),
        (&["10.96.0.0/16", "10.97.0.0/16", "10.98.0.0/16"], &["fd00:1::/32", "fd00:2::/32", "fd00:3::/32"]),
        (&["240.0.0.0/4", "10.97.128.0/17"], &["fe00::/7", "fd00:2:8000::/33"]),
        (&["10.96.0.1/32"], &["fd00::1/128"]),
        (&[], &[]),
    ];
    for family in Family::ALL {
        let (of_nft, any) = if family == Family::V4 { ("ip", "ip daddr") } else { ("ip6", "ip6 daddr") };
        let mut first = proxy(family, NodePortAddresses::Primary, &Batch::default());
        first.sync().unwrap();
        for (v4, v6) in steps {
            let change = change(if family == Family::V4 { v4 } else { v6 });
            first.apply([&change]);
            let report = first.sync().unwrap();
            assert!(!report.full && report.rules == 0 && report.changes > 0, "{family} {change:?}: {report:?}");
            let batch = Batch { changes: vec![change], ..Batch::default() };
            let report = proxy(family, NodePortAddresses::Primary, &batch).sync().unwrap();
            assert!(report.is_empty(), "{family} {batch:?}: a successor sends {report:?}");
            let listed = shell(&format!("nft list table {of_nft} kube-proxy"));
            let drop = format!("ct status dnat return\n\t\t{any} @service-cidrs drop");
            assert!(listed.contains(&drop), "{listed}");
            for range in IpNet::aggregate(&batch_ranges(&batch)) {
                let range = range.to_string();
                let printed = range.strip_suffix("/32").or(range.strip_suffix("/128")).unwrap_or(&range);
                // Newer versions of `nft` merge adjacent ranges, also without `auto-merge`.
                assert!(listed.contains(printed), "{printed} in {listed}");
            }
            std::fs::write("/run/listed", listed.replace("kube-proxy", "again")).unwrap();
            shell(&format!("nft -f /run/listed && nft delete table {of_nft} again"));
        }
        // A successor replaces any ranges.
        let all =
            change(if family == Family::V4 { &["10.64.0.0/10", "240.0.0.0/4"] } else { &["fd00:10::/40", "fe00::/7"] });
        first.apply([&all]);
        first.sync().unwrap();
        let other = change(if family == Family::V4 { &["10.96.0.0/16"] } else { &["fd00:96::/112"] });
        let batch = Batch { changes: vec![other], ..Batch::default() };
        assert_eq!(proxy(family, NodePortAddresses::Primary, &batch).sync().unwrap().changes, 3);
        assert!(proxy(family, NodePortAddresses::Primary, &batch).sync().unwrap().is_empty());
    }
}

fn batch_ranges(batch: &Batch) -> Vec<IpNet> {
    let of = |change: &Change| match change {
        Change::ServiceCidr(_, Some(object)) => object.spec.clone().and_then(|spec| spec.cidrs).unwrap_or_default(),
        _ => Vec::new(),
    };
    batch.changes.iter().flat_map(of).map(|text| text.parse().unwrap()).collect()
}
