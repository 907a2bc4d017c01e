use svclab_snapshot::bpf::TcActionKind;
use svclab_snapshot::network::Link;

use super::*;

fn program(hook: ProgramHook, name: &str) -> AttachedProgram {
    AttachedProgram {
        hook,
        interface: None,
        cgroup: None,
        id: Some(7),
        kind: String::new(),
        name: name.to_owned(),
        filter: None,
        actions: Vec::new(),
    }
}

fn on(interface: &str, program: AttachedProgram) -> AttachedProgram {
    AttachedProgram { interface: Some(interface.to_owned()), ..program }
}

#[test]
fn a_cgroup_is_the_nodes_or_the_pods() {
    for (path, kind) in [
        ("/", CgroupKind::Root),
        ("/system.slice", CgroupKind::Slice),
        ("/user.slice/user-1000.slice", CgroupKind::Slice),
        ("/system.slice/systemd-udevd.service", CgroupKind::Other),
        ("/kubepods.slice", CgroupKind::Pods),
        ("/kubepods.slice/kubepods-burstable.slice", CgroupKind::Pods),
        ("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice", CgroupKind::Pods),
        ("/kubepods/besteffort", CgroupKind::Pods),
        ("/kubepods/besteffort/pod0a1b2c3d-1111-2222-3333-444444444444", CgroupKind::Other),
        ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d.slice", CgroupKind::Other),
    ] {
        assert_eq!(CgroupKind::of(path), kind, "{path}");
    }
}

#[test]
fn programs_that_decide_no_call_are_left_out() {
    let link = |name: &str, kind: &str| Link { name: name.to_owned(), kind: Some(kind.to_owned()), ..Link::default() };
    let network = Network { links: vec![link("ifb0", "ifb"), link("br0", "bridge")], ..Network::default() };
    let action = |kind: &str, redirect: Option<&str>, mirror: Option<&str>| TcActionKind {
        kind: kind.to_owned(),
        redirect: redirect.map(str::to_owned),
        mirror: mirror.map(str::to_owned),
    };
    let filter = |actions: Vec<TcActionKind>| AttachedProgram {
        id: None,
        actions,
        ..on("eth0", program(ProgramHook::TcIngress, ""))
    };
    let cgroup = |program| AttachedProgram { cgroup: Some("/".to_owned()), ..program };
    for (program, expected) in [
        (on("eth0", program(ProgramHook::TcIngress, "watch")), true),
        (on("eth0", program(ProgramHook::Xdp, "")), true),
        (cgroup(program(ProgramHook::CgroupEgress, "sd_fw_egress")), false),
        (cgroup(program(ProgramHook::CgroupEgress, "count")), true),
        (cgroup(program(ProgramHook::Getpeername4, "cil_sock4_getpe")), false),
        (cgroup(program(ProgramHook::Other, "later")), false),
        (filter(vec![action("mirred", Some("ifb0"), None)]), false),
        (filter(vec![action("mirred", Some("br0"), None)]), true),
        (filter(vec![action("mirred", None, Some("br0")), action("police", None, None)]), false),
        (filter(vec![action("gact", None, None)]), true),
        (filter(Vec::new()), true),
    ] {
        assert_eq!(may_decide(&program, Some(&network)), expected, "{program:?}");
    }
}

#[test]
fn a_name_tells_the_owner() {
    let filter = |filter: &str| AttachedProgram {
        filter: Some(filter.to_owned()),
        ..program(ProgramHook::TcIngress, "handle_xgress")
    };
    for (program, expected) in [
        (program(ProgramHook::TcxIngress, "cil_from_contai"), Some("Cilium")),
        (filter("bpf_lxc.o:[from-container]"), Some("Cilium")),
        (program(ProgramHook::TcIngress, "cali_tc_preambl"), Some("Calico")),
        (program(ProgramHook::Connect4, "calico_connect_"), Some("Calico")),
        (
            on("eni0a1b2c3d4e5", program(ProgramHook::TcIngress, "handle_ingress")),
            Some("the Amazon VPC CNI's network policies"),
        ),
        (on("eth0", program(ProgramHook::TcIngress, "handle_ingress")), None),
        (filter("test.o:[classifier]"), None),
    ] {
        assert_eq!(owner(&program, None), expected, "{program:?}");
    }
}

#[test]
fn an_unnamed_program_is_that_of_the_nodes_cni() {
    let network =
        |name: &str| Network { links: vec![Link { name: name.to_owned(), ..Link::default() }], ..Network::default() };
    let unnamed = program(ProgramHook::TcxIngress, "");
    for (interface, expected) in
        [("cilium_host", Some("Cilium")), ("bpfin.cali", Some("Calico")), ("cilium_vxlan0", None)]
    {
        assert_eq!(owner(&unnamed, Some(&network(interface))), expected, "{interface}");
    }
    assert_eq!(owner(&program(ProgramHook::TcxIngress, "watch"), Some(&network("cilium_host"))), None);
}

#[test]
fn a_program_on_many_interfaces_is_one_group() {
    let known = KnownAddresses::default();
    let at = |names: &[&str]| {
        let programs = names.iter().map(|name| on(name, program(ProgramHook::TcIngress, "cil_from_contai")));
        Snapshot { programs: Some(programs.collect()), ..Snapshot::default() }
    };
    let (few, many) = (at(&["lxc1", "lxc2"]), at(&["lxc1", "lxc2", "lxc3", "lxc4"]));
    let sentence = |snapshot: &Snapshot, place| AttachedPrograms::of(snapshot, &known).groups[0].sentence(place);
    assert_eq!(sentence(&few, Some("lxc2")), "tc ingress of lxc2 runs the program cil_from_contai (Cilium)");
    let expected = "tc ingress of lxc1 and 3 more interfaces runs the program cil_from_contai (Cilium)";
    assert_eq!(sentence(&many, Some("lxc2")), expected);
    assert_eq!(AttachedPrograms::of(&many, &known).groups.len(), 1);
}

#[test]
fn an_interface_has_those_below_it() {
    let link = |name: &str, kind: &str, controller: Option<&str>, lower: Option<&str>| Link {
        name: name.to_owned(),
        kind: Some(kind.to_owned()),
        controller: controller.map(str::to_owned),
        lower: lower.map(str::to_owned),
        ..Link::default()
    };
    let links = vec![
        link("eth0", "virtio", Some("bond0"), None),
        link("eth1", "virtio", Some("bond0"), None),
        link("bond0", "bond", None, None),
        link("bond0.7", "vlan", None, Some("bond0")),
        link("cni0", "bridge", None, None),
        link("veth1", "veth", Some("cni0"), Some("eth0")),
    ];
    let network = Network { links, ..Network::default() };
    for (name, expected) in [
        ("bond0.7", &["bond0", "bond0.7", "eth0", "eth1"][..]),
        ("eth1", &["eth1"]),
        ("cni0", &["cni0"]),
        ("cni0-port3", &["cni0-port3", "veth1"]),
    ] {
        assert_eq!(way::devices(name, &network).into_iter().collect::<Vec<_>>(), expected, "{name}");
    }
}
