use std::io::Read;

use flate2::Compression;
use flate2::read::GzEncoder;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Service};
use proptest::prelude::*;
use serde_json::json;
use tar::{Builder, Header};

use super::{ArchiveError, MANIFEST, Manifest};
use crate::bpf::{AttachedProgram, ProgramHook};
use crate::network::{Address, Hop, Link, Network, Route};
use crate::{Objects, Snapshot, Unread};

fn snapshot() -> Snapshot {
    let to: IpNet = "10.0.0.0/8".parse().unwrap();
    let service: Service = serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "shop" }, "spec": { "clusterIP": "10.96.0.10" },
    }))
    .unwrap();
    let node: Node = serde_json::from_value(json!({ "metadata": { "name": "node-1" } })).unwrap();
    Snapshot {
        host: "node-1".to_owned(),
        taken: "2026-01-02T03:04:05Z".to_owned(),
        kernel: "6.12.0".to_owned(),
        versions: [("nft".to_owned(), "nftables v1.1.3".to_owned())].into(),
        nft_v4: Some("*nat\nCOMMIT\n".to_owned()),
        legacy_v6: Some(String::new()),
        sets: Some("create A hash:ip family inet\n".to_owned()),
        nft: Some("{\"nftables\": []}".to_owned()),
        network: Some(Network {
            links: vec![Link { index: 1, name: "lo".to_owned(), up: true, ..Link::default() }],
            addresses: vec![Address {
                interface: "lo".to_owned(),
                address: "127.0.0.1/8".parse().unwrap(),
                scope: "host".to_owned(),
                ..Address::default()
            }],
            routes: vec![Route {
                table: 254,
                to,
                kind: "unicast".to_owned(),
                hops: vec![Hop { interface: Some("lo".to_owned()), weight: 1, ..Hop::default() }],
                ..Route::default()
            }],
            ..Network::default()
        }),
        sysctls: [
            ("net.ipv4.conf.eth0.100.rp_filter", "2"),
            ("net.ipv4.ip_local_port_range", "32768\t60999"),
            ("x", ""),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
        conntrack: [("count".to_owned(), 7)].into(),
        programs: Some(vec![AttachedProgram {
            hook: ProgramHook::Connect4,
            interface: None,
            cgroup: Some("/".to_owned()),
            id: Some(9),
            kind: "cgroup_sock_addr".to_owned(),
            name: "cil_sock4_conne".to_owned(),
            filter: None,
            actions: Vec::new(),
        }]),
        objects: Some(Objects { services: vec![service], nodes: vec![node], ..Objects::default() }),
        node_name: Some("node-1".to_owned()),
        proxy_config: Some("mode: iptables\n".to_owned()),
        unread: vec![Unread { what: "rules/ipvs".to_owned(), why: "no such tool".to_owned() }],
        sources: [("rules/ipset".to_owned(), "another way".to_owned())].into(),
        ..Snapshot::default()
    }
}

fn bytes(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.write(&mut bytes).unwrap();
    bytes
}

fn files(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(bytes);
    let files = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (String::from_utf8(entry.path_bytes().into_owned()).unwrap(), content)
    });
    files.collect()
}

fn tar_of(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, &content[..]).unwrap();
    }
    archive.into_inner().unwrap()
}

fn refused(bytes: &[u8]) -> String {
    Snapshot::read(bytes).unwrap_err().to_string()
}

#[test]
fn what_is_written_is_read() {
    let snapshot = snapshot();
    let first = bytes(&snapshot);
    assert_eq!(Snapshot::read(&first[..]).unwrap(), snapshot);
    assert_eq!(first, bytes(&snapshot), "the same bytes each time");
    let empty = Snapshot::default();
    assert_eq!(Snapshot::read(&bytes(&empty)[..]).unwrap(), empty);
}

#[test]
fn the_manifest_comes_first_and_tells_of_the_others() {
    let snapshot = snapshot();
    let files = files(&bytes(&snapshot));
    assert_eq!(files[0].0, MANIFEST);
    let manifest: Manifest = serde_json::from_slice(&files[0].1).unwrap();
    assert_eq!(manifest, snapshot.manifest());
    let listed: Vec<&str> = manifest.entries.iter().map(|entry| entry.path.as_str()).collect();
    let there: Vec<&str> = files[1..].iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(listed, there);
    assert!(listed.is_sorted());
    let source = |path: &str| &manifest.entries.iter().find(|entry| entry.path == path).unwrap().source;
    assert_eq!(source("rules/iptables-nft.v4"), "iptables-nft-save -c");
    assert_eq!(source("rules/ipset"), "another way");
}

#[test]
fn unknown_files_and_another_order_do_no_harm() {
    let snapshot = snapshot();
    let mut files = files(&bytes(&snapshot));
    files.reverse();
    for (path, _) in &mut files {
        *path = format!("./{path}");
    }
    files.push(("notes/from a person".to_owned(), b"hello".to_vec()));
    let long = "x/".repeat(200) + "y";
    files.push((long, b"hello".to_vec()));
    assert_eq!(Snapshot::read(&tar_of(&files)[..]).unwrap(), snapshot);
}

#[test]
fn paths_outside_of_the_format_are_left_alone() {
    let mut bytes = Vec::new();
    let mut header = Header::new_ustar();
    header.set_size(2);
    let name = b"../../etc/passwd";
    header.as_ustar_mut().unwrap().name[..name.len()].copy_from_slice(name);
    header.set_cksum();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(&[b'x'; 512]);
    bytes.extend(self::bytes(&snapshot()));
    assert_eq!(Snapshot::read(&bytes[..]).unwrap(), snapshot());
}

#[test]
fn each_mistake_is_a_sentence() {
    let whole = bytes(&snapshot());
    assert!(refused(b"PK\x03\x04 no tar at all").starts_with("this is no tar archive"), "{}", refused(b"PK\x03\x04"));
    assert_eq!(refused(&[b'x'; 4096]), "this is no tar archive");
    assert!(refused(b"").starts_with("there is no manifest.json"));
    let cut = refused(&whole[..whole.len() / 2]);
    assert!(cut.contains("cut short"), "{cut}");

    let files = files(&whole);
    let changed = |path: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut files = files.clone();
        change(&mut files.iter_mut().find(|(found, _)| found == path).unwrap().1);
        refused(&tar_of(&files))
    };
    let nat = "rules/iptables-nft.v4";
    assert_eq!(
        changed(nat, &|bytes| bytes[0] = b'#'),
        "rules/iptables-nft.v4 in the archive is damaged: its checksum is another than the one in manifest.json"
    );
    let manifest = |from: &'static str, to: &'static str| {
        changed(MANIFEST, &|bytes| *bytes = String::from_utf8(bytes.clone()).unwrap().replace(from, to).into_bytes())
    };
    assert_eq!(
        manifest("\"version\": 1,", "\"version\": 2,"),
        "manifest.json in the archive is of version 2; this program reads versions up to 1"
    );
    assert!(manifest("svclab-node", "other").contains("is of format \"other\""));
    assert!(manifest("{", "").starts_with("manifest.json in the archive: "));

    let without = |path: &str| {
        let rest: Vec<_> = files.iter().filter(|(found, _)| found != path).cloned().collect();
        refused(&tar_of(&rest))
    };
    assert_eq!(without(MANIFEST), "there is no manifest.json in the archive: it is none of svclab's");
    assert_eq!(without(nat), format!("the archive is cut short: manifest.json lists {nat}, which is not there"));
    let with = |path: &str| {
        let mut files = files.clone();
        files.push((path.to_owned(), b"x".to_vec()));
        refused(&tar_of(&files))
    };
    assert_eq!(with(nat), format!("{nat} is in the archive twice"));
    assert_eq!(with("rules/ipvs"), "rules/ipvs is in the archive, but manifest.json does not list it");
}

#[test]
fn what_is_too_large_is_not_read() {
    let mut header = Header::new_ustar();
    header.set_path("rules/ipset").unwrap();
    header.set_size(super::LARGEST_ENTRY + 1);
    header.set_cksum();
    let large = header.as_bytes().chain(std::io::repeat(b'x'));
    assert_eq!(Snapshot::read(large).unwrap_err().to_string(), "rules/ipset in the archive is larger than 512 MiB");
    header.set_path("unknown").unwrap();
    header.set_size(u64::MAX / 4);
    header.set_cksum();
    let endless = header.as_bytes().chain(std::io::repeat(b'x'));
    assert!(matches!(Snapshot::read(endless), Err(ArchiveError::Large)));
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    GzEncoder::new(bytes, Compression::fast()).read_to_end(&mut all).unwrap();
    all
}

#[test]
fn a_compressed_archive_is_read_within_the_same_limits() {
    let mut archive = Vec::new();
    snapshot().write(&mut archive).unwrap();
    let small = compressed(&archive);
    assert_eq!(Snapshot::read(&*small).unwrap(), snapshot());
    assert!(Snapshot::read(&small[..small.len() / 2]).is_err());
    assert!(matches!(Snapshot::read(&small[..12]), Err(ArchiveError::NotATar(_))));
    assert!(matches!(Snapshot::read(&[0x1f, 0x8b][..]), Err(ArchiveError::NotATar(_))));

    let mut header = Header::new_ustar();
    header.set_path("rules/ipset").unwrap();
    header.set_size(super::LARGEST_ENTRY + 1);
    header.set_cksum();
    let large = compressed(header.as_bytes());
    assert!(matches!(Snapshot::read(&*large), Err(ArchiveError::LargeEntry { .. })));
    // A small file that unpacks to an endless one.
    header.set_path("unknown").unwrap();
    header.set_size(u64::MAX / 4);
    header.set_cksum();
    let bomb = compressed(header.as_bytes())
        .into_iter()
        .chain(std::iter::repeat_n(compressed(&vec![b'x'; 16 << 20]), 65).flatten());
    let bomb: Vec<u8> = bomb.collect();
    assert!(bomb.len() < 8 << 20);
    assert!(matches!(Snapshot::read(&*bomb), Err(ArchiveError::Large)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        doubled in any::<prop::sample::Index>(),
    ) {
        let mut bytes = bytes(&snapshot());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let block = doubled.index(bytes.len() / 512) * 512;
        let again = bytes[block..block + 512].to_vec();
        bytes.splice(block..block, again);
        let _ = Snapshot::read(&bytes[..]).map_err(|error| error.to_string());
        let _ = Snapshot::read(&bytes[..cut.index(bytes.len())]).map_err(|error| error.to_string());
    }

    #[test]
    fn no_content_panics(content in prop::collection::vec(any::<u8>(), 0..200), which in 0usize..16) {
        let path = super::entries::ArchivePart::ALL[which].path();
        let mut manifest = Snapshot::default().manifest();
        manifest.entries = vec![super::ManifestEntry {
            path: path.to_owned(),
            size: content.len() as u64,
            sha256: super::write::checksum(&content),
            source: String::new(),
        }];
        let files = [(MANIFEST.to_owned(), serde_json::to_vec(&manifest).unwrap()), (path.to_owned(), content)];
        let _ = Snapshot::read(&tar_of(&files)[..]).map_err(|error| error.to_string());
    }
}
