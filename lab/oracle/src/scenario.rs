//! A cluster and one question as a scenario file of the lab (its format: `docs/scenarios.md`), with what the oracle
//! promises as the expectation: a failing property becomes a file that reproduces it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::address::{Family, first_of};
use crate::cluster::ClusterModel;
use crate::promise::{Delivery, Promise, PromisedReply, PromisedVerdict};
use crate::question::{PacketSource, Protocol, Question};
use crate::rules::PromisePart;
use crate::settings::{DetectLocalMode, Mode, NodePortAddress, Scheduler};
use crate::world::{Cni, NodeMachine, PodMachine, ReversePath};

/// Probes where only the set of those who may answer is promised.
const SOME: u32 = 20;
/// Probes that are to meet silence; each costs its time.
const FEW: u32 = 3;

impl ClusterModel {
    /// The file's text. `name` is the file's name without `.yaml`.
    #[must_use]
    pub fn scenario_yaml(&self, name: &str, question: &Question) -> String {
        let promise = self.oracle().ask(question);
        let (probe, expect) = self.step(question, &promise);
        let about = format!("A generated cluster. {}.", one_line(question));
        let comments: String = promise.to_string().lines().map(|line| format!("# {line}\n")).collect();
        let mut text = self.head(name, &about, &comments, std::slice::from_ref(question));
        match (expect, self.world.nodes.first()) {
            (Some(expect), _) => {
                text.push_str(&format!("- name: what the oracle says\n  probe: {probe}\n  expect: {expect}\n"));
            }
            // A probe must expect something. The cluster can be brought up all the same.
            (None, Some(node)) => text.push_str(&format!(
                "# probe: {probe}\n- name: the oracle promises nothing that a step can say\n  exec: {{on: node/{}, command: [\"true\"]}}\n",
                node.name
            )),
            (None, None) => {}
        }
        text
    }

    /// The same with an audit of every node, and then each of `questions` that a step can say something of.
    #[must_use]
    pub fn audited_yaml(&self, name: &str, questions: &[Question]) -> String {
        let mut text = self.head(name, "A generated cluster.", "", questions);
        text.push_str("- name: every node's rules\n  audit: all\n");
        let oracle = self.oracle();
        for (number, question) in questions.iter().enumerate() {
            let promise = oracle.ask(question);
            if let (probe, Some(expect)) = self.step(question, &promise) {
                let asked = json!(format!("{}. {}", number + 1, one_line(question)));
                text.push_str(&format!("- name: {asked}\n"));
                // The address that was called stands for the whole of it: of real traffic nobody says which rule went wrong.
                let rules = || promise.because.iter().map(|reason| reason.rule);
                if let Some(rule) = rules().find(|rule| rule.part() == PromisePart::Frontend).or(rules().next()) {
                    text.push_str(&format!("  promise: {}\n", rule.id()));
                }
                text.push_str(&format!("  probe: {probe}\n  expect: {expect}\n"));
            }
        }
        text
    }

    /// Everything up to the first step.
    fn head(&self, name: &str, about: &str, comments: &str, questions: &[Question]) -> String {
        let asks = |protocol| questions.iter().any(|question| question.protocol == protocol);
        let mut text = format!("name: {name}\nabout: {about}\n\n{comments}");
        text.push_str(&format!("modes: [{}]\n", self.world.proxy.mode.name()));
        if asks(Protocol::Sctp) {
            text.push_str("needs: [sctp]\n");
        }
        let balanced = questions.iter().any(|question| matches!(question.from, PacketSource::LoadBalancer { .. }));
        let machines = self.machines(balanced);
        text.push_str(&format!("cluster: {machines}\nproxy: {}\n\nmanifests: |\n", self.settings()));
        let documents = self.manifests(asks(Protocol::Sctp));
        let documents: Vec<String> = documents.iter().map(|object| format!("  {object}\n")).collect();
        text.push_str(&documents.join("  ---\n"));
        text.push_str("\nsteps:\n");
        text
    }

    /// `cluster:`
    fn machines(&self, balanced: bool) -> Value {
        let nodes: Vec<Value> = self.world.nodes.iter().map(|node| self.node(node)).collect();
        let families = self.families();
        json!({
            "family": match families.as_slice() {
                [Family::V4] => "ipv4",
                [Family::V6] => "ipv6",
                _ => "dual",
            },
            "cni": match self.world.cni {
                Cni::Bridge => "bridge",
                Cni::PointToPoint => "point-to-point",
                Cni::Ptp => "ptp",
            },
            "overlay": if self.world.nodes.iter().any(|node| !node.overlay.is_empty()) { "vxlan" } else { "none" },
            "secondNetwork": self.world.nodes.iter().any(|node| !node.second.is_empty()),
            "reversePath": match self.world.reverse_path {
                ReversePath::Off => "off",
                ReversePath::Loose => "loose",
            },
            "nodes": nodes,
            "clients": self.world.clients.iter()
                .map(|client| json!({"name": client.name, "address": client.addresses})).collect::<Vec<_>>(),
            "loadBalancer": balanced,
        })
    }

    fn node(&self, node: &NodeMachine) -> Value {
        let families = self.families();
        let first = families.iter().filter_map(|family| first_of(&node.addresses, *family));
        let first: Vec<IpAddr> = first.collect();
        let extra: Vec<&IpAddr> = node.addresses.iter().filter(|address| !first.contains(address)).collect();
        let object = self.objects.node(&node.name);
        let ranges = object.and_then(|object| object.spec.as_ref()?.pod_cidrs.clone()).unwrap_or_default();
        let labels = object.and_then(|object| object.metadata.labels.as_ref());
        let mut value = json!({"name": node.name, "address": first, "podCIDR": ranges});
        if let Some(zone) = labels.and_then(|labels| labels.get("topology.kubernetes.io/zone")) {
            value["zone"] = json!(zone);
        }
        if !extra.is_empty() {
            value["extraAddresses"] = json!(extra);
        }
        value
    }

    /// `proxy:`
    fn settings(&self) -> Value {
        let proxy = &self.world.proxy;
        let mut value = json!({"iptables": {
            "masqueradeAll": proxy.masquerade_all, "localhostNodePorts": proxy.localhost_node_ports,
        }});
        match &proxy.detect_local {
            DetectLocalMode::Off => value["clusterCIDR"] = json!([]),
            DetectLocalMode::ClusterCidr(ranges) => value["clusterCIDR"] = json!(ranges),
            DetectLocalMode::NodeCidr => value["detectLocalMode"] = json!("NodeCIDR"),
            DetectLocalMode::BridgeInterface(name) => {
                value["detectLocalMode"] = json!("BridgeInterface");
                value["detectLocal"] = json!({ "bridgeInterface": name });
            }
            DetectLocalMode::InterfaceNamePrefix(prefix) => {
                value["detectLocalMode"] = json!("InterfaceNamePrefix");
                value["detectLocal"] = json!({ "interfaceNamePrefix": prefix });
            }
        }
        let entries = proxy.node_port_addresses.iter().map(|entry| match entry {
            NodePortAddress::Range(range) => range.to_string(),
            NodePortAddress::Primary => "primary".to_owned(),
            NodePortAddress::Localhost => "localhost".to_owned(),
            NodePortAddress::All => "all".to_owned(),
        });
        let entries: Vec<String> = entries.collect();
        // Scenarios know no word for all addresses but to say nothing.
        if !entries.is_empty() && !entries.iter().any(|entry| entry == "all") {
            value["nodePortAddresses"] = json!(entries);
        }
        if proxy.mode == Mode::Ipvs {
            value["ipvs"] = json!({ "scheduler": scheduler(proxy.scheduler) });
        }
        value
    }

    /// Pods, services and slices, an object a line: JSON is YAML. Pods listen over SCTP, which few kernels speak, only if
    /// that is asked for.
    fn manifests(&self, sctp: bool) -> Vec<Value> {
        let servers = self.servers();
        let pods = self.world.pods.iter().map(|pod| {
            let mut ports = servers.get(&pod.name).cloned().unwrap_or_default();
            ports.retain(|(protocol, _)| *protocol != Protocol::Sctp || sctp);
            manifest(pod, &ports)
        });
        let typed = |kind: &str, version: &str, object: Value| {
            let mut value = json!({"apiVersion": version, "kind": kind});
            if let (Some(to), Value::Object(from)) = (value.as_object_mut(), object) {
                to.extend(from.into_iter().filter(|(key, _)| key != "apiVersion" && key != "kind"));
            }
            value
        };
        let services = self.objects.services.iter().filter_map(|service| serde_json::to_value(service).ok());
        let slices = self.objects.slices.iter().filter_map(|slice| serde_json::to_value(slice).ok());
        let services = services.map(|service| typed("Service", "v1", service));
        let nodes = self.world.nodes.iter().filter_map(|node| self.declared(node));
        // The lab's API server has a ServiceCIDR of the same ranges in any case.
        nodes
            .chain(pods)
            .chain(services)
            .chain(slices.map(|slice| typed("EndpointSlice", "discovery.k8s.io/v1", slice)))
            .collect()
    }

    /// What the Node object says of its addresses, where that is not what the lab says by itself: the first of each family, as internal ones.
    fn declared(&self, node: &NodeMachine) -> Option<Value> {
        let object = self.objects.node(&node.name)?;
        let declared = json!(object.status.as_ref()?.addresses.as_ref()?);
        let families = self.families();
        let first = families.iter().filter_map(|family| first_of(&node.addresses, *family));
        let usual: Vec<Value> = first.map(|address| json!({"type": "InternalIP", "address": address})).collect();
        let differs = declared != json!(usual);
        let metadata = json!({"name": node.name});
        differs.then(
            || json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"addresses": declared}}),
        )
    }

    /// The probe and its expectation; `None` where nothing is promised, or nothing that a scenario can say.
    fn step(&self, question: &Question, promise: &Promise) -> (Value, Option<Value>) {
        let mut probe = json!({
            "from": match &question.from {
                PacketSource::Pod(name) => format!("pod/{name}"),
                PacketSource::Node(node) | PacketSource::Loopback(node) => format!("node/{node}"),
                PacketSource::Outside { client, .. } => format!("client/{client}"),
                PacketSource::LoadBalancer { .. } => "load-balancer".to_owned(),
            },
            "to": question.to.to_string(),
            "protocol": question.protocol.name(),
        });
        // Nodes' own addresses are on the network that hosts outside are on; for all others they have to be told a way.
        let near = self.world.nodes.iter().any(|node| node.addresses.contains(&question.to.ip()));
        if let (PacketSource::Outside { enters, .. }, false) = (&question.from, near) {
            probe["via"] = json!(enters);
        }
        if let Some(source) = question.source {
            probe["sourceAddress"] = json!(source);
        }
        let (count, expect) = match &promise.verdict {
            PromisedVerdict::Deliver(delivery) => delivered(delivery, &mut probe),
            PromisedVerdict::Drop => (Some(FEW), Some(json!({"dropped": true}))),
            PromisedVerdict::Reject => (Some(FEW), Some(json!({"refused": true}))),
            PromisedVerdict::Refuse => (Some(FEW), Some(json!({"unanswered": true}))),
            PromisedVerdict::Untouched => match self.listener(question.to, question.protocol) {
                Some(pod) => (Some(FEW), Some(json!({"answered": pod.to_string()}))),
                None => (Some(FEW), Some(json!({"unanswered": true}))),
            },
            PromisedVerdict::Undefined => (Some(1), None),
        };
        if let Some(count) = count {
            probe["count"] = json!(count);
        }
        (probe, expect)
    }
}

/// Who answered, in what proportion, and whom they saw.
fn delivered(delivery: &Delivery, probe: &mut Value) -> (Option<u32>, Option<Value>) {
    let astray =
        delivery.backends.iter().filter(|backend| matches!(backend.reply, PromisedReply::AsymmetricReply(_))).count();
    if astray > 0 {
        // Of a mixture nothing can be said in a word of scenarios.
        let none_returns = astray == delivery.backends.len();
        return (Some(FEW), none_returns.then(|| json!({"unanswered": true})));
    }
    // A pod may be several endpoints, with a port each.
    let mut parts: BTreeMap<String, u32> = BTreeMap::new();
    for backend in &delivery.backends {
        let name = backend.pod.as_ref().map_or_else(|| backend.address.ip().to_string(), ToString::to_string);
        *parts.entry(name).or_default() += 1;
    }
    let sees: BTreeSet<&IpAddr> = delivery.backends.iter().flat_map(|backend| &backend.sees).collect();
    let names: Vec<&String> = parts.keys().collect();
    let even = parts.values().all(|part| Some(part) == parts.values().next());
    let mut expect = Map::from_iter([("sawSource".to_owned(), json!(sees)), ("answered".to_owned(), json!(names))]);
    if delivery.affinity.is_some() {
        if names.len() > 1 {
            expect.insert("sticky".to_owned(), json!(true));
            probe["concurrency"] = json!(1);
        }
        return (Some(SOME), Some(Value::Object(expect)));
    }
    if names.len() == 1 || !delivery.balancing.is_even() {
        return (Some(SOME), Some(Value::Object(expect)));
    }
    if even {
        expect.insert("spread".to_owned(), json!("even"));
    } else {
        let of = delivery.backends.len();
        let shares = parts.iter().map(|(name, part)| (name.clone(), json!(format!("{part}/{of}"))));
        expect.insert("answered".to_owned(), Value::Object(shares.collect()));
    }
    (None, Some(Value::Object(expect)))
}

fn manifest(pod: &PodMachine, ports: &BTreeSet<(Protocol, u16)>) -> Value {
    let listens: Vec<Value> =
        ports.iter().map(|(protocol, port)| json!({"containerPort": port, "protocol": protocol.name()})).collect();
    let addresses: Vec<Value> = pod.addresses.iter().map(|address| json!({ "ip": address })).collect();
    let mut value = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": pod.name.namespace, "name": pod.name.name},
        "spec": {"nodeName": pod.node, "containers": [{"name": "main", "ports": listens}]},
    });
    if pod.host_network {
        value["spec"]["hostNetwork"] = json!(true);
    } else {
        value["status"] = json!({"podIP": pod.addresses.first(), "podIPs": addresses});
    }
    value
}

fn scheduler(scheduler: Scheduler) -> &'static str {
    match scheduler {
        Scheduler::RoundRobin => "rr",
        Scheduler::WeightedRoundRobin => "wrr",
        Scheduler::LeastConnections => "lc",
        Scheduler::Locality => "lblc",
        Scheduler::DestinationHash => "dh",
        Scheduler::SourceHash => "sh",
        Scheduler::Maglev => "mh",
    }
}

/// Free of what YAML would take for something.
fn one_line(question: &Question) -> String {
    question.to_string().replace('→', "to").replace(": ", " ")
}
