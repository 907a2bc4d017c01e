//! Differences between modes, as `docs/limitations.md` lists them.

use serde_json::json;
use svclab_oracle::{AffinityScope, Balancing, LoadBalancing, Mode, Scheduler};

use crate::test_cluster::TestCluster;

fn with(mode: Mode, policies: &str, endpoints: &[&str]) -> TestCluster {
    TestCluster::web(policies, endpoints).with(|world| world.proxy.mode = mode)
}

#[test]
fn ipvs_policy_local_restricts_the_node() {
    with(Mode::Ipvs, "externalTrafficPolicy: Local", &["x@node-a", "y@node-b"]).expect(
        "
        pod/caller-a         | 203.0.113.1:80   | x*1/1>client | one-list-per-server
        pod/caller-a         | 172.18.0.2:30080 | x*1/1>client
        node/node-a          | 198.51.100.7:80  | x*1/1>node-a
        pod/caller-c         | 203.0.113.1:80   | x*1/2>client, y*1/2>client
        node/node-c          | 203.0.113.1:80   | x*1/2>node-c, y*1/2>node-c
        client/laptop@node-a | 203.0.113.1:80   | x*1/1>client
        client/laptop@node-c | 203.0.113.1:80   | drop
        pod/caller-a         | 10.96.0.1:80     | x*1/2>client, y*1/2>client
        ",
    );
}

#[test]
fn ipvs_service_addresses_are_local() {
    with(Mode::Ipvs, "", &["x@node-a"]).expect(
        "
        pod/caller-a         | 10.96.0.1:81     | reject | other-port-of-vip
        pod/caller-a         | 10.96.0.1:80/UDP | reject
        node/node-a          | 198.51.100.7:22  | reject
        client/laptop@node-a | 203.0.113.1:22   | reject
        client/laptop@node-a | 172.18.0.2:22    | untouched
        node/node-a          | 10.96.0.1:80     | x*1/1>node-a | own-node
        loopback/node-a      | 127.0.0.1:30080  | untouched    | localhost-node-ports
        ",
    );
    let quiet = with(Mode::Ipvs, "", &["x@node-a"]).with(|world| world.proxy.detect_local = Default::default());
    quiet.expect(
        "
        node/node-b  | 10.96.0.1:80 | x*1/1>node-b | own-node
        pod/caller-b | 10.96.0.1:80 | x*1/1>client
        ",
    );
}

#[test]
fn ipvs_source_ranges_allow_a_listed_node() {
    let cluster = with(Mode::Ipvs, "loadBalancerSourceRanges: [172.18.0.2/32]", &["x@node-a"]);
    cluster.expect(
        "
        node/node-a | 203.0.113.1:80 | x*1/1>node-a | source-ranges-own-node
        node/node-b | 203.0.113.1:80 | drop
        ",
    );
}

#[test]
fn nftables_mode_hashes_clients_where_the_node_or_the_service_asks() {
    let (address, port) = (Balancing::Consistent { with_port: false }, Balancing::Consistent { with_port: true });
    for (mode, of_node, asked, balancing) in [
        (Mode::Nftables, LoadBalancing::Random, None, Balancing::AtRandom),
        (Mode::Nftables, LoadBalancing::Random, Some("maglev"), address),
        (Mode::Nftables, LoadBalancing::Random, Some("maglev-port"), port),
        (Mode::Nftables, LoadBalancing::Random, Some("mh"), Balancing::AtRandom),
        (Mode::Nftables, LoadBalancing::MaglevPort, None, port),
        (Mode::Nftables, LoadBalancing::Maglev, Some("random"), Balancing::AtRandom),
        (Mode::Iptables, LoadBalancing::Random, Some("maglev"), Balancing::AtRandom),
        (Mode::Userspace, LoadBalancing::Random, Some("maglev"), Balancing::RoundRobin),
    ] {
        for policies in ["", "sessionAffinity: ClientIP"] {
            let mut cluster =
                with(mode, policies, &["x@node-a", "y@node-b"]).with(|world| world.proxy.load_balancing = of_node);
            let of_service = cluster.objects.services[0].metadata.annotations.get_or_insert_default();
            of_service.extend(asked.map(|asked| ("svcproxy/load-balancing".to_owned(), asked.to_owned())));
            let hashed = matches!(balancing, Balancing::Consistent { .. });
            let expected = if hashed && !policies.is_empty() { Balancing::AtRandom } else { balancing };
            let delivery = cluster.delivery("pod/caller-a", "10.96.0.1:80");
            assert_eq!(delivery.balancing, expected, "{mode:?} {asked:?} {policies}");
            assert!(delivery.backends.iter().all(|backend| backend.share.is_some() == expected.is_even()));
        }
    }
}

#[test]
fn ipvs_schedulers_decide_about_shares() {
    let rows = [
        (Scheduler::RoundRobin, Balancing::RoundRobin, "x*1/2>client, y*1/2>client"),
        (Scheduler::WeightedRoundRobin, Balancing::RoundRobin, "x*1/2>client, y*1/2>client"),
        (Scheduler::LeastConnections, Balancing::LeastConnections, "x>client, y>client"),
        (Scheduler::Locality, Balancing::ByLocality, "x>client, y>client"),
        (Scheduler::DestinationHash, Balancing::ByHash, "x>client, y>client"),
        (Scheduler::SourceHash, Balancing::ByHash, "x>client, y>client"),
        (Scheduler::Maglev, Balancing::ByHash, "x>client, y>client"),
    ];
    for (scheduler, balancing, promise) in rows {
        let cluster = with(Mode::Ipvs, "", &["x@node-a", "y@node-b"]).with(|world| world.proxy.scheduler = scheduler);
        cluster.expect(&format!("pod/caller-a | 10.96.0.1:80 | {promise}"));
        assert_eq!(cluster.delivery("pod/caller-a", "10.96.0.1:80").balancing, balancing);
    }
}

#[test]
fn userspace_endpoints_see_the_node() {
    with(Mode::Userspace, "externalTrafficPolicy: Local", &["x@node-a", "y@node-b"]).expect(
        "
        pod/caller-a         | 10.96.0.1:80     | x*1/2>node-a, y*1/2>node-a | relayed
        client/laptop@node-b | 203.0.113.1:80   | y*1/1>node-b
        client/laptop@node-c | 203.0.113.1:80   | drop
        pod/caller-c         | 203.0.113.1:80   | x*1/2>node-c, y*1/2>node-c
        pod/caller-c         | 172.18.0.2:30080 | x*1/2>node-a, y*1/2>node-a
        loopback/node-a      | 127.0.0.1:30080  | x*1/2>node-a, y*1/2>node-a
        pod/caller-a         | 10.96.0.1:81     | untouched
        ",
    );
}

#[test]
fn userspace_rejects_sctp() {
    let sctp = "{type: LoadBalancer, clusterIP: 10.96.0.1, loadBalancerSourceRanges: [192.0.2.0/24], ports: [{port: 80, protocol: SCTP, nodePort: 30080}]}";
    let cluster = |mode: Mode| {
        TestCluster::new()
            .balanced("web", sctp, json!([{"ip": "203.0.113.1"}]))
            .slice("web", "[{port: 8080, protocol: SCTP}]", &["x@node-a"])
            .with(|world| world.proxy.mode = mode)
    };
    cluster(Mode::Userspace).expect(
        "
        pod/caller-a         | 10.96.0.1:80/SCTP     | reject | not-relayed
        client/laptop@node-b | 172.18.0.3:30080/SCTP | reject
        client/laptop@node-b | 203.0.113.1:80/SCTP   | refuse
        ",
    );
    for mode in [Mode::Iptables, Mode::Ipvs] {
        cluster(mode).expect("pod/caller-a | 10.96.0.1:80/SCTP | x*1/1>client");
    }
}

#[test]
fn the_mode_decides_the_scope_of_affinity() {
    let rows = [
        (Mode::Iptables, AffinityScope::ServicePort),
        (Mode::Ipvs, AffinityScope::Frontend),
        (Mode::Userspace, AffinityScope::ServicePort),
        (Mode::Other, AffinityScope::Frontend),
    ];
    for (mode, scope) in rows {
        let cluster = with(mode, "sessionAffinity: ClientIP", &["x@node-a"]);
        assert_eq!(cluster.delivery("pod/caller-a", "10.96.0.1:80").affinity.unwrap().scope, scope);
    }
}

#[test]
fn where_the_modes_differ_nothing_is_promised_of_other_proxies() {
    with(Mode::Other, "", &["x@node-a"]).expect(
        "
        pod/caller-a         | 10.96.0.1:80     | x*1/1>client
        pod/caller-a         | 10.96.0.1:81     | undefined
        node/node-a          | 198.51.100.7:22  | undefined
        client/laptop@node-a | 172.18.0.2:22    | untouched
        client/laptop@node-a | 172.18.0.2:30080 | x*1/1>node-a
        loopback/node-a      | 127.0.0.1:30080  | undefined
        ",
    );
    // Policy Local restricts what comes from outside alone, as in all modes but IPVS.
    with(Mode::Other, "externalTrafficPolicy: Local", &["x@node-a", "y@node-b"]).expect(
        "
        pod/caller-a         | 203.0.113.1:80   | x*1/2>client, y*1/2>client
        client/laptop@node-a | 203.0.113.1:80   | x*1/1>client
        client/laptop@node-c | 203.0.113.1:80   | drop
        ",
    );
}

#[test]
fn the_modes_agree_otherwise() {
    for mode in Mode::ALL.into_iter().chain([Mode::Other]) {
        with(mode, "", &["x@node-a unready"]).expect(
            "
            pod/caller-a         | 10.96.0.1:80     | reject
            client/laptop@node-b | 172.18.0.3:30080 | reject
            ",
        );
        with(mode, "internalTrafficPolicy: Local", &["x@node-a"]).expect("pod/caller-b | 10.96.0.1:80 | drop");
        with(mode, "externalTrafficPolicy: Local", &["x@node-a"])
            .expect("client/laptop@node-b | 203.0.113.1:80 | drop");
        with(mode, "loadBalancerSourceRanges: [192.0.2.0/24]", &["x@node-a"]).expect(
            "
            pod/caller-b           | 203.0.113.1:80   | drop
            client/stranger@node-b | 203.0.113.1:80   | drop
            client/stranger@node-b | 172.18.0.3:30080 | x*1/1>node-b
            ",
        );
    }
}
