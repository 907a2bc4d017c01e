//! A scenario file (`docs/scenarios.md`) that expects the oracle's promise.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::address::{Family, first_of};
use crate::cluster::ClusterModel;
use crate::promise::{Delivery, Promise, PromisedReply, PromisedVerdict};
use crate::question::{PacketSource, Protocol, Question};
use crate::rules::PromisePart;
use crate::settings::{DetectLocalMode, MasqueradeSource, Mode};
use crate::world::{Cni, NodeMachine, PodMachine, ReversePath};

const DELIVERED_PROBES: u32 = 20;
/// Few probes: without an answer each waits for its whole timeout.
const SILENT_PROBES: u32 = 3;

impl ClusterModel {
    pub fn scenario_yaml(&self, name: &str, question: &Question) -> String {
        let promise = self.oracle().ask(question);
        let (probe, expect) = self.step(question, &promise);
        let about = format!("A generated cluster. {}.", plain_question(question));
        let comments: String = promise.to_string().lines().map(|line| format!("# {line}\n")).collect();
        let mut text = self.preamble(name, &about, &comments, std::slice::from_ref(question));
        match (expect, self.world.nodes.first()) {
            (Some(expect), _) => {
                text.push_str(&format!("- name: what the oracle says\n  probe: {probe}\n  expect: {expect}\n"));
            }
            // A probe step needs an expectation.
            (None, Some(node)) => text.push_str(&format!(
                "# probe: {probe}\n- name: the oracle promises nothing that a step can say\n  exec: {{at: node/{}, command: [\"true\"]}}\n",
                node.name
            )),
            (None, None) => {}
        }
        text
    }

    /// Audits every node, and asks the questions with an expectation.
    pub fn audited_yaml(&self, name: &str, questions: &[Question]) -> String {
        let mut text = self.preamble(name, "A generated cluster.", "", questions);
        text.push_str("- name: every node's rules\n  audit: all\n");
        let oracle = self.oracle();
        for (number, question) in questions.iter().enumerate() {
            let promise = oracle.ask(question);
            if let (probe, Some(expect)) = self.step(question, &promise) {
                let asked = json!(format!("{}. {}", number + 1, plain_question(question)));
                text.push_str(&format!("- name: {asked}\n"));
                // A probe cannot tell which rule failed: the called address's rule stands for all.
                let rules = || promise.because.iter().map(|reason| reason.rule);
                if let Some(rule) = rules().find(|rule| rule.part() == PromisePart::Frontend).or(rules().next()) {
                    text.push_str(&format!("  promise: {}\n", rule.id()));
                }
                text.push_str(&format!("  probe: {probe}\n  expect: {expect}\n"));
            }
        }
        text
    }

    fn preamble(&self, name: &str, about: &str, comments: &str, questions: &[Question]) -> String {
        let asks = |protocol| questions.iter().any(|question| question.protocol == protocol);
        let mut text = format!("name: {name}\nabout: {about}\n\n{comments}");
        text.push_str(&format!("modes: [{}]\n", self.world.proxy.mode.name()));
        if asks(Protocol::Sctp) {
            text.push_str("needs: [sctp]\n");
        }
        let balanced = questions.iter().any(|question| matches!(question.from, PacketSource::LoadBalancer { .. }));
        let machines = self.machines(balanced);
        text.push_str(&format!("cluster: {machines}\nproxy: {}\n\ninvalid: all\nmanifests: |\n", self.settings()));
        let documents = self.manifests(asks(Protocol::Sctp));
        let documents: Vec<String> = documents.iter().map(|object| format!("  {object}\n")).collect();
        text.push_str(&documents.join("  ---\n"));
        text.push_str("\nsteps:\n");
        text
    }

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
        let labels = object.and_then(|object| object.metadata.labels.as_ref());
        let mut value = json!({"name": node.name, "address": first, "podCIDR": self.objects.pod_ranges(&node.name)});
        if let Some(zone) = labels.and_then(|labels| labels.get("topology.kubernetes.io/zone")) {
            value["zone"] = json!(zone);
        }
        if !extra.is_empty() {
            value["extraAddresses"] = json!(extra);
        }
        value
    }

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
        let entries: Vec<String> = proxy.node_port_addresses.iter().map(ToString::to_string).collect();
        // Omits `all`, the default, for which scenarios have no word.
        if !entries.is_empty() && !entries.iter().any(|entry| entry == "all") {
            value["nodePortAddresses"] = json!(entries);
        }
        if !proxy.exempt_ranges().is_empty() {
            value["noMasqueradeCIDRs"] = json!(proxy.exempt_ranges());
        }
        if *proxy.chosen_source() != MasqueradeSource::OutgoingInterface {
            value["masqueradeSource"] = json!(proxy.chosen_source().to_string());
        }
        if proxy.mode == Mode::Ipvs {
            value["ipvs"] = json!({ "scheduler": proxy.scheduler.name() });
        }
        value
    }

    /// Returns the cluster's objects. With `sctp`, pods also listen over SCTP, which few kernels support.
    fn manifests(&self, sctp: bool) -> Vec<Value> {
        let listening_ports = self.listening_ports();
        let pods = self.world.pods.iter().map(|pod| {
            let mut ports = listening_ports.get(&pod.name).cloned().unwrap_or_default();
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
        let nodes = self.world.nodes.iter().filter_map(|node| self.declared_addresses(node));
        // The lab's API server creates the same ServiceCIDR.
        nodes
            .chain(pods)
            .chain(services)
            .chain(slices.map(|slice| typed("EndpointSlice", "discovery.k8s.io/v1", slice)))
            .collect()
    }

    /// `None` for the lab's default: the first address of each family, as InternalIP.
    fn declared_addresses(&self, node: &NodeMachine) -> Option<Value> {
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

    /// `None` if scenarios cannot state the promise.
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
        // Clients need a route to addresses outside the node network.
        let near = self.world.nodes.iter().any(|node| node.addresses.contains(&question.to.ip()));
        if let (PacketSource::Outside { enters, .. }, false) = (&question.from, near) {
            probe["via"] = json!(enters);
        }
        if let Some(source) = question.source {
            probe["sourceAddress"] = json!(source);
        }
        let (count, expect) = match &promise.verdict {
            PromisedVerdict::Deliver(delivery) => delivered(delivery, &mut probe),
            PromisedVerdict::Drop => (Some(SILENT_PROBES), Some(json!({"dropped": true}))),
            PromisedVerdict::Reject => (Some(SILENT_PROBES), Some(json!({"refused": true}))),
            PromisedVerdict::Refuse => (Some(SILENT_PROBES), Some(json!({"unanswered": true}))),
            PromisedVerdict::Untouched => match self.listener(question.to, question.protocol) {
                Some(pod) => (Some(SILENT_PROBES), Some(json!({"answered": pod.to_string()}))),
                None => (Some(SILENT_PROBES), Some(json!({"unanswered": true}))),
            },
            PromisedVerdict::Undefined => (Some(1), None),
        };
        if let Some(count) = count {
            probe["count"] = json!(count);
        }
        (probe, expect)
    }
}

fn delivered(delivery: &Delivery, probe: &mut Value) -> (Option<u32>, Option<Value>) {
    let astray =
        delivery.backends.iter().filter(|backend| matches!(backend.reply, PromisedReply::AsymmetricReply(_))).count();
    if astray > 0 {
        // Scenarios cannot state that only some replies arrive.
        let none_returns = astray == delivery.backends.len();
        return (Some(SILENT_PROBES), none_returns.then(|| json!({"unanswered": true})));
    }
    // Counts endpoints by pod.
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
        return (Some(DELIVERED_PROBES), Some(Value::Object(expect)));
    }
    if names.len() == 1 || !delivery.balancing.is_even() {
        return (Some(DELIVERED_PROBES), Some(Value::Object(expect)));
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

fn plain_question(question: &Question) -> String {
    question.to_string().replace('→', "to").replace(": ", " ")
}
