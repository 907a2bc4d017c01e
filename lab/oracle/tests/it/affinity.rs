use std::time::Duration;

use svclab_oracle::{Affinity, AffinityScope, Mode};

use crate::test_cluster::TestCluster;

fn web(endpoints: &[&str]) -> TestCluster {
    TestCluster::new()
        .service(
            "web",
            "{type: NodePort, clusterIP: 10.96.0.1, externalTrafficPolicy: Local, sessionAffinity: ClientIP,
              sessionAffinityConfig: {clientIP: {timeoutSeconds: 10}}, ports: [{port: 80, nodePort: 30080}]}",
        )
        .slice("web", "[{port: 8080}]", endpoints)
}

const ALL: [&str; 3] = ["x@node-a", "y@node-b", "z@node-b"];

/// Runs the steps. Columns: second, source, destination, pods that may answer, pod that answers.
fn follow(cluster: &TestCluster, affinity: &mut Affinity, steps: &str) {
    for step in steps.lines().map(str::trim).filter(|step| !step.is_empty()) {
        let cells: Vec<&str> = step.split('|').map(str::trim).collect();
        let [second, source, to, may, does] = cells[..] else { panic!("{step}") };
        let address = to.split('/').next().unwrap_or_default();
        let (delivery, to) = (cluster.delivery(source, to), address.parse().unwrap());
        let now = Duration::from_millis(second.replace('.', "").parse::<u64>().unwrap() * 100);
        let known = affinity.may_answer(&delivery, to, now);
        let name = |backend: &svclab_oracle::Backend| backend.pod.as_ref().unwrap().name.clone();
        let mut names: Vec<String> = known.iter().map(|backend| name(backend)).collect();
        names.sort();
        assert_eq!(names.join(" "), may, "{step}");
        let answers = known.iter().find(|backend| name(backend) == does).expect(step).address;
        affinity.answered(&delivery, to, answers, now);
    }
}

#[test]
fn an_entry_expires_after_the_timeout() {
    follow(
        &web(&ALL),
        &mut Affinity::default(),
        "
         0.0 | pod/caller-c | 10.96.0.1:80 | x y z | y
         5.0 | pod/caller-c | 10.96.0.1:80 | y     | y
        15.0 | pod/caller-c | 10.96.0.1:80 | y     | y
        ",
    );
    follow(
        &web(&ALL),
        &mut Affinity::default(),
        "
         0.0 | pod/caller-c | 10.96.0.1:80 | x y z | y
        10.1 | pod/caller-c | 10.96.0.1:80 | x y z | z
        11.0 | pod/caller-c | 10.96.0.1:80 | z     | z
        12.0 | pod/caller-b | 10.96.0.1:80 | x y z | x
        ",
    );
}

#[test]
fn an_endpoint_that_leaves_is_replaced() {
    let mut affinity = Affinity::default();
    follow(&web(&ALL), &mut affinity, "0.0 | pod/caller-c | 10.96.0.1:80 | x y z | y");
    follow(
        &web(&["x@node-a", "y@node-b unready", "z@node-b"]),
        &mut affinity,
        "1.0 | pod/caller-c | 10.96.0.1:80 | x z | x",
    );
    // The client has reached both pods within the timeout.
    follow(&web(&ALL), &mut affinity, "2.0 | pod/caller-c | 10.96.0.1:80 | x y | x");
}

#[test]
fn affinity_spans_the_addresses_of_a_service_port() {
    let steps = "
        0.0 | pod/caller-b | 10.96.0.1:80     | x y z | z
        1.0 | pod/caller-b | 172.18.0.3:30080 | z     | z
        2.0 | pod/caller-b | 172.18.0.2:30080 | x y z | x
        3.0 | pod/caller-b | 10.96.0.1:80     | z     | z
    ";
    follow(&web(&ALL), &mut Affinity::default(), steps);
}

#[test]
fn in_ipvs_mode_affinity_is_per_address() {
    let cluster = web(&ALL).with(|world| world.proxy.mode = Mode::Ipvs);
    let steps = "
        0.0 | pod/caller-c | 10.96.0.1:80     | x y z | z
        1.0 | pod/caller-c | 172.18.0.4:30080 | x y z | x
        2.0 | pod/caller-c | 10.96.0.1:80     | z     | z
    ";
    follow(&cluster, &mut Affinity::default(), steps);
}

fn two_ports(across_ports: &str, dns: &str) -> TestCluster {
    let ports = "[{name: http, port: 80, nodePort: 30080}, {name: dns, port: 53, protocol: UDP, nodePort: 30053}]";
    let spec = format!(
        "{{type: NodePort, clusterIP: 10.96.0.1, sessionAffinity: ClientIP,
          sessionAffinityConfig: {{clientIP: {{timeoutSeconds: 10}}}}, ports: {ports}}}"
    );
    let dns = format!("[{{name: dns, port: {dns}, protocol: UDP}}]");
    let mut cluster = TestCluster::new().service("web", &spec).slice("web", "[{name: http, port: 8080}]", &ALL).slice(
        "web",
        &dns,
        &["x@node-a", "y@node-b", "z@node-b unready"],
    );
    let annotations = cluster.objects.services[0].metadata.annotations.get_or_insert_default();
    annotations.insert("svcproxy/affinity-across-ports".to_owned(), across_ports.to_owned());
    cluster
}

#[test]
fn ports_share_clients_if_the_service_asks() {
    let steps = "
         0.0 | pod/caller-c | 10.96.0.1:80        | x y z | y
         1.0 | pod/caller-c | 10.96.0.1:53/UDP    | y     | y
         2.0 | pod/caller-c | 172.18.0.4:30053/UDP | y    | y
        11.5 | pod/caller-c | 10.96.0.1:80        | y     | y
        22.0 | pod/caller-c | 10.96.0.1:53/UDP    | x y   | x
        23.0 | pod/caller-c | 10.96.0.1:80        | x     | x
    ";
    follow(&two_ports("all", "5353"), &mut Affinity::default(), steps);
    // The other port lacks the endpoint; then the client has met two.
    let steps = "
         0.0 | pod/caller-c | 10.96.0.1:80        | x y z | z
         1.0 | pod/caller-c | 10.96.0.1:53/UDP    | x y   | y
         2.0 | pod/caller-c | 10.96.0.1:80        | y z   | z
    ";
    follow(&two_ports("all", "5353"), &mut Affinity::default(), steps);
    let steps = "
         0.0 | pod/caller-c | 10.96.0.1:80        | x y z | y
         1.0 | pod/caller-c | 10.96.0.1:53/UDP    | x y   | x
         2.0 | pod/caller-c | 10.96.0.1:80        | y     | y
    ";
    for other in ["none", "true", "All"] {
        follow(&two_ports(other, "5353"), &mut Affinity::default(), steps);
    }
    let in_ipvs = two_ports("all", "5353").with(|world| world.proxy.mode = Mode::Ipvs);
    follow(&in_ipvs, &mut Affinity::default(), steps);
}

#[test]
fn a_port_with_two_endpoints_at_one_address_keeps_its_own_clients() {
    let cluster = two_ports("all", "5353").slice("web", "[{name: http, port: 8081}]", &["z@node-b unready"]);
    let scope = |to| cluster.delivery("pod/caller-c", to).affinity.unwrap().scope;
    assert_eq!(scope("10.96.0.1:80"), AffinityScope::ServicePort);
    assert_eq!(scope("10.96.0.1:53/UDP"), AffinityScope::Service);
}

#[test]
fn without_affinity_every_endpoint_may_answer() {
    let cluster = TestCluster::new().service("web", "{clusterIP: 10.96.0.1, ports: [{port: 80}]}").slice(
        "web",
        "[{port: 8080}]",
        &ALL,
    );
    let steps = "
        0.0 | pod/caller-c | 10.96.0.1:80 | x y z | z
        0.0 | pod/caller-c | 10.96.0.1:80 | x y z | x
    ";
    follow(&cluster, &mut Affinity::default(), steps);
}

#[test]
fn the_default_timeout_is_three_hours() {
    let cluster = TestCluster::new()
        .service("web", "{clusterIP: 10.96.0.1, sessionAffinity: ClientIP, ports: [{port: 80}]}")
        .slice("web", "[{port: 8080}]", &ALL);
    assert_eq!(
        cluster.delivery("pod/caller-c", "10.96.0.1:80").affinity.unwrap().timeout,
        Duration::from_secs(3 * 60 * 60)
    );
}
