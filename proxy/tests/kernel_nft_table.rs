//! The table of nftables mode in the kernel: what is written is what is read, in both families.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use support::{every_kind, inside};
use svcproxy::config::{Config, DetectLocal, Mode, NodeAddresses, NodePortAddresses};
use svcproxy::kernel::nft_table::{Netlink, NftTable as _};
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::nftables::layout;
use svcproxy::mode::nftables::syncer::{Syncer, probe};
use svcproxy::model::Family;
use svcproxy::source::{Batch, read_directory};

fn table(family: Family) -> Netlink {
    Netlink::open(family, layout::TABLE, layout::COMMENT).unwrap()
}

fn proxy(family: Family, node_ports: NodePortAddresses, batch: &Batch) -> FamilyProxy<Syncer<Netlink>> {
    let config = Config {
        mode: Mode::Nftables,
        detect_local: DetectLocal::ClusterCidr(vec![
            "10.244.0.0/16".parse().unwrap(),
            "fd00:10:244::/56".parse().unwrap(),
        ]),
        node_port_addresses: node_ports,
        ..Config::for_node("node-a")
    };
    let mut proxy = FamilyProxy::with_mode(config, family, Syncer::new(table(family)));
    let own: Vec<IpAddr> = vec!["172.18.0.2".parse().unwrap(), "fd00:172:18::2".parse().unwrap()];
    proxy.set_addresses(&NodeAddresses { local: own.clone(), primary: own, ..NodeAddresses::default() });
    proxy.apply(&batch.changes);
    proxy
}

#[test]
fn what_is_written_is_what_is_read() {
    if !inside("what_is_written_is_what_is_read") {
        return;
    }
    let manifests = tempfile::tempdir().unwrap();
    std::fs::write(manifests.path().join("all.json"), every_kind(1, &[2, 3])).unwrap();
    let batch = read_directory(manifests.path()).unwrap().batch;
    for family in Family::ALL {
        Netlink::probe(family, layout::PROBE, &probe(family)).unwrap();
        for node_ports in [NodePortAddresses::All, NodePortAddresses::Primary] {
            let mut first = proxy(family, node_ports.clone(), &batch);
            assert!(first.sync().unwrap().full);
            assert_eq!(first.detect_flush().unwrap(), None);
            let report = proxy(family, node_ports, &batch).sync().unwrap();
            assert!(report.is_empty(), "{family}: a successor sends {report:?}");
        }
        // Everything goes, and what nothing has led to for a while.
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
