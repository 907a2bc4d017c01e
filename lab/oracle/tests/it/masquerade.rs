use svclab_oracle::{Cni, Delivery, DetectLocalMode, MasqueradeSource, Mode, ProxySettings, World};

use crate::test_cluster::{PORT, TestCluster, ip, net};

fn with(policies: &str) -> TestCluster {
    TestCluster::web(policies, &["x@node-a"])
}

fn detecting(detect: DetectLocalMode, cni: Cni) -> TestCluster {
    with("").with(|world| {
        world.proxy.detect_local = detect;
        world.cni = cni;
    })
}

/// The scenarios `detect-local-*`.
#[test]
fn detect_local_decides_about_masquerade() {
    let kept = "pod/caller-a | 10.96.0.1:80 | x*1/1>client | kept";
    let replaced = "pod/caller-a | 10.96.0.1:80 | x*1/1>node-a | off-cluster";
    let range = |text: &str| DetectLocalMode::ClusterCidr(vec![net(text)]);
    let bridge = |name: &str| DetectLocalMode::BridgeInterface(name.to_owned());
    let prefix = |name: &str| DetectLocalMode::InterfaceNamePrefix(name.to_owned());
    let rows = [
        (range("10.244.0.0/16"), Cni::Bridge, kept, true),
        (range("10.244.2.0/24"), Cni::Bridge, replaced, true),
        (range("fd00:244::/32"), Cni::Bridge, kept, false),
        (DetectLocalMode::NodeCidr, Cni::Bridge, kept, true),
        (bridge("cni0"), Cni::Bridge, kept, true),
        (bridge("docker0"), Cni::Bridge, replaced, true),
        (bridge("cni0"), Cni::PointToPoint, replaced, true),
        (prefix("veth"), Cni::PointToPoint, kept, true),
        (prefix("cali"), Cni::PointToPoint, replaced, true),
        (prefix("cni"), Cni::Bridge, kept, true),
        (DetectLocalMode::Off, Cni::Bridge, kept, false),
    ];
    for (detect, cni, pod, told) in rows {
        let seen = if told { "node-a" } else { "client" };
        detecting(detect, cni).expect(pod).expect(&format!(
            "client/laptop@node-a | 10.96.0.1:80 | x*1/1>{seen}
             node/node-a          | 10.96.0.1:80 | x*1/1>{seen}"
        ));
    }
}

#[test]
fn without_detection_outside_replies_go_astray() {
    detecting(DetectLocalMode::Off, Cni::Bridge).expect(
        "
        client/laptop@node-b | 10.96.0.1:80 | x*1/1>astray | astray
        node/node-b          | 10.96.0.1:80 | x*1/1>client
        ",
    );
}

#[test]
fn only_cluster_ranges_recognize_pods_of_other_nodes() {
    let cluster = |detect: DetectLocalMode| {
        with("externalTrafficPolicy: Local")
            .slice("web", PORT, &["y@node-b"])
            .with(|world| world.proxy.detect_local = detect)
    };
    cluster(DetectLocalMode::ClusterCidr(vec![net("10.244.0.0/16")]))
        .expect("pod/caller-c | 172.18.0.2:30080 | x*1/2>client, y*1/2>astray | short-circuit");
    cluster(DetectLocalMode::NodeCidr).expect("pod/caller-c | 172.18.0.2:30080 | x*1/1>client | external-local");
    cluster(DetectLocalMode::BridgeInterface("cni0".to_owned()))
        .expect("pod/caller-c | 172.18.0.2:30080 | x*1/1>client | external-local");
}

#[test]
fn a_hairpin_is_masqueraded() {
    for policies in ["", "externalTrafficPolicy: Local", "internalTrafficPolicy: Local"] {
        with(policies).expect(
            "
            pod/x | 10.96.0.1:80     | x*1/1>node-a
            pod/x | 203.0.113.1:80   | x*1/1>node-a
            pod/x | 198.51.100.7:80  | x*1/1>node-a
            pod/x | 172.18.0.2:30080 | x*1/1>node-a
            pod/x | 10.244.1.1:30080 | x*1/1>node-a
            ",
        );
    }
    with("").expect("pod/x | 172.18.0.3:30080 | x*1/1>node-b");
    with("").slice("web", PORT, &["y@node-b"]).expect("pod/x | 10.96.0.1:80 | x*1/2>node-a, y*1/2>client | hairpin");
}

#[test]
fn a_pod_on_the_host_network_is_its_node() {
    let mut cluster = with("").host_pod("agent", "node-b");
    cluster.objects.slices[0].endpoints.as_mut().unwrap()[0].addresses = vec!["172.18.0.3".to_owned()];
    cluster.objects.slices[0].endpoints.as_mut().unwrap()[0].node_name = Some("node-b".to_owned());
    cluster.expect(
        "
        pod/agent    | 10.96.0.1:80 | agent*1/1>node-b | off-cluster
        pod/agent    | 127.0.0.1:30080 | agent*1/1>node-b
        pod/caller-a | 10.96.0.1:80 | agent*1/1>client
        client/laptop@node-a | 10.96.0.1:80 | agent*1/1>node-a | off-cluster
        ",
    );
    // Masquerade happens in POSTROUTING, which packets to this node do not pass.
    cluster.expect(
        "
        client/laptop@node-b | 10.96.0.1:80     | agent*1/1>client
        client/laptop@node-b | 172.18.0.3:30080 | agent*1/1>client
        lb@node-b            | 172.18.0.3:30080 | agent*1/1>client
        ",
    );
    let quiet = cluster.clone().with(|world| world.proxy.detect_local = DetectLocalMode::Off);
    quiet.expect("pod/agent | 10.96.0.1:80 | agent*1/1>node-b | hairpin");
}

/// The scenarios `masquerade-source` and `no-masquerade`.
#[test]
fn a_chosen_source_replaces_every_other() {
    let seen = |settings: ProxySettings, from: &str, to: &str| {
        let cluster = with("").with(|world| world.proxy = ProxySettings { detect_local: detect(world), ..settings });
        seen(&cluster.delivery(from, to))
    };
    let primary = || ProxySettings { masquerade_source: MasqueradeSource::Primary, ..ProxySettings::default() };
    let both = MasqueradeSource::Addresses(vec![ip("172.18.0.9"), ip("fd00:18::9")]);
    let address = || ProxySettings { masquerade_source: both.clone(), ..ProxySettings::default() };
    let rows = [
        ("node/node-b", "10.96.0.1:80"),
        ("pod/x", "10.96.0.1:80"),
        ("pod/caller-a", "203.0.113.1:80"),
        ("client/laptop@node-a", "172.18.0.2:30080"),
    ];
    for (from, to) in rows {
        let node = if from == "node/node-b" { "172.18.0.3" } else { "172.18.0.2" };
        assert_eq!(seen(primary(), from, to), [ip(node)], "{from}");
        assert_eq!(seen(address(), from, to), [ip("172.18.0.9")], "{from}");
        let ipvs = ProxySettings { mode: Mode::Ipvs, ..address() };
        assert_eq!(seen(ipvs, from, to), [ip("172.18.0.9")], "{from}");
        let relayed = ProxySettings { mode: Mode::Userspace, ..address() };
        assert!(!seen(relayed, from, to).contains(&ip("172.18.0.9")), "{from}");
    }
    assert_eq!(seen(address(), "pod/caller-c", "10.96.0.1:80"), [ip("10.244.3.5")], "not masqueraded");
}

fn detect(world: &World) -> DetectLocalMode {
    world.proxy.detect_local.clone()
}

#[test]
fn the_node_itself_keeps_its_source_towards_exempt_endpoints() {
    let cluster = |range: &str| {
        let ranges = vec![net(range)];
        with("").slice("web", PORT, &["y@node-b"]).with(|world| world.proxy.no_masquerade = ranges)
    };
    cluster("10.244.0.0/16").expect(
        "
        node/node-a          | 10.96.0.1:80     | x*1/2>client, y*1/2>client | no-masquerade
        node/node-a          | 203.0.113.1:80   | x*1/2>client, y*1/2>client | no-masquerade
        node/node-c          | 172.18.0.2:30080 | x*1/2>node-a, y*1/2>node-a | external-masquerade
        loopback/node-a      | 127.0.0.1:30080  | x*1/2>node-a, y*1/2>node-a
        node/node-a=203.0.113.1 | 203.0.113.1:80 | x*1/2>node-a, y*1/2>node-a
        client/laptop@node-a | 172.18.0.2:30080 | x*1/2>node-a, y*1/2>node-a | external-masquerade
        client/laptop@node-a | 10.96.0.1:80     | x*1/2>node-a, y*1/2>node-a | off-cluster
        pod/caller-a         | 203.0.113.1:80   | x*1/2>node-a, y*1/2>node-a | external-masquerade
        pod/x                | 10.96.0.1:80     | x*1/2>node-a, y*1/2>client | hairpin
        ",
    );
    cluster("10.244.2.0/24").expect("node/node-a | 10.96.0.1:80 | x*1/2>node-a, y*1/2>client | no-masquerade");
    let none = "node/node-a | 10.96.0.1:80 | x*1/2>node-a, y*1/2>node-a | off-cluster";
    cluster("fd00:244::/32").expect(none);
    cluster("10.244.0.0/16")
        .with(|world| world.proxy.mode = Mode::Ipvs)
        .expect(&none.replace("off-cluster", "own-node"));
}

fn seen(delivery: &Delivery) -> Vec<std::net::IpAddr> {
    delivery.backends.iter().flat_map(|backend| backend.sees.iter().copied()).collect()
}

#[test]
fn a_promise_names_source_addresses() {
    let cluster = with("");
    assert_eq!(seen(&cluster.delivery("pod/caller-c", "10.96.0.1:80")), [ip("10.244.3.5")]);
    assert_eq!(seen(&cluster.delivery("client/laptop@node-b", "203.0.113.1:80")), [ip("10.244.2.1"), ip("172.18.0.3")]);
    let text = cluster.ask("pod/caller-c", "10.96.0.1:80").to_string();
    assert!(
        text.starts_with("the oracle says deliver to 10.244.1.13:8080 (default/x) 1/1, sees 10.244.3.5 because\n"),
        "{text}"
    );
    assert!(text.contains("cluster-ip: 10.96.0.1:80 is default/web – "), "{text}");
}
