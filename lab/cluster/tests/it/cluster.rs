use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::support::clusters::{Families, ask, in_pod, node, out, pod, probe, replied, run, spec};
use crate::support::{SandboxCase, case};
use svclab_cluster::Cluster;
use svclab_cluster::process::{ProcessEnd, ProcessSpec};
use svclab_cluster::traffic::probe::{ClusterHost, Probe, ProbeAnswer};
use svclab_spec::{Cni, PodSpec, Protocol};

const EVERY: [Cni; 3] = [Cni::Bridge, Cni::PointToPoint, Cni::Ptp];

pub const CASES: &[SandboxCase] = &[
    case!(Inside every_host_reaches_every_pod),
    case!(Inside a_client_without_a_route_is_unreachable),
    case!(Inside untranslated_service_addresses_time_out),
    case!(Inside a_hairpin_without_masquerade_times_out),
    case!(Inside stopped_servers_refuse_and_removed_pods_time_out),
    case!(Inside a_connection_serves_several_requests),
    case!(Inside commands_run_on_every_host),
    case!(Inside a_process_reports_output_and_end),
    case!(Inside two_thousand_probes_all_get_an_answer),
    case!(Inside no_two_probes_of_a_cluster_share_a_source_port),
    case!(Inside a_source_port_is_reusable_at_once),
    case!(Inside a_source_port_is_reusable_while_programs_are_started),
    case!(Inside every_refused_probe_gets_its_icmp_error),
    case!(Inside a_slow_machine_is_not_reported_as_a_drop),
];

/// By default the kernel limits ICMP errors to 50, then 1,000 per second.
async fn every_refused_probe_gets_its_icmp_error() {
    let spec = spec(Cni::Bridge, Families::Dual, 2, 2);
    let cluster = Cluster::build(&spec).await.unwrap();
    for address in &spec.nodes[1].addresses {
        let knock = Probe {
            timeout: Duration::from_secs(5),
            ..probe(in_pod(&spec.pods[0].name), Protocol::Udp, SocketAddr::new(*address, 9))
        };
        let outcomes = cluster.probe_many(vec![knock; 400], 400).await.unwrap();
        let heard = outcomes.iter().filter(|outcome| outcome.answer == ProbeAnswer::Refused).count();
        assert_eq!(heard, 400, "{address}");
    }
}

async fn every_host_reaches_every_pod() {
    for cni in EVERY {
        for families in Families::ALL {
            let spec = spec(cni, families, 2, 4);
            let cluster = Cluster::build(&spec).await.unwrap();
            let mut probes = Vec::new();
            let mut wanted = Vec::new();
            for target in &spec.pods {
                for (family, address) in target.addresses.iter().enumerate() {
                    for port in crate::support::clusters::PORTS {
                        let to = SocketAddr::new(*address, port.port);
                        for from in &spec.pods {
                            probes.push(probe(in_pod(&from.name), port.protocol, to));
                            let seen = Some(from.addresses[family]);
                            wanted.push((format!("default/{}", target.name), seen));
                        }
                        probes.push(probe(node("a"), port.protocol, to));
                        wanted.push((format!("default/{}", target.name), None));
                    }
                }
            }
            let outcomes = cluster.probe_many(probes.clone(), 64).await.unwrap();
            let mut wrong = Vec::new();
            for ((outcome, probe), (server, seen)) in outcomes.iter().zip(&probes).zip(&wanted) {
                let right = match &outcome.answer {
                    ProbeAnswer::Replied { server: who, peer, at, .. } => {
                        who == server
                            && *at == probe.to
                            && Some(*peer) == outcome.client
                            && seen.is_none_or(|seen| seen == peer.ip())
                    }
                    _ => false,
                };
                if !right {
                    wrong.push(format!("{} to {} ({server}): {outcome:?}", probe.from, probe.to));
                }
            }
            let all = outcomes.len();
            assert!(wrong.is_empty(), "{cni:?} {families:?}, {} of {all}:\n{}", wrong.len(), wrong.join("\n"));
        }
    }
}

async fn a_client_without_a_route_is_unreachable() {
    let mut spec = spec(Cni::Bridge, Families::V4, 2, 2);
    spec.pods.push(PodSpec {
        host_network: true,
        addresses: spec.nodes[1].addresses.clone(),
        ..pod("host", "b", 2, 0, Families::V4)
    });
    let cluster = Cluster::build(&spec).await.unwrap();
    let direct = ask(&cluster, out(), "192.168.0.2:8080").await;
    assert!(matches!(direct, ProbeAnswer::Replied { server, .. } if server == "default/host"));
    let without = ask(&cluster, out(), "10.244.1.10:8080").await;
    assert!(matches!(without, ProbeAnswer::Unreachable(_)), "{without:?}");

    let pods = "10.244.0.0/16".parse().unwrap();
    cluster.add_client_route("out", pods, "b").await.unwrap();
    let through_b = cluster.probe(&probe(out(), Protocol::Tcp, "10.244.2.11:8080".parse().unwrap())).await.unwrap();
    let client: IpAddr = "192.168.0.100".parse().unwrap();
    assert_eq!(replied(&through_b), ("default/p1", client));
    cluster.remove_client_route("out", pods).await.unwrap();
    let gone = ask(&cluster, out(), "10.244.2.11:8080").await;
    assert!(matches!(gone, ProbeAnswer::Unreachable(_)), "{gone:?}");
    assert!(cluster.remove_client_route("out", pods).await.is_err());
}

async fn untranslated_service_addresses_time_out() {
    for cni in EVERY {
        let cluster = Cluster::build(&spec(cni, Families::Dual, 1, 1)).await.unwrap();
        let mut probes = Vec::new();
        for to in ["10.96.0.10:80", "203.0.113.7:80", "[fd00:96::10]:80"] {
            for from in [in_pod("p0"), node("a")] {
                probes.push(probe(from, Protocol::Tcp, to.parse().unwrap()));
            }
        }
        for outcome in cluster.probe_many(probes, 6).await.unwrap() {
            assert_eq!(outcome.answer, ProbeAnswer::TimedOut, "{cni:?}");
        }
    }
}

/// Without masquerade a pod's packet to itself has a martian source.
async fn a_hairpin_without_masquerade_times_out() {
    for cni in EVERY {
        let cluster = Cluster::build(&spec(cni, Families::Dual, 1, 1)).await.unwrap();
        for (tool, service, to, own) in [
            ("iptables", "10.96.0.10", "10.244.1.10:8080", "10.244.1.10"),
            ("ip6tables", "fd00:96::10", "[fd00:244:0:1::10]:8080", "fd00:244:0:1::10"),
        ] {
            let dnat =
                format!("{tool} -t nat -A PREROUTING -d {service} -p tcp --dport 80 -j DNAT --to-destination {to}");
            run(&cluster, node("a"), &dnat).await;
            let service = SocketAddr::new(service.parse().unwrap(), 80);
            let mut itself = probe(in_pod("p0"), Protocol::Tcp, service);
            itself.timeout = Duration::from_millis(300);
            let bare = cluster.probe(&itself).await.unwrap().answer;
            assert_eq!(bare, ProbeAnswer::TimedOut, "{cni:?} {tool}");

            let masquerade = format!("{tool} -t nat -A POSTROUTING -s {own} -d {own} -j MASQUERADE");
            run(&cluster, node("a"), &masquerade).await;
            itself.timeout = Duration::from_secs(10);
            let outcome = cluster.probe(&itself).await.unwrap();
            let (server, seen) = replied(&outcome);
            assert_eq!(server, "default/p0", "{cni:?} {tool}");
            assert_ne!(seen, own.parse::<IpAddr>().unwrap(), "{cni:?} {tool}");
        }
    }
}

async fn stopped_servers_refuse_and_removed_pods_time_out() {
    let families = Families::V4;
    let cluster = Cluster::build(&spec(Cni::PointToPoint, families, 1, 2)).await.unwrap();
    let p0 = [("default".to_owned(), "p0".to_owned())];
    let target = "10.244.1.10:8080";
    let is_p0 = |answer: ProbeAnswer| matches!(answer, ProbeAnswer::Replied { server, .. } if server == "default/p0");
    assert!(is_p0(ask(&cluster, in_pod("p1"), target).await));

    cluster.set_serving("default", "p0", false).await.unwrap();
    assert_eq!(ask(&cluster, in_pod("p1"), target).await, ProbeAnswer::Refused);
    cluster.set_serving("default", "p0", true).await.unwrap();
    assert!(is_p0(ask(&cluster, in_pod("p1"), target).await));

    cluster.remove_pods(&p0).await.unwrap();
    assert_eq!(ask(&cluster, in_pod("p1"), target).await, ProbeAnswer::TimedOut);
    let links = run(&cluster, node("a"), "ip -o link").await.stdout;
    assert!(links.contains("veth1@") && !links.contains("veth0@"), "{links}");
    assert!(cluster.remove_pods(&p0).await.is_err());

    let again = [pod("p0", "a", 1, 10, families)];
    cluster.add_pods(&again).await.unwrap();
    assert!(is_p0(ask(&cluster, in_pod("p1"), target).await));
    let twice = cluster.add_pods(&again).await.unwrap_err().to_string();
    assert_eq!(twice, "pod default/p0: the name is used twice");
    assert_eq!(cluster.spec().pods.len(), 2);
}

async fn a_connection_serves_several_requests() {
    let cluster = Cluster::build(&spec(Cni::Bridge, Families::V4, 2, 2)).await.unwrap();
    let to = "10.244.2.11:8080".parse().unwrap();
    let opened = cluster.connect(&probe(in_pod("p0"), Protocol::Tcp, to)).await.unwrap();
    let mut connection = opened.ok().unwrap();
    let wait = Duration::from_secs(1);
    for _ in 0..3 {
        let answer = connection.ask(wait).await.unwrap();
        let wanted =
            ProbeAnswer::Replied { server: "default/p1".into(), peer: connection.client(), at: to, dscp: Some(0) };
        assert_eq!(answer, wanted);
    }
    cluster.set_serving("default", "p1", false).await.unwrap();
    let broken = connection.ask(wait).await.unwrap();
    assert!(matches!(broken, ProbeAnswer::Broken(_)), "{broken:?}");
    let refused = cluster.connect(&probe(in_pod("p0"), Protocol::Tcp, to)).await.unwrap();
    assert_eq!(refused.err().unwrap().answer, ProbeAnswer::Refused);
}

/// The runtime's only thread blocks past the time limit, so every reply is late.
async fn a_slow_machine_is_not_reported_as_a_drop() {
    const LIMIT: Duration = Duration::from_millis(100);
    let slow = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let cluster = Cluster::build(&spec(Cni::Bridge, Families::V4, 2, 2)).await.unwrap();
            tokio::spawn(async {
                loop {
                    let begin = Instant::now();
                    while begin.elapsed() <= LIMIT {
                        std::thread::park_timeout(LIMIT);
                    }
                    tokio::task::yield_now().await;
                }
            });
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let request = probe(in_pod("p0"), protocol, "10.244.2.11:8080".parse().unwrap());
                let outcome = cluster.probe(&Probe { timeout: LIMIT, ..request }).await.unwrap();
                assert!(outcome.took > LIMIT, "{:?}", outcome.took);
                assert!(matches!(outcome.answer, ProbeAnswer::Replied { .. }), "{protocol}: {outcome:?}");
            }
        });
    });
    tokio::task::spawn_blocking(|| slow.join()).await.unwrap().unwrap();
}

async fn commands_run_on_every_host() {
    let cluster = Cluster::build(&spec(Cni::Bridge, Families::V4, 2, 2)).await.unwrap();
    let devices = run(&cluster, node("a"), "ls /sys/class/net").await.stdout;
    let devices: BTreeSet<&str> = devices.split_whitespace().collect();
    assert!(devices.is_superset(&BTreeSet::from(["lo", "eth0", "cni0", "veth0"])), "{devices:?}");
    assert!(!devices.contains("veth1"), "{devices:?}");
    assert_eq!(run(&cluster, node("b"), "hostname").await.stdout, "b\n");
    let hairpin = run(&cluster, node("a"), "cat /sys/class/net/veth0/brport/hairpin_mode").await;
    assert_eq!(hairpin.stdout, "1\n");
    assert!(run(&cluster, in_pod("p0"), "ip -o addr").await.stdout.contains("10.244.1.10/24"));
    assert!(run(&cluster, ClusterHost::LoadBalancer, "ip -o addr").await.stdout.contains("192.168.0.200"));

    run(&cluster, node("a"), "touch /run/mine").await;
    let line = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let limit = Duration::from_secs(20);
    let other = cluster.exec(&node("b"), &line("test -e /run/mine"), limit).await.unwrap();
    assert_eq!(other.ended, ProcessEnd::Exited(1));
    let slow = cluster.exec(&node("a"), &line("sleep 60"), Duration::from_millis(50)).await;
    assert_eq!(slow.unwrap_err().to_string(), "running sleep in a: not within 50ms");
    let missing = cluster.exec(&node("a"), &line("/proc/nowhere"), limit).await.unwrap_err().to_string();
    assert!(missing.contains("/proc/nowhere") && missing.contains("No such file"), "{missing}");
    let unknown = cluster.exec(&node("z"), &line("true"), limit).await.unwrap_err();
    assert_eq!(unknown.to_string(), "there is no node z in this cluster");
}

async fn a_process_reports_output_and_end() {
    let cluster = Cluster::build(&spec(Cni::Bridge, Families::V4, 1, 0)).await.unwrap();
    let script = "trap 'echo bye; exit 7' TERM; echo hello $WHO; while :; do sleep 0.05; done";
    let process = ProcessSpec {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("WHO".into(), "world".into())],
    };
    let wait = Duration::from_secs(20);
    let handle = cluster.spawn_on_node("a", process.clone()).await.unwrap();
    assert!(handle.wait_for_log("hello world", wait).await);
    assert!(handle.is_alive());
    handle.signal(15).unwrap();
    assert_eq!(handle.wait(wait).await.unwrap(), ProcessEnd::Exited(7));
    assert_eq!(handle.log_tail(1), "bye\n");
    assert!(!handle.wait_for_log("never", wait).await);

    let handle = cluster.spawn_on_node("a", process.clone()).await.unwrap();
    assert!(handle.wait_for_log("hello", wait).await);
    handle.signal(9).unwrap();
    assert_eq!(handle.wait(wait).await.unwrap(), ProcessEnd::Signaled(9));

    let handle = cluster.spawn_on_node("a", process).await.unwrap();
    let own = format!("/proc/{}/stat", handle.pid());
    drop(handle);
    let ended = || !std::fs::read_to_string(&own).is_ok_and(|s| !s.contains(") Z "));
    crate::support::eventually("a dropped handle's process ends", ended);
}

async fn two_thousand_probes_all_get_an_answer() {
    let cluster = Cluster::build(&spec(Cni::Bridge, Families::V4, 2, 4)).await.unwrap();
    let many = |protocol, to: &str| -> Vec<Probe> {
        let to: SocketAddr = to.parse().unwrap();
        // A long time limit, because other tests use the CPUs, too.
        let one = |i| Probe { timeout: Duration::from_secs(10), ..probe(in_pod(&format!("p{}", i % 4)), protocol, to) };
        (0..2000).map(one).collect()
    };
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let begin = Instant::now();
        let outcomes = cluster.probe_many(many(protocol, "10.244.2.11:8080"), 200).await.unwrap();
        println!("2000 {protocol:?} probes: {:?}", begin.elapsed());
        assert!(outcomes.iter().all(|outcome| replied(outcome).0 == "default/p1"));
        let outcomes = cluster.probe_many(many(protocol, "10.244.2.11:9"), 200).await.unwrap();
        assert!(outcomes.iter().all(|outcome| outcome.answer == ProbeAnswer::Refused));
    }
}

async fn no_two_probes_of_a_cluster_share_a_source_port() {
    let cluster = Cluster::build(&spec(Cni::Bridge, Families::V4, 2, 2)).await.unwrap();
    let to = "10.244.2.11:8080".parse().unwrap();
    let mut ports = BTreeSet::new();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for pod in ["p0", "p0", "p1", "p0"] {
            // Of the 920 ports for datagrams two would be equal in all but one of a million runs if they were random.
            let outcomes = cluster.probe_many(vec![probe(in_pod(pod), protocol, to); 230], 20).await.unwrap();
            ports.extend(outcomes.iter().map(|outcome| outcome.client.unwrap().port()));
        }
    }
    let pairs = cluster.probe_pairs(&probe(in_pod("p0"), Protocol::Udp, to), 10).await.unwrap();
    ports.extend(pairs.iter().map(|outcome| outcome.client.unwrap().port()));
    assert_eq!(ports.len(), 8 * 230 + 10);
}

async fn a_source_port_is_reusable_at_once() {
    let cluster = Cluster::build(&spec(Cni::Bridge, Families::V4, 2, 2)).await.unwrap();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let mut fixed = probe(in_pod("p0"), protocol, "10.244.2.11:8080".parse().unwrap());
        fixed.source_port = Some(4711);
        fixed.source_address = Some("10.244.1.10".parse().unwrap());
        for _ in 0..20 {
            let outcome = cluster.probe(&fixed).await.unwrap();
            let peer = "10.244.1.10:4711".parse().unwrap();
            let wanted = ProbeAnswer::Replied { server: "default/p1".into(), peer, at: fixed.to, dscp: Some(0) };
            assert_eq!(outcome.answer, wanted);
        }
    }
    let mut foreign = probe(in_pod("p0"), Protocol::Tcp, "10.244.2.11:8080".parse().unwrap());
    foreign.source_address = Some("10.9.9.9".parse().unwrap());
    let error = cluster.probe(&foreign).await.unwrap_err().to_string();
    assert!(error.contains("binding a TCP socket to 10.9.9.9:"), "{error}");
}

/// A program that is being started has copies of all descriptors until its `exec`.
async fn a_source_port_is_reusable_while_programs_are_started() {
    let cluster = Cluster::build(&spec(Cni::Bridge, Families::V4, 2, 2)).await.unwrap();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let mut fixed = probe(in_pod("p0"), protocol, "10.244.2.11:8080".parse().unwrap());
        fixed.source_port = Some(4711);
        let starts = async {
            loop {
                run(&cluster, node("b"), "true").await;
            }
        };
        let probes = async {
            for _ in 0..400 {
                assert_eq!(replied(&cluster.probe(&fixed).await.unwrap()).0, "default/p1");
            }
        };
        tokio::select! {
            () = probes => {}
            () = starts => {}
        }
    }
}
