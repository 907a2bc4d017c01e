#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

const HEAD: &str = "name: s
about: a test
cluster:
  nodes: 2
  clients: [laptop]
manifests: |
  apiVersion: v1
  kind: Pod
  metadata: {name: web-1, labels: {app: web}}
  spec:
    containers:
    - name: web
      ports: [{name: http, containerPort: 8080}]
  ---
  apiVersion: v1
  kind: Service
  metadata: {name: web}
  spec:
    type: NodePort
    selector: {app: web}
    ports: [{port: 80, targetPort: http, nodePort: 30080}]
";

fn load_text(text: &str) -> Result<Scenario, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.yaml");
    std::fs::write(&path, text).unwrap();
    let prefix = format!("{}/", directory.path().display());
    load(&path, 0).map_err(|error| error.to_string().replace(&prefix, ""))
}

fn errors(steps: &str) -> String {
    load_text(&format!("{HEAD}steps:\n{steps}")).map(|_| "no error".to_owned()).unwrap_or_else(|errors| errors)
}

const FINE: &str =
    "- name: one\n  probe: {from: client/laptop, to: nodePort/web@node-a}\n  expect: {answered: web-1}\n";

#[test]
fn a_scenario_loads_with_default_addresses() {
    let scenario = load_text(&format!("{HEAD}steps:\n{FINE}")).unwrap();
    let store = scenario.initial_objects().unwrap();
    let Action::Probe(probe) = &scenario.steps[0].action else { panic!("a probe") };
    let plan = resolve::probe(&store, probe, &scenario.steps[0].expect).unwrap();
    assert_eq!(plan.probe.to, "172.18.0.2:30080".parse().unwrap());
    assert_eq!(store.cluster_spec().pods[0].addresses, ["10.244.1.2".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(
        scenario.proxy.configuration(crate::mode::Mode::Iptables, Default::default())["clusterCIDR"],
        "10.244.0.0/16"
    );
}

#[test]
fn every_mistake_is_reported_with_its_line() {
    let two = format!("{FINE}{FINE}");
    let steps = [
        "- name: one\n  prob: {}\n",
        "- name: one\n",
        "- name: one\n  probe: {from: laptop, to: service/web}\n",
        "- name: one\n  probe: {from: client/laptop, to: service/wbe}\n  expect: {answered: web-1}\n",
        "- name: one\n  probe: {from: client/desktop, to: service/web}\n  expect: {answered: web-1}\n",
        "- name: one\n  probe: {from: client/laptop, to: 'service/web:443'}\n  expect: {answered: web-1}\n",
        "- name: one\n  probe: {from: client/laptop, to: service/web}\n  expect: {answered: web-2}\n",
        "- name: one\n  probe: {from: client/laptop, to: service/web}\n",
        "- name: one\n  probe: {from: client/laptop, to: service/web}\n  expect: {answered: web-1, refused: true}\n",
        "- name: one\n  probe: {from: client/laptop, to: service/web}\n  expect: {status: 3}\n",
        "- name: one\n  probe: {from: client/laptop, to: service/web, count: 3}\n  expect: {answered: web-1, sticky: true}\n",
        "- name: one\n  probe: {from: client/laptop, to: service/web, family: ipv6}\n  expect: {answered: web-1}\n",
        "- name: one\n  probe: {from: pod/web-1, to: service/web, via: node-a}\n  expect: {answered: web-1}\n",
        "- name: one\n  probe: {from: client/laptop, to: service/web, via: node-z}\n  expect: {answered: web-1}\n",
        "- name: one\n  unready: web-7\n",
        "- name: one\n  killProxy: node-q\n",
        "- name: one\n  send: c1\n",
        "- name: one\n  killProxy: {node: node-q, when: restoring}\n- name: two\n  unready: web-1\n",
        "- name: one\n  killProxy: {node: all, when: sleeping}\n",
        "- name: one\n  killProxy: {node: all, after: 3ms}\n",
        "- name: one\n  killProxy: {node: all, when: restoring}\n- name: two\n  startProxy: node-a\n",
        "- name: one\n  killProxy: {node: all, when: restoring}\n",
        "- name: one\n  partition: node-q\n",
        "- name: one\n  heal: node-a\n",
        "- name: one\n  impair: {node: node-q, delay: 5ms}\n",
        "- name: one\n  impair: {node: node-a}\n",
        "- name: one\n  impair: {node: node-a, delay: 5ms, jitter: 6ms}\n",
        "- name: one\n  impair: {node: node-a, loss: 10%, reorder: 10%}\n",
        "- name: one\n  impair: {node: node-a, loss: much}\n",
        "- name: one\n  impair: {node: node-a, los: 10%}\n",
        "- name: one\n  repair: node-a\n",
        "- name: one\n  sendStray: c1\n",
        "- name: one\n  probe: {from: client/laptop, to: nodePort/web@node-a, pair: true}\n  expect: {answered: web-1}\n",
        "- name: one\n  probe: {from: client/laptop, to: nodePort/web@node-a}\n  expect: {answered: web-1, took: 5ms}\n",
        "- name: one\n  probe: {from: client/laptop, to: '172.18.0.2:53', protocol: UDP, bytes: 65001}\n  expect: {dropped: true}\n",
        "- name: one\n  probe: {from: client/laptop, to: nodePort/web@node-a, bytes: 1000001}\n  expect: {answered: web-1}\n",
        "- name: one\n  probe: {from: client/laptop, to: nodePort/web@node-a, dscp: 64}\n  expect: {answered: web-1}\n",
        "- name: one\n  probe: {from: client/laptop, to: nodePort/web@node-a}\n  expect: {answered: web-1, sawDscp: 64}\n",
        "- name: one\n  probe: {from: client/laptop, to: nodePort/web@node-a}\n  expect: {refused: true, sawDscp: 46}\n",
        "- name: one\n  unready: web-1\n  expect: {took: \">=5ms\"}\n",
        "- name: one\n  partition: all\n- name: two\n  partition: [node-b]\n",
        "- name: one\n  idle: 300ms\n",
        "- name: one\n  unready: web-1\n  expect: {processor: \"<=5ms\", wakeUps: 3}\n",
        "- name: one\n  partition: node-a\n  expect: {dropped: true}\n",
        "- name: one\n  apply: |\n    apiVersion: v1\n    kind: Service\n    metadata: {name: x}\n    spec: {ports: [{prot: 80}]}\n",
        "- name: one\n  apply: |\n    apiVersion: v1\n    kind: Service\n    metadata: {name: x}\n    spec:\n      ports:\n      - port: many\n",
        &two,
        "- name: one\n  rules: [{at: node-a, chain: KUBE-SVC-X, packets: many}]\n",
        "- name: one\n  rules: [{at: node-a, chain: KUBE-SVC-X}]\n  eventually: soon\n",
    ];
    let shown = steps.map(errors);
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn mistakes_outside_the_steps_too() {
    let with = |from: &str, to: &str| {
        load_text(&format!("{HEAD}steps:\n{FINE}").replace(from, to))
            .map(|_| "no error".to_owned())
            .unwrap_or_else(|errors| errors)
    };
    let shown = [
        with("name: s\n", "name: t\n"),
        with("nodes: 2", "nodes: 0"),
        with("nodes: 2", "nodes: [{name: node-a, address: 10.1.1.1}]"),
        with("nodes: 2", "nodes: [{name: node-a, podCIDR: 10.1.1.0/24}]"),
        with("nodes: 2", "family: dual\n  podCIDR: 10.1.0.0/16"),
        with("clients: [laptop]", "clients: [Laptop]"),
        with("clients: [laptop]", "clients: [{name: laptop, address: 172.18.0.2}]"),
        with("nodes: 2", "knots: 2"),
        with("manifests:", "proxy: {detectLocalMode: BridgeInterface}\nmanifests:"),
        with("manifests:", "proxy: {iptables: {masqueradeBit: 300}}\nmanifests:"),
        with("manifests:", "proxy: {nodePortAddresses: [here]}\nmanifests:"),
        with("manifests:", "modes: [ebpf]\nmanifests:"),
        with("kind: Service", "kind: Ingress"),
        with("  type: NodePort\n", "  type: NodePort\n    clusterIP: 1.2.3.4\n"),
        with(&format!("steps:\n{FINE}"), "steps: []\n"),
        with("manifests: |", "manifests: [missing.yaml]\nabout2: |"),
    ];
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn notations_parse_and_reject() {
    use values::*;
    let target = |text: &str| text.parse::<ProbeTarget>();
    assert!(matches!(
        target("nodePort/web@node-a"),
        Ok(ProbeTarget::Service { frontend: ServiceFrontend::NodePort(_), .. })
    ));
    assert!(matches!(
        target("loadBalancer/web:80#2"),
        Ok(ProbeTarget::Service { frontend: ServiceFrontend::LoadBalancer(1), port: Some(_), .. })
    ));
    assert!(matches!(target("service/ingress/web:http"), Ok(ProbeTarget::Service { port: Some(_), .. })));
    assert!(matches!(target("[fd00::1]:80"), Ok(ProbeTarget::Address(_))));
    for wrong in ["web", "service/", "nodePort/web", "service/web@node-a", "service/web:", "pod/web", "a/b/c/d:1"] {
        assert!(target(wrong).is_err(), "{wrong}");
    }
    for wrong in ["service/web#2", "loadBalancer/web#0", "loadBalancer/web#two"] {
        assert!(target(wrong).is_err(), "{wrong}");
    }
    let share = |text: &str| text.parse::<Share>().map(|share| share.0);
    assert_eq!([share("1/4"), share("25%"), share("0.25")], [Ok(0.25), Ok(0.25), Ok(0.25)]);
    assert!(share("5/4").is_err() && share("1/0").is_err() && share("half").is_err());
    assert_eq!("2m".parse::<TimeSpan>().unwrap().0.as_secs(), 120);
    let bound = |text: &str| text.parse::<TimeBound>();
    let second = Duration::from_secs(1);
    assert_eq!([bound(">=1s"), bound("<= 1000ms")], [Ok(TimeBound::AtLeast(second)), Ok(TimeBound::AtMost(second))]);
    assert!(bound("1s").is_err() && bound(">1s").is_err() && bound(">=soon").is_err());
    assert!("2".parse::<TimeSpan>().is_err() && "s".parse::<TimeSpan>().is_err());
}

#[test]
fn an_even_spread_needs_many_probes() {
    let two = format!(
        "{HEAD}  ---\n  apiVersion: v1\n  kind: Pod\n  metadata: {{name: web-2, labels: {{app: web}}}}\n  spec: {{containers: [{{name: web, ports: [{{name: http, containerPort: 8080}}]}}]}}\n"
    );
    let step = |count: &str| {
        format!(
            "{two}steps:\n- name: one\n  probe: {{from: client/laptop, to: nodePort/web@node-a{count}}}\n  expect: {{answered: [web-1, web-2], spread: even}}\n"
        )
    };
    let scenario = load_text(&step("")).unwrap();
    let Action::Probe(probe) = &scenario.steps[0].action else { panic!("a probe") };
    let plan = resolve::probe(&scenario.initial_objects().unwrap(), probe, &scenario.steps[0].expect).unwrap();
    assert_eq!(Some(plan.count), crate::expect::stats::needed(&[0.5, 0.5], 0.5));
    assert!(load_text(&step(", count: 20")).unwrap_err().contains("at least"));
}

#[test]
fn a_finer_sensitivity_needs_more_probes() {
    let two = format!(
        "{HEAD}  ---\n  apiVersion: v1\n  kind: Pod\n  metadata: {{name: web-2, labels: {{app: web}}}}\n  spec: {{containers: [{{name: web, ports: [{{name: http, containerPort: 8080}}]}}]}}\n"
    );
    let step = |expect: &str| {
        let probe = "{from: client/laptop, to: nodePort/web@node-a, count: 1000}";
        format!("{two}steps:\n- name: one\n  probe: {probe}\n  expect: {{{expect}}}\n")
    };
    let count = |scenario: &Scenario| {
        let Action::Probe(probe) = &scenario.steps[0].action else { panic!("a probe") };
        resolve::probe(&scenario.initial_objects().unwrap(), probe, &scenario.steps[0].expect).unwrap().count
    };
    let mut scenario = load_text(&step("answered: [web-1, web-2], spread: even")).unwrap();
    assert_eq!(count(&scenario), 1000);
    for (of_run, expected) in [(0.4, 1000), (0.2, crate::expect::stats::needed(&[0.5, 0.5], 0.2).unwrap())] {
        scenario.set_sensitivity(of_run);
        assert_eq!(count(&scenario), expected, "{of_run}");
    }
    let wrong = |expect: &str| load_text(&step(expect)).unwrap_err();
    assert!(wrong("answered: [web-1, web-2], spread: even, sensitivity: 20%").contains("at least"));
    assert!(wrong("answered: [web-1, web-2], sensitivity: 40%").contains("sensitivity: it is for promised shares"));
    assert!(wrong("answered: [web-1, web-2], spread: even, sensitivity: 0%").contains("from 1% to 100%"));
    assert!(wrong("answered: [web-1, web-2], spread: all, sticky: true").contains("contradicts `sticky`"));
}

#[test]
fn needs_of_steps_are_implied() {
    let text = format!("{HEAD}steps:\n- name: three hours\n  advance: 3h\n");
    let scenario = load_text(&text).unwrap();
    assert_eq!(scenario.needs, [crate::mode::Need::VirtualTime].into());
    assert!(matches!(scenario.steps[0].action, Action::Advance(span) if span.0 == Duration::from_secs(10_800)));
    let text = format!("{HEAD}steps:\n- name: one\n  impair: {{node: all, loss: 10%}}\n- name: two\n  repair: all\n");
    assert_eq!(load_text(&text).unwrap().needs, [crate::mode::Need::Netem].into());
    let unknown = load_text(&format!("{HEAD}needs: [money]\nsteps: []\n")).unwrap_err();
    assert!(unknown.contains("money") && unknown.contains("virtualTime"), "{unknown}");
}

#[test]
fn sctp_without_its_need_is_an_error() {
    let head = HEAD
        .replace("containerPort: 8080}", "containerPort: 8080, protocol: SCTP}")
        .replace("targetPort: http, nodePort: 30080", "targetPort: 8080, protocol: SCTP");
    let steps =
        "steps:\n- name: one\n  probe: {from: client/laptop, to: nodePort/web@node-a}\n  expect: {answered: web-1}\n";
    let error = load_text(&format!("{head}{steps}")).unwrap_err();
    assert!(error.contains("many kernels have no SCTP: write `needs: [sctp]`"), "{error}");
    let scenario = load_text(&format!("{head}needs: [sctp]\n{steps}")).unwrap();
    assert_eq!(scenario.needs, [crate::mode::Need::Sctp].into());
}

#[test]
fn start_proxy_changes_the_mode() {
    let steps = "- name: one\n  startProxy: {node: node-a, mode: ipvs}\n- name: two\n  startProxy: all\n";
    let head = format!("{HEAD}modes: [iptables]\n");
    let scenario = load_text(&format!("{head}steps:\n{steps}")).unwrap();
    assert_eq!(scenario.needs, crate::mode::Mode::Ipvs.needs().iter().copied().collect());
    let modes = scenario.steps.iter().map(|step| match step.action {
        Action::StartProxy(ref file) => file.different.mode,
        _ => None,
    });
    assert_eq!(modes.collect::<Vec<_>>(), [Some(crate::mode::Mode::Ipvs), None]);
    for (more, says) in [
        ("- name: x\n  startProxy: {node: node-a, mode: ebpf}\n", "unknown variant `ebpf`"),
        ("- name: x\n  startProxy: {node: node-a, scheduler: fifo}\n", "unknown variant `fifo`"),
        (
            "- name: x\n  startProxy: {node: all, scheduler: lc}\n",
            "startProxy.scheduler: lc is IPVS mode's, in which node-b is not by then",
        ),
        ("- name: x\n  startProxy: {at: node-a, mode: ipvs}\n", "unknown field `at`"),
        (
            "- name: x\n  startProxy: {node: node-a, when: ended}\n",
            "startProxy.when: ended: a proxy ends by itself when",
        ),
        ("- name: x\n  startProxy: {node: node-a, masqueradeAll: true, when: late}\n", "unknown variant `late`"),
        ("- name: x\n  startProxy: 7\n", "a node, a list of nodes, or {node: NODE, mode: MODE, scheduler: SCHEDULER}"),
        ("- name: x\n  startProxy: {node: node-z, mode: ipvs}\n", "node-z"),
        (
            "- name: x\n  traffic: {name: t, from: client/laptop, to: nodePort/web@node-a, sourcePort: 7}\n- name: y\n  endTraffic: t\n",
            "traffic.sourcePort: one port has room for UDP alone",
        ),
        (
            "- name: x\n  rules: [{at: node-a, chain: KUBE-SERVICES}]\n",
            "a rule of iptables mode (`mode: iptables`, or none) on node-a, in ipvs by then",
        ),
        (
            "- name: x\n  startProxy: {node: all, mode: ipvs}\n- name: y\n  modes: [iptables]\n  unready: web-1\n",
            "no proxy is in mode iptables at this step, but ipvs",
        ),
    ] {
        let error = load_text(&format!("{head}steps:\n{steps}{more}")).unwrap_err();
        assert!(error.contains(says), "{more}: {error}");
    }
    // node-b is still in the old mode.
    for more in [
        "- name: x\n  modes: [iptables]\n  unready: web-1\n",
        "- name: x\n  rules: [{at: all, chain: KUBE-SVC}]\n",
        "- name: x\n  startProxy: {node: node-a, scheduler: lc}\n",
    ] {
        load_text(&format!("{head}steps:\n{steps}{more}")).unwrap();
    }
}

#[test]
fn faults_must_begin_and_end_once() {
    let fails = "- name: a\n  commandFault: {node: node-a, command: ip6tables-restore, does: fail}\n";
    let ends = "- name: z\n  endCommandFault: node-a\n";
    let scenario = load_text(&format!("{HEAD}variant: legacy\nsteps:\n{fails}{ends}")).unwrap();
    assert_eq!(scenario.variant, Some(IptablesVariant::Legacy));
    let keys: Vec<&str> = scenario.steps.iter().map(|step| step.key.key).collect();
    assert_eq!(keys, ["commandFault", "endCommandFault"]);
    for (steps, says) in [
        (ends.to_owned(), "endCommandFault: there is nothing to end on node-a; a `commandFault` step begins it"),
        (
            fails.to_owned(),
            "after it, ip6tables-restore fails on node-a, and nothing ends that: a step `endCommandFault` does",
        ),
        (
            format!("{fails}- name: b\n  commandFault: {{node: all, command: ip6tables-restore, does: hang}}\n{ends}"),
            "commandFault: ip6tables-restore fails on node-a already; `endCommandFault` ends that",
        ),
        (
            format!("{fails}- name: b\n  holdLock: [node-a, node-b]\n- name: c\n  releaseLock: node-a\n{ends}"),
            "after it, the lock of iptables is held on node-b, and nothing ends that: a step `releaseLock` does",
        ),
        (
            "- name: a\n  busyWriter: {node: node-a}\n- name: b\n  busyWriter: {node: node-a}\n".to_owned(),
            "busyWriter: a program writes rules of its own 100 times a second on node-a already",
        ),
        (
            "- name: a\n  busyWriter: {node: node-a, perSecond: 0}\n".to_owned(),
            "busyWriter.perSecond: expected 1 to 1000",
        ),
        (fails.replace("ip6tables-restore", "nft"), "unknown variant `nft`, expected one of iptables, iptables-save,"),
        (
            fails.replace("does: fail", "does: nothing"),
            "unknown variant `nothing`, expected one of fail, hang, garbage",
        ),
        (fails.replace("node-a", "node-q"), "\"node-q\" is no node of this cluster"),
    ] {
        let error = load_text(&format!("{HEAD}steps:\n{steps}")).unwrap_err();
        assert!(error.contains(says), "{steps}: {error}");
    }
    let error = load_text(&format!("{HEAD}variant: auto\nsteps:\n{FINE}")).unwrap_err();
    assert!(error.contains("unknown variant `auto`, expected one of nft, legacy"), "{error}");
}

#[test]
fn metrics_and_health_of_proxies_are_checked() {
    let note = "- name: a\n  metric: {node: node-a, name: syncs}\n";
    let steps = format!("{note}- name: b\n  metric: {{node: node-a, name: syncs}}\n  expect: {{grew: 0}}\n");
    let health = "- name: c\n  healthCheck: {node: node-a, path: /livez}\n  expect: {status: 503}\n";
    let scenario = load_text(&format!("{HEAD}steps:\n{steps}{health}")).unwrap();
    assert_eq!(scenario.steps[2].key.key, "healthCheck");
    for (steps, says) in [
        (
            steps.replacen("node-a", "node-b", 1),
            "grew: no earlier step takes note of syncs on node-a; a `metric` step without `expect` does",
        ),
        (note.replace("node-a", "node-q"), "\"node-q\" is no node of this cluster"),
        (format!("{note}  expect: {{grew: some}}\n"), "\"some\": expected a number, \">=N\""),
        (
            format!("{FINE}- name: b\n  healthCheck: {{node: node-a, path: /livez}}\n"),
            "without `expect` promises nothing",
        ),
        (format!("{FINE}- name: b\n  unready: web-1\n  expect: {{grew: 0}}\n"), "`grew` says nothing about `unready`"),
        (health.replace("/livez", "/metrics"), "unknown variant `/metrics`, expected one of /healthz, /livez, /readyz"),
        (
            health.replace(", path: /livez", ""),
            "healthCheck: expected either a `service`, or the `path` of the proxy's own health",
        ),
        (health.replace("status: 503", "localEndpoints: 1"), "localEndpoints: they are a service's"),
    ] {
        let error = load_text(&format!("{HEAD}steps:\n{steps}")).unwrap_err();
        assert!(error.contains(says), "{steps}: {error}");
    }
}

#[test]
fn excessive_numbers_and_files_are_errors() {
    let probe = |keys: &str| {
        errors(&format!(
            "- name: one\n  probe: {{from: client/laptop, to: service/web, {keys}}}\n  expect: {{answered: web-1}}\n"
        ))
    };
    assert!(probe("count: 1000000000000").contains("count: expected at most 1000000 probes"));
    assert!(probe("concurrency: 1000000000").contains("concurrency: expected at most 10000 at a time"));
    let traffic =
        errors("- name: one\n  traffic: {name: t, from: client/laptop, to: service/web, concurrency: 1000000000}\n");
    assert!(traffic.contains("concurrency: expected at most 10000"), "{traffic}");
    let scale = errors("- name: one\n  scale: {pod: web-1, to: 100000000000}\n");
    assert!(scale.contains("scale.to: expected at most 10000 copies"), "{scale}");
    for file in ["/dev/zero", "/dev/null"] {
        let text = format!("name: s\nabout: a test\nmanifests: [{file}]\nsteps:\n{FINE}");
        let refused = load_text(&text).unwrap_err();
        assert!(refused.contains(&format!("cannot read the manifest {file}: it is no regular file")), "{refused}");
    }
}

#[test]
fn rules_of_nftables_name_a_chain_map_or_set() {
    let rules = |rule: &str| format!("{HEAD}steps:\n- name: x\n  rules: [{{at: all, {rule}}}]\n");
    for rule in [
        "nft: ip kube-proxy",
        "nft: ip kube-proxy, mode: iptables, exists: false",
        "nft: inet mine, chain: input, rule: [counter, drop], packets: 3",
        "nft: ip6 kube-proxy, map: service-ips, element: tcp . 80",
        "nft: ip kube-proxy, set: [cluster-ips, nodeport-ips], exists: false",
    ] {
        load_text(&rules(rule)).unwrap();
    }
    for (rule, says) in [
        ("rule: x", "expected `chain`, or `nft` for a table of nftables"),
        ("chain: X, element: x", "`element` goes with `nft`, which names a table"),
        (
            "nft: kube-proxy",
            "nft: expected a family (ip, ip6, inet, arp, bridge, netdev) and a table, such as `ip kube-proxy`",
        ),
        ("nft: ip kube-proxy x", "nft: expected a family"),
        ("nft: ip x, table: filter, chain: one", "`table` and `family` are iptables'"),
        ("nft: ip x, chain: one, map: two", "expected one of `chain`, `map` and `set`"),
        ("nft: ip x, map: two, rule: one", "`rule` goes with `chain`"),
        ("nft: ip x, chain: two, element: one", "`element` goes with `map` or `set`"),
        ("nft: ip x, packets: 3", "`packets` goes with `chain`, `map` or `set`"),
    ] {
        let error = load_text(&rules(rule)).unwrap_err();
        assert!(error.contains(says), "{rule}: {error}");
    }
    let error = load_text(&rules("nft: ip kube-proxy").replace("name: s\n", "name: s\nmodes: [ipvs]\n")).unwrap_err();
    assert!(
        error.contains("a rule of nftables mode (`mode: nftables`, or none) on node-a, node-b, in ipvs by then"),
        "{error}"
    );
}

#[test]
fn the_old_name_of_the_key_at_is_still_read() {
    // Editors with YAML 1.1 take a plain `on` for `true`, and may have quoted it.
    for key in ["at", "on", "\"on\""] {
        let steps = format!(
            "- name: x\n  rules: [{{{key}: all, chain: KUBE-SERVICES}}]\n\
             - name: y\n  exec: {{{key}: node/node-a, command: [\"true\"]}}\n"
        );
        let scenario = load_text(&format!("{HEAD}steps:\n{steps}")).unwrap();
        let (Action::Rules(rules), Action::Exec(exec)) = (&scenario.steps[0].action, &scenario.steps[1].action) else {
            panic!("{key}: {scenario:?}")
        };
        assert_eq!((rules[0].at.0.len(), exec.command.len()), (1, 1));
    }
    let both = format!("{HEAD}steps:\n- name: x\n  rules: [{{at: all, on: all, chain: KUBE-SERVICES}}]\n");
    assert!(load_text(&both).unwrap_err().contains("duplicate field `at`"), "{}", load_text(&both).unwrap_err());
}

#[test]
fn an_object_that_no_api_accepts_is_a_mistake_unless_it_is_meant() {
    let head = HEAD.replace("    type: NodePort\n", "    type: NodePort\n    externalTrafficPolicy: local\n");
    let late = "- name: two\n  apply: |\n    apiVersion: v1\n    kind: Service\n    metadata: {name: late}\n    \
                spec: {ports: [{port: 80, protocol: tcp}]}\n";
    let found = |invalid: &str| {
        let loaded = load_text(&format!("{head}{invalid}steps:\n{FINE}{late}"));
        loaded.map(|_| String::new()).unwrap_or_else(|errors| errors)
    };
    insta::assert_snapshot!(found(""), @r#"
    s.yaml:20:5: service/default/web: spec.externalTrafficPolicy: Unsupported value: "local": supported values: "Cluster", "Local". No API server accepts it; if that is meant, say `invalid: service/default/web` at the top
    s.yaml:32:31: service/default/late: spec.ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP". No API server accepts it; if that is meant, say `invalid: service/default/late` at the top
    "#);
    insta::assert_snapshot!(found("invalid: [service/web, service/other, pod/web-1]\n"), @r#"
    s.yaml:23:24: invalid: the API would accept this object, or the scenario has none of that name
    s.yaml:23:39: invalid: the API would accept this object, or the scenario has none of that name
    s.yaml:33:31: service/default/late: spec.ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP". No API server accepts it; if that is meant, say `invalid: service/default/late` at the top
    "#);
    assert_eq!(found("invalid: [service/web, service/late]\n"), "");
    assert_eq!(found("invalid: all\n"), "");
}
