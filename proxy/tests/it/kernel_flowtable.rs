//! The flowtable in the kernel, with and without kernel support.

use std::collections::BTreeSet;

use crate::support::{Proxy, http_get, inside, shell, svcproxy};
use svcproxy::kernel::nftables::{Flowtable as _, FlowtableSpec, NetlinkFlowtable};
use svcproxy::mode::nftables::flowtable;
use svcproxy::model::Family;

fn spec(table: &'static str) -> FlowtableSpec {
    FlowtableSpec {
        table,
        comment: flowtable::COMMENT,
        name: flowtable::FLOWTABLE,
        priority: flowtable::PRIORITY,
        chain: flowtable::chain(),
    }
}

fn listing() -> String {
    shell(&format!("nft list table ip {}", flowtable::TABLE))
}

#[test]
fn the_flowtable_follows_links() {
    if !inside!() {
        return;
    }
    let links = |links: &[&str]| links.iter().map(|link| (*link).to_owned()).collect::<BTreeSet<String>>();
    for family in Family::ALL {
        let probed = NetlinkFlowtable::probe(family, spec(flowtable::PROBE));
        assert!(!shell("nft list tables").contains(flowtable::PROBE), "the probe leaves nothing");
        if let Err(error) = probed {
            let error = error.to_string();
            assert!(error.starts_with("cannot make the flowtable") && error.contains("No such file"), "{error}");
            eprintln!("this kernel has no flowtables: {error}");
            continue;
        }
        shell("ip link add v0 type veth peer name v1 && ip link add v2 type veth peer name v3");
        let mut table = NetlinkFlowtable::open(family, spec(flowtable::TABLE)).unwrap();
        assert!(!table.stands().unwrap());
        table.bring(&links(&["v0", "gone"])).unwrap();
        assert!(table.stands().unwrap());
        table.bring(&links(&["v0", "v2"])).unwrap();
        if family == Family::V4 {
            let text = listing();
            assert!(text.contains("devices = { v0, v2 }") || text.contains("devices = { v2, v0 }"), "{text}");
            std::fs::write("/run/listing.nft", format!("delete table ip {}\n{text}", flowtable::TABLE)).unwrap();
            shell("nft -f /run/listing.nft");
            assert_eq!(listing(), text);
        }
        shell("ip link del v0");
        table.bring(&links(&["v0", "v2", "v3"])).unwrap();
        if family == Family::V4 {
            assert!(!listing().contains("v0") && listing().contains("v3"), "{}", listing());
        }
        // A successor creates it again, also after another program's deletion.
        let mut next = NetlinkFlowtable::open(family, spec(flowtable::TABLE)).unwrap();
        next.bring(&links(&["v2"])).unwrap();
        shell("nft flush ruleset");
        assert!(!next.stands().unwrap());
        next.bring(&links(&["v2"])).unwrap();
        assert!(next.stands().unwrap());
        shell("nft flush ruleset && ip link del v2");
    }
}

#[test]
fn services_work_with_and_without_a_flowtable() {
    if !inside!() {
        return;
    }
    shell("ip addr add 192.0.2.1/24 dev lo");
    let has = NetlinkFlowtable::probe(Family::V4, spec(flowtable::PROBE)).is_ok();
    let manifests = tempfile::tempdir_in("/run").unwrap();
    let empty = r#"{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":"1"},"items":[]}"#;
    std::fs::write(manifests.path().join("cluster.json"), empty).unwrap();
    let directory = manifests.path().to_str().unwrap();
    let flags = ["--manifests", directory, "--hostname-override=node-a", "--proxy-mode=nftables"];
    let mut proxy = Proxy::start(&[&flags[..], &["--nftables-flowtable"]].concat());
    proxy.synced(Some("1"));
    assert!(http_get("127.0.0.1:10256", "/healthz").unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(shell("nft list tables").contains(flowtable::TABLE), has);
    proxy.kill();
    // A start without the flag deletes an earlier flowtable.
    shell(&format!("nft add table ip {}", flowtable::TABLE));
    let mut proxy = Proxy::start(&flags);
    proxy.synced(Some("1"));
    crate::support::wait_for("the table to go", || {
        (!shell("nft list tables").contains(flowtable::TABLE)).then_some(())
    });
    proxy.kill();
    shell(&format!("nft add table ip6 {}", flowtable::TABLE));
    assert!(svcproxy(&["--cleanup"]).status.success());
    assert!(!shell("nft list tables").contains("kube-proxy"));
    let rendered = svcproxy(&[&["render"], &flags[..], &["--nftables-flowtable"]].concat());
    let text = String::from_utf8(rendered.stdout).unwrap();
    let rule = "meta l4proto udp ct state established ct status dnat ct packets > 20 flow add @services";
    assert!(
        text.contains("flowtable services {\n\t\thook ingress priority filter\n\t}") && text.contains(rule),
        "{text}"
    );
}
