//! eBPF programs on the way: their calls are not judged, all others are.

use svclab_oracle::Mode;
use svclab_snapshot::Snapshot;
use svclab_snapshot::bpf::{AttachedProgram, ProgramHook};
use svclab_snapshot::network::Link;

use crate::{healthy, report};

fn program(hook: ProgramHook, place: &str, name: &str) -> AttachedProgram {
    let is_cgroup = place.starts_with('/');
    AttachedProgram {
        hook,
        interface: (!is_cgroup).then(|| place.to_owned()),
        cgroup: is_cgroup.then(|| place.to_owned()),
        id: Some(7),
        kind: "sched_cls".to_owned(),
        name: name.to_owned(),
        filter: None,
        actions: Vec::new(),
    }
}

fn with(snapshot: &Snapshot, programs: Vec<AttachedProgram>) -> Snapshot {
    Snapshot { programs: Some(programs), ..snapshot.clone() }
}

/// Removes every rule of the node's translation.
fn without_rules(snapshot: &Snapshot) -> Snapshot {
    let empty = "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n".to_owned();
    Snapshot { nft_v4: Some(empty.clone()), nft_v6: Some(empty), nft: None, ..snapshot.clone() }
}

fn on_every_pod(snapshot: &Snapshot) -> Vec<AttachedProgram> {
    let links = snapshot.network.iter().flat_map(|network| &network.links);
    let veths = links.filter(|link| link.kind.as_deref() == Some("veth"));
    veths.map(|link| program(ProgramHook::TcIngress, &link.name, "cil_from_contai")).collect()
}

#[test]
fn a_program_judges_the_calls_that_pass_it() {
    let node = healthy(Mode::Iptables);
    let all = report(&node);
    assert!(all.is_clean() && all.judged == all.calls, "{:?}", all.not_judged);
    for (programs, first, of_pods, of_outside) in [
        (on_every_pod(&node), "tc ingress of ", true, false),
        (
            vec![program(ProgramHook::TcxIngress, "eth0", "watch")],
            "tcx ingress of eth0 runs the program watch",
            false,
            true,
        ),
        (vec![program(ProgramHook::Xdp, "eth0", "")], "XDP of eth0 runs the program with id 7", false, true),
        (
            vec![program(ProgramHook::Connect4, "/", "cil_sock4_conne")],
            "connect4 of cgroup / runs the program cil_sock4_conne (Cilium)",
            true,
            false,
        ),
        (
            vec![program(ProgramHook::Connect4, "/kubepods.slice", "x")],
            "connect4 of cgroup /kubepods.slice",
            true,
            false,
        ),
    ] {
        let found = report(&with(&node, programs));
        assert!(found.is_clean(), "{first}");
        assert!(found.judged > 0 && found.judged < found.calls, "{first}: {} of {}", found.judged, found.calls);
        let said: Vec<&str> = found.not_judged.iter().map(|one| one.why.as_str()).collect();
        assert!(said.iter().all(|why| why.starts_with(first) && why.ends_with("is not known")), "{first}: {said:?}");
        let calls = |word: &str| found.not_judged.iter().any(|one| one.first.contains(word));
        assert_eq!(
            (calls("a pod of this node"), calls("a host outside")),
            (of_pods, of_outside),
            "{first}: {:?}",
            found.not_judged
        );
    }
}

#[test]
fn a_program_that_no_call_passes_is_ignored() {
    let node = healthy(Mode::Nftables);
    let programs = vec![
        program(ProgramHook::CgroupEgress, "/", "sd_fw_egress"),
        program(ProgramHook::CgroupIngress, "/system.slice/a.service", "count"),
        program(ProgramHook::TcIngress, "docker0", "watch"),
        program(ProgramHook::TcEgress, "eth9", "watch"),
        program(ProgramHook::Getpeername4, "/", "cil_sock4_getpe"),
    ];
    let found = report(&with(&node, programs));
    assert!(found.is_clean() && found.judged == found.calls, "{:?}", found.not_judged);
}

#[test]
fn rules_that_calls_pass_beside_programs_are_judged() {
    let node = healthy(Mode::Iptables);
    let rules = node.nft_v4.as_ref().map(|rules| rules.replace(":FORWARD ACCEPT", ":FORWARD DROP"));
    let broken = Snapshot { nft_v4: rules, ..with(&node, on_every_pod(&node)) };
    let found = report(&broken);
    assert!(!found.is_clean());
    let calls: Vec<&String> = found.wrong().flat_map(|finding| &finding.calls).collect();
    assert!(calls.iter().all(|call| !call.starts_with("a pod of this node")), "{calls:?}");
}

#[test]
fn a_node_whose_services_cilium_serves_is_one_sentence() {
    let node = without_rules(&healthy(Mode::Iptables));
    let unserved = report(&node);
    assert!(!unserved.is_clean(), "without programs the rules are missing");
    for config in [node.proxy_config.clone(), None] {
        let mut programs = on_every_pod(&node);
        programs.push(program(ProgramHook::Connect4, "/", "cil_sock4_conne"));
        let found = report(&Snapshot { proxy_config: config, ..with(&node, programs) });
        assert_eq!((found.mode, found.judged, found.findings.len()), ("Cilium", 0, 0));
        let [why] = found.not_judged.as_slice() else { panic!("{:?}", found.not_judged) };
        assert_eq!(why.count, found.calls);
        assert!(why.why.starts_with("Cilium serves this node's Services by eBPF programs"), "{}", why.why);
        assert!(
            why.why.contains("the program cil_from_contai at tc ingress of ")
                && why.why.contains(" at connect4 of cgroup /)"),
            "{}",
            why.why
        );
    }
}

#[test]
fn a_cni_in_the_proxys_place_is_known_by_its_interface() {
    for (interface, owner, by) in [
        ("ovn-k8s-mp0", "OVN-Kubernetes", "flows of Open vSwitch"),
        ("antrea-gw0", "Antrea", "flows of Open vSwitch"),
        ("cilium_host", "Cilium", "eBPF programs"),
    ] {
        let mut node = without_rules(&healthy(Mode::Iptables));
        let link = Link { name: interface.to_owned(), up: true, ..Link::default() };
        node.network.as_mut().unwrap().links.push(link);
        assert!(!report(&node).is_clean(), "a proxy runs here");
        for (source, config) in [(Some("ConfigMap kube-system/kube-proxy"), node.proxy_config.clone()), (None, None)] {
            let sources = source.map(|source| ("proxy/config.yaml".to_owned(), source.to_owned()));
            let sources = sources.into_iter().collect();
            let found = report(&Snapshot { proxy_config: config, sources, programs: None, ..node.clone() });
            assert_eq!((found.mode, found.judged, found.findings.len()), (owner, 0, 0));
            assert!(found.not_judged[0].why.contains(by), "{:?}", found.not_judged);
        }
    }
}
