//! A test cluster, and the notation of the tables.
//!
//! Three dual-stack nodes, `node-a`, `-b`, `-c`, in zones `a`, `b`, `c`: `172.18.0.2`, `.3`, `.4` (`fd00:18::2`, …),
//! with pods in `10.244.1.0/24`, … (`fd00:244:1::/64`, …), bridges at `.1`, and pods `caller-a`, … at `.5`. Outside:
//! `laptop`, `172.18.0.100`, `stranger`, `.101`, load balancer `172.18.0.200`.
//!
//! A row is `SOURCE | DESTINATION | PROMISE`, and optionally `| RULE`, a rule among the reasons.
//! - source: `pod/NAME`, `node/NAME`, `loopback/NAME`, `client/NAME@NODE`, `lb@NODE`; `=ADDRESS` sets the address
//! - destination: `ADDRESS:PORT`, with `/UDP` or `/SCTP`
//! - promise: `drop`, `reject`, `refuse` (either), `untouched`, `undefined`, or `POD*SHARE>SEEN`, …, where `SEEN` is
//!   `client`, a node, or `astray`

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use svclab_oracle::{
    Backend, Client, Delivery, DetectLocalMode, Mode, NodeMachine, Objects, PacketSource, PodMachine, PodName, Promise,
    PromisedReply, PromisedVerdict, Protocol, Question, World, ask,
};

use crate::drawn;

pub const PORT: &str = "[{port: 8080}]";

#[derive(Clone)]
pub struct TestCluster {
    pub objects: Objects,
    pub world: World,
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect(text)
}

pub fn net(text: &str) -> IpNet {
    text.parse().expect(text)
}

impl TestCluster {
    pub fn new() -> TestCluster {
        let mut cluster = TestCluster { objects: Objects::default(), world: World::default() };
        for (number, letter) in [(1, "a"), (2, "b"), (3, "c")] {
            let name = format!("node-{letter}");
            let (v4, v6) = (format!("172.18.0.{}", number + 1), format!("fd00:18::{}", number + 1));
            let node = json!({
                "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": letter}},
                "spec": {"podCIDRs": [format!("10.244.{number}.0/24"), format!("fd00:244:{number}::/64")]},
                "status": {"addresses": [
                    {"type": "Hostname", "address": name},
                    {"type": "InternalIP", "address": v4},
                    {"type": "InternalIP", "address": v6},
                ]},
            });
            cluster.objects.nodes.push(serde_json::from_value(node).unwrap());
            let gateways = vec![ip(&format!("10.244.{number}.1")), ip(&format!("fd00:244:{number}::1"))];
            cluster.world.nodes.push(NodeMachine {
                name: name.clone(),
                addresses: vec![ip(&v4), ip(&v6)],
                gateways,
                overlay: Vec::new(),
                second: Vec::new(),
            });
            cluster.pod(&format!("caller-{letter}"), &name, 5);
        }
        for (name, last) in [("laptop", 100), ("stranger", 101)] {
            let addresses = vec![ip(&format!("172.18.0.{last}")), ip(&format!("fd00:18::{last}"))];
            cluster.world.clients.push(Client { name: name.to_owned(), addresses });
        }
        cluster.world.load_balancer = vec![ip("172.18.0.200"), ip("fd00:18::200")];
        cluster.world.proxy.detect_local =
            DetectLocalMode::ClusterCidr(vec![net("10.244.0.0/16"), net("fd00:244::/32")]);
        cluster
    }

    pub fn with(mut self, change: impl FnOnce(&mut World)) -> TestCluster {
        change(&mut self.world);
        self
    }

    fn pod(&mut self, name: &str, node: &str, last: usize) {
        let number = 1 + self.world.nodes.iter().position(|place| place.name == node).unwrap();
        let addresses = vec![ip(&format!("10.244.{number}.{last}")), ip(&format!("fd00:244:{number}::{last:x}"))];
        let name = PodName { namespace: "default".to_owned(), name: name.to_owned() };
        self.world.pods.push(PodMachine { name, node: node.to_owned(), addresses, host_network: false });
    }

    pub fn host_pod(mut self, name: &str, node: &str) -> TestCluster {
        let addresses = self.world.nodes.iter().find(|place| place.name == node).unwrap().addresses.clone();
        let name = PodName { namespace: "default".to_owned(), name: name.to_owned() };
        self.world.pods.push(PodMachine { name, node: node.to_owned(), addresses, host_network: true });
        self
    }

    /// A service with every kind of address (port 80, node port 30080).
    pub fn web(fields: &str, endpoints: &[&str]) -> TestCluster {
        let spec = format!(
            "{{type: LoadBalancer, clusterIP: 10.96.0.1, externalIPs: [198.51.100.7], \
             ports: [{{port: 80, nodePort: 30080}}], {fields}}}"
        );
        TestCluster::new().balanced("web", &spec, json!([{"ip": "203.0.113.1"}])).slice("web", PORT, endpoints)
    }

    pub fn service(self, name: &str, spec: &str) -> TestCluster {
        self.labelled(name, json!({}), spec, json!([]))
    }

    pub fn balanced(self, name: &str, spec: &str, ingress: Value) -> TestCluster {
        self.labelled(name, json!({}), spec, ingress)
    }

    pub fn labelled(mut self, name: &str, labels: Value, spec: &str, ingress: Value) -> TestCluster {
        let spec: Value = serde_saphyr::from_str(spec).expect(spec);
        let object = json!({
            "metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": spec,
            "status": {"loadBalancer": {"ingress": ingress}},
        });
        let service: Service = serde_json::from_value(object).unwrap();
        self.objects.services.push(service);
        self
    }

    /// Sets the creation time of the last service, on 1 January.
    pub fn made(mut self, time: &str) -> TestCluster {
        let service = self.objects.services.last_mut().unwrap();
        service.metadata.creation_timestamp = serde_json::from_value(json!(format!("2026-01-01T{time}Z"))).unwrap();
        self
    }

    /// An endpoint is `POD@NODE` and words: `unready`, `terminating`, `serving`, `zone=Z`, `for=NODE`, `without_node`.
    /// Adds missing pods.
    pub fn slice(self, service: &str, ports: &str, endpoints: &[&str]) -> TestCluster {
        self.family_slice("IPv4", service, ports, endpoints)
    }

    pub fn family_slice(mut self, family: &str, service: &str, ports: &str, endpoints: &[&str]) -> TestCluster {
        let endpoints: Vec<Value> = endpoints.iter().map(|text| self.endpoint(family, text)).collect();
        let ports: Value = serde_saphyr::from_str(ports).expect(ports);
        let object = json!({
            "metadata": {
                "name": format!("{service}-{}", self.objects.slices.len()), "namespace": "default",
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": family, "ports": ports, "endpoints": endpoints,
        });
        let slice: EndpointSlice = serde_json::from_value(object).unwrap();
        self.objects.slices.push(slice);
        self
    }

    fn endpoint(&mut self, family: &str, text: &str) -> Value {
        let mut words = text.split_whitespace();
        let (pod, node) = words.next().unwrap().split_once('@').expect(text);
        if !self.world.pods.iter().any(|place| place.name.name == pod) {
            let last = 10 + self.world.pods.len();
            self.pod(pod, node, last);
        }
        let place = self.world.pods.iter().find(|place| place.name.name == pod).unwrap();
        let address = place.addresses[usize::from(family == "IPv6")];
        let words: Vec<&str> = words.collect();
        let has = |word: &str| words.contains(&word);
        let hints = |prefix: &str| -> Vec<Value> {
            words.iter().filter_map(|word| word.strip_prefix(prefix)).map(|name| json!({"name": name})).collect()
        };
        let terminating = has("terminating");
        let ready = !has("unready") && !terminating;
        let serving = if terminating { has("serving") } else { ready };
        json!({
            "addresses": [address],
            "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
            "nodeName": if has("without_node") { Value::Null } else { json!(node) },
            "hints": {"forZones": hints("zone="), "forNodes": hints("for=")},
        })
    }

    pub fn ask(&self, source: &str, destination: &str) -> Promise {
        ask(&self.objects, &self.world, &question(source, destination))
    }

    pub fn delivery(&self, source: &str, destination: &str) -> Delivery {
        match self.ask(source, destination) {
            Promise { verdict: PromisedVerdict::Deliver(delivery), .. } => delivery,
            promise => panic!("{promise}"),
        }
    }

    /// Like `expect`; in userspace mode `client` stands for the relaying node.
    pub fn expect_if_relayed(&self, table: &str) {
        drawn::can_be_drawn(&self.objects, &self.world);
        for row in rows(table) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let promise = self.ask(cells[0], cells[1]);
            let relay = match &promise.verdict {
                PromisedVerdict::Deliver(delivery) if self.world.proxy.mode == Mode::Userspace => {
                    format!(">{}", delivery.node)
                }
                _ => ">client".to_owned(),
            };
            assert_eq!(words(&promise.verdict), cells[2].replace(">client", &relay), "\n{row}\n{promise}");
        }
    }

    pub fn expect(&self, table: &str) -> &TestCluster {
        drawn::can_be_drawn(&self.objects, &self.world);
        for row in rows(table) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let promise = self.ask(cells[0], cells[1]);
            assert_eq!(words(&promise.verdict), cells[2], "\n{row}\n{promise}");
            if let Some(rule) = cells.get(3) {
                let rests = promise.because.iter().any(|reason| reason.rule.id() == *rule);
                assert!(rests, "{row}: not because of {rule}\n{promise}");
            }
        }
        self
    }
}

fn rows(table: &str) -> impl Iterator<Item = &str> {
    table.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#'))
}

pub fn question(source: &str, destination: &str) -> Question {
    let (source, address) = match source.split_once('=') {
        Some((source, address)) => (source, Some(ip(address))),
        None => (source, None),
    };
    let from = if let Some(enters) = source.strip_prefix("lb@") {
        PacketSource::LoadBalancer { enters: enters.to_owned() }
    } else {
        let (kind, name) = source.split_once('/').expect(source);
        match kind {
            "pod" => PacketSource::Pod(PodName { namespace: "default".to_owned(), name: name.to_owned() }),
            "node" => PacketSource::Node(name.to_owned()),
            "loopback" => PacketSource::Loopback(name.to_owned()),
            "client" => {
                let (client, enters) = name.split_once('@').expect(source);
                PacketSource::Outside { client: client.to_owned(), enters: enters.to_owned() }
            }
            other => panic!("{other} is no source"),
        }
    };
    let (to, protocol) = destination.split_once('/').unwrap_or((destination, "TCP"));
    let protocol = Protocol::ALL.into_iter().find(|known| known.name() == protocol).unwrap();
    Question { source: address, ..Question::new(from, to.parse().expect(to), protocol) }
}

pub fn words(verdict: &PromisedVerdict) -> String {
    match verdict {
        PromisedVerdict::Deliver(delivery) => {
            let mut backends: Vec<String> =
                delivery.backends.iter().map(|backend| one(backend, &delivery.node)).collect();
            backends.sort();
            backends.join(", ")
        }
        PromisedVerdict::Drop => "drop".to_owned(),
        PromisedVerdict::Reject => "reject".to_owned(),
        PromisedVerdict::Refuse => "refuse".to_owned(),
        PromisedVerdict::Untouched => "untouched".to_owned(),
        PromisedVerdict::Undefined => "undefined".to_owned(),
    }
}

fn one(backend: &Backend, node: &str) -> String {
    let pod = backend.pod.as_ref().map_or_else(|| backend.address.to_string(), |pod| pod.name.clone());
    let share = backend.share.map(|share| format!("*{share}")).unwrap_or_default();
    let seen = match backend.reply {
        PromisedReply::AsymmetricReply(_) => "astray",
        PromisedReply::From(_) if backend.masqueraded => node,
        PromisedReply::From(_) => "client",
    };
    format!("{pod}{share}>{seen}")
}
