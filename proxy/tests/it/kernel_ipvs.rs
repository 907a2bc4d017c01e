//! IPVS mode without IPVS in the kernel: real rules and sets, fake virtual servers and device. Scenarios in a microVM
//! test the rest.

use std::net::IpAddr;

use crate::support::{WRITERS, changes_of_every_kind, cluster_cidrs, inside, masquerade_sources, shell, wait_for};

use svcproxy::config::{Config, DetectLocal, Variant, WriterChoice};
use svcproxy::kernel::dummy::{AddressChange, AddressState, ServiceDevice};
use svcproxy::kernel::ipset::{IpSets, Nfnetlink, SetChange, SetHeader, SetMember, SetType};
use svcproxy::kernel::writer::IptablesWriter;
use svcproxy::kernel::{dummy, ipvs};
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::iptables_family::ipvs::kernel::IpvsAdapters;
use svcproxy::mode::iptables_family::ipvs::sets::SetId;
use svcproxy::mode::iptables_family::ipvs::syncer::IpvsSyncer;
use svcproxy::mode::iptables_family::ipvs::teardown::{remove_empty_device, tear_down};
use svcproxy::mode::iptables_family::rules::cleanup::cleanup;
use svcproxy::model::{Change, Family, Protocol};

type IpvsKernel = IpvsAdapters<IptablesWriter, ipvs::FakeIpvs, Nfnetlink, dummy::FakeDevice>;
type IpvsProxy = FamilyProxy<IpvsSyncer<IpvsKernel>>;

type WriterOfTables = (Variant, WriterChoice);

fn kernel(
    family: Family,
    (variant, writer): WriterOfTables,
    servers: ipvs::FakeIpvs,
    device: dummy::FakeDevice,
) -> IpvsKernel {
    IpvsAdapters {
        rules: IptablesWriter::open(family, variant, writer).unwrap().writer,
        servers,
        sets: Nfnetlink::open().unwrap(),
        device,
    }
}

fn proxy(config: &Config, family: Family, kernel: IpvsKernel, changes: &[Change]) -> IpvsProxy {
    let mut proxy = assemble::ipvs(config, family, kernel);
    let local = ["192.0.2.1", "fd00:c::1"].map(|text| text.parse().unwrap());
    proxy.set_addresses(&svcproxy::config::NodeAddresses { local: local.to_vec(), ..Default::default() });
    proxy.apply(changes);
    proxy
}

#[test]
fn a_second_synchronisation_sends_nothing() {
    if !inside!() {
        return;
    }
    let changes = changes_of_every_kind(&[2, 3, 4, 5, 6, 7, 8]);
    let base = Config::for_node("node-a");
    let configs = [
        Config { detect_local: cluster_cidrs(), ..base.clone() },
        Config { detect_local: DetectLocal::BridgeInterface("cni0".into()), masquerade_bit: 0, ..base.clone() },
        Config { masquerade_all: true, ..base.clone() },
        Config { masquerade_source: masquerade_sources(), ..base.clone() },
        base,
    ];
    for variant in WRITERS {
        for family in Family::ALL {
            let (mut servers, mut device) = (ipvs::FakeIpvs::default(), dummy::FakeDevice::default());
            for config in &configs {
                let sync = |servers: &ipvs::FakeIpvs, device: &dummy::FakeDevice| {
                    let kernel = kernel(family, variant, servers.clone(), device.clone());
                    let mut proxy = proxy(config, family, kernel, &changes);
                    let report = proxy.sync().unwrap();
                    let kernel = proxy.mode().kernel();
                    (report, kernel.servers.clone(), kernel.device.clone())
                };
                let first = sync(&servers, &device);
                assert!(first.0.full && !first.0.is_empty(), "{variant:?} {family} {config:?}");
                let second = sync(&first.1, &first.2);
                assert!(second.0.full && second.0.is_empty(), "{variant:?} {family} {config:?}: {:?}", second.0);
                (servers, device) = (second.1, second.2);
            }
            let saved = shell("ipset save");
            let cluster_ip = SetId::ClusterIp.name(family);
            assert!(saved.contains(&format!("create {cluster_ip} hash:ip,port family inet")), "{saved}");
            let mut kernel = kernel(family, variant, servers, device);
            cleanup(&mut kernel.rules).unwrap();
            tear_down(&mut kernel, family, false).unwrap();
            remove_empty_device(&mut kernel).unwrap();
            assert_eq!(shell("ipset save"), "");
            assert!(kernel.servers.servers.is_empty() && kernel.device.addresses.is_none());
        }
    }
}

/// Uses a veth link, because not every kernel has dummy links.
#[test]
fn a_bound_ipv6_address_is_not_chosen_as_a_source() {
    if !inside!() {
        return;
    }
    let [own, service, pod] = ["fd00:172:18::2", "fd00:10:96::1", "fd00:10:244::5"];
    let address: IpAddr = service.parse().unwrap();
    shell(&format!(
        "ip link add {} type veth peer name unused; ip link add eth0 type veth peer name far; \
         ip link add veth0 type veth peer name pod; for link in eth0 far veth0 pod; do ip link set $link up; done; \
         ip addr add {own}/64 dev eth0 nodad; ip route add {pod}/128 dev veth0; \
         ip addr add {service}/128 dev {} nodad",
        dummy::DEVICE,
        dummy::DEVICE,
    ));
    let source =
        |of: &str| shell(&format!("ip -6 route get {of} | sed -n 's/.* src \\([^ ]*\\) .*/\\1/p'")).trim().to_owned();
    let mut device = dummy::Rtnetlink::open().unwrap();
    let found = |state| std::collections::BTreeMap::from([(address, state)]);
    // The address is bound as kube-proxy binds it, so the kernel uses it as the source of packets to the pod.
    wait_for("the node's own address", || shell("ip -6 route show table local").contains(own).then_some(()));
    assert_eq!(device.addresses(Family::V6).unwrap(), found(AddressState::Preferred));
    assert_eq!(source(pod), service);

    device.change_addresses(&[AddressChange::Bind(address)]).unwrap();
    assert_eq!(device.addresses(Family::V6).unwrap(), found(AddressState::Deprecated));
    assert_eq!(source(pod), own);
    assert!(shell("ip -6 route show table local").contains(service));

    // The source stays when the address is bound again; unbinding removes the route.
    device.change_addresses(&[AddressChange::Yield { address, to: own.parse().unwrap() }]).unwrap();
    assert_eq!(source(service), own);
    device.change_addresses(&[AddressChange::Bind(address)]).unwrap();
    assert_eq!(source(service), own);
    device.change_addresses(&[AddressChange::Unbind(address)]).unwrap();
    assert!(device.addresses(Family::V6).unwrap().is_empty());
    assert!(!shell("ip -6 route show table local").contains(service));

    device.change_addresses(&[AddressChange::Bind(address)]).unwrap();
    assert_eq!(device.addresses(Family::V6).unwrap(), found(AddressState::Deprecated));
    let v4: IpAddr = "10.96.0.1".parse().unwrap();
    device.change_addresses(&[AddressChange::Bind(v4), AddressChange::Bind(v4)]).unwrap();
    assert_eq!(device.addresses(Family::V4).unwrap().into_iter().collect::<Vec<_>>(), [(v4, AddressState::Preferred)]);
}

#[test]
fn sets_are_made_filled_read_exchanged_and_destroyed() {
    if !inside!() {
        return;
    }
    let mut sets = Nfnetlink::open().unwrap();
    assert_eq!(sets.set("NOT-THERE").unwrap(), None);
    sets.destroy_set("NOT-THERE").unwrap();
    for family in Family::ALL {
        let ip: std::net::IpAddr = if family == Family::V4 { "10.96.0.1" } else { "fd00::1" }.parse().unwrap();
        let net = if family == Family::V4 { "192.0.2.0/25" } else { "fd00:c::/64" }.parse().unwrap();
        let host = if family == Family::V4 { "192.0.2.7/32" } else { "fd00:c::7/128" }.parse().unwrap();
        for kind in SetType::ALL {
            let members = match kind {
                SetType::BitmapPort => vec![SetMember::Port(0), SetMember::Port(30_080), SetMember::Port(u16::MAX)],
                SetType::HashIp => vec![SetMember::Ip(ip)],
                SetType::HashIpPort => [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
                    .into_iter()
                    .flat_map(|protocol| (1..1500).map(move |port| SetMember::IpPort(ip, protocol, port)))
                    .collect(),
                SetType::HashIpPortIp => vec![SetMember::IpPortIp(ip, Protocol::Tcp, 80, ip)],
                SetType::HashIpPortNet => {
                    vec![
                        SetMember::IpPortNet(ip, Protocol::Udp, 53, net),
                        SetMember::IpPortNet(ip, Protocol::Udp, 53, host),
                    ]
                }
            };
            let header = SetHeader { name: "ONE".into(), kind, family, maxelem: 70_000 };
            sets.create_set(&header).unwrap();
            assert!(sets.create_set(&header).is_err(), "there is one already");
            let change = |add, members: &[SetMember]| [SetChange { set: "ONE".into(), add, members: members.to_vec() }];
            sets.change_sets(&change(true, &members)).unwrap();
            sets.change_sets(&change(true, &members)).unwrap();
            let found = sets.set("ONE").unwrap().unwrap();
            assert_eq!(found.kind, kind.as_str());
            assert_eq!(found.maxelem, if kind == SetType::BitmapPort { 0 } else { 70_000 });
            assert_eq!(found.members, members.iter().copied().collect(), "{kind:?} {family}");
            let saved = shell("ipset save ONE");
            for member in members.iter().take(5) {
                assert!(saved.lines().any(|line| line == format!("add ONE {member}")), "{member}\n{saved}");
            }
            let two = SetHeader { name: "TWO".into(), ..header };
            sets.create_set(&two).unwrap();
            sets.swap_sets("ONE", "TWO").unwrap();
            assert!(sets.set("ONE").unwrap().unwrap().members.is_empty());
            assert_eq!(sets.set("TWO").unwrap().unwrap().members.len(), members.len());
            sets.swap_sets("ONE", "TWO").unwrap();
            sets.change_sets(&change(false, &members)).unwrap();
            sets.change_sets(&change(false, &members)).unwrap();
            assert!(sets.set("ONE").unwrap().unwrap().members.is_empty());
            let missing = [SetChange { set: "NOT-THERE".into(), add: true, members: members.clone() }];
            let error = sets.change_sets(&missing).unwrap_err().to_string();
            assert!(error.contains("add to the set NOT-THERE"), "{error}");
            sets.destroy_set("ONE").unwrap();
            sets.destroy_set("TWO").unwrap();
        }
    }
    assert_eq!(shell("ipset save"), "");
}

#[test]
fn a_full_set_and_a_set_in_use_are_clear_errors() {
    if !inside!() {
        return;
    }
    let mut sets = Nfnetlink::open().unwrap();
    let header = SetHeader { maxelem: 2, ..SetId::ClusterIp.header(Family::V4, 0) };
    sets.create_set(&header).unwrap();
    let members = (1..2000).map(|port| SetMember::IpPort("10.96.0.1".parse().unwrap(), Protocol::Tcp, port)).collect();
    let error =
        sets.change_sets(&[SetChange { set: header.name.clone(), add: true, members }]).unwrap_err().to_string();
    assert!(error.ends_with("the set is full"), "{error}");
    shell("iptables-legacy -A INPUT -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT");
    let error = sets.destroy_set(&header.name).unwrap_err().to_string();
    assert!(error.ends_with("the set is in use"), "{error}");
}
