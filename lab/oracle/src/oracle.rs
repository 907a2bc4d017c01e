//! Applies the rules to a question, in order.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Service;

use crate::address::{self, Family};
use crate::arrival::{self, ServicePacket};
use crate::delivery;
use crate::endpoint::Endpoint;
use crate::endpoints::{self, SlicesByService};
use crate::firewall;
use crate::frontend::{self, DestinationKind};
use crate::frontends::{self, ServiceFrontend};
use crate::health;
use crate::modes;
use crate::policy;
use crate::port_index::PortIndex;
use crate::promise::{Delivery, Promise, PromisedVerdict};
use crate::question::{Protocol, Question};
use crate::rules::{Reasons, Rule};
use crate::service::{self, FrontendKind, ServicePort, ServicePortName};
use crate::topology::NodeLocation;
use crate::world::{Objects, World};

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

#[derive(Debug)]
pub struct Oracle<'a> {
    objects: &'a Objects,
    world: &'a World,
    v4: PortIndex,
    v6: PortIndex,
    /// The services that mention an address.
    mentions: HashMap<IpAddr, Vec<&'a Service>>,
}

pub fn ask(objects: &Objects, world: &World, question: &Question) -> Promise {
    Oracle::new(objects, world).ask(question)
}

impl<'a> Oracle<'a> {
    pub fn new(objects: &'a Objects, world: &'a World) -> Oracle<'a> {
        let slices = SlicesByService::new(&objects.slices);
        let ports = |family| {
            let ports = objects.services.iter().flat_map(|service| service::ports(service, family));
            let ports = ports.map(|port| ServicePort {
                endpoints: endpoints::copies(&slices, &port),
                external_ips: if world.proxy.external_ips { port.external_ips } else { Vec::new() },
                ..port
            });
            ports.collect()
        };
        let mut mentions: HashMap<IpAddr, Vec<&Service>> = HashMap::new();
        for service in &objects.services {
            for address in service::mentioned(service) {
                mentions.entry(address).or_default().push(service);
            }
        }
        Oracle { objects, world, v4: ports(Family::V4), v6: ports(Family::V6), mentions }
    }

    /// Returns all frontends; a node port is one entry without an address.
    pub fn frontends(&self) -> impl Iterator<Item = ServiceFrontend> + '_ {
        self.v4.iter().chain(self.v6.iter()).flat_map(frontends::of)
    }

    pub fn ask(&self, question: &Question) -> Promise {
        let mut reasons = Reasons::default();
        let verdict = self.verdict(question, &mut reasons);
        Promise { verdict, because: reasons.0 }
    }

    /// Returns the same call by other ports of the Service, where they deliver: at the same address, by the same kind of
    /// frontend.
    pub fn other_ports(&self, question: &Question, delivery: &Delivery) -> Vec<(Question, Delivery)> {
        let ports = if question.to.is_ipv4() { &self.v4 } else { &self.v6 };
        let is_other = |name: &ServicePortName| {
            name.of_all_ports() == delivery.service.of_all_ports() && *name != delivery.service
        };
        let numbers = ports.iter().filter(|port| is_other(&port.name)).filter_map(|port| {
            let number = if delivery.frontend == FrontendKind::NodePort { port.node_port? } else { port.port };
            Some((number, port.name.protocol))
        });
        let delivered = numbers.filter_map(|(number, protocol)| {
            let to = SocketAddr::new(question.to.ip(), number);
            let question = Question { to, protocol, ..question.clone() };
            match self.ask(&question).verdict {
                PromisedVerdict::Deliver(other) if is_other(&other.service) && other.frontend == delivery.frontend => {
                    Some((question, other))
                }
                _ => None,
            }
        });
        delivered.collect()
    }

    fn verdict(&self, question: &Question, reasons: &mut Reasons) -> PromisedVerdict {
        let ports = if question.to.is_ipv4() { &self.v4 } else { &self.v6 };
        let bound = frontend::is_bound_address(ports, question.to.ip());
        let Some(source) = self.world.source_address(question, bound) else {
            reasons.add(Rule::Family, format!("{} has no address to reach {} from", question.from, question.to));
            return PromisedVerdict::Untouched;
        };
        match frontend::find(self.objects, self.world, ports, question, reasons) {
            DestinationKind::Service { port, kind, node } => {
                let arrival = arrival::of_question(self.objects, self.world, question, node, source);
                let semantics = modes::semantics_at(&self.world.proxy, question.to.ip());
                self.decide(&ServicePacket { to: question.to, port, kind, arrival, semantics }, reasons)
            }
            DestinationKind::Shared | DestinationKind::Unclear => PromisedVerdict::Undefined,
            DestinationKind::Closed(rule, verdict) => {
                reasons.add(rule, question.to.to_string());
                verdict
            }
            DestinationKind::Nothing => {
                self.explain_nothing(ports, question, reasons);
                PromisedVerdict::Untouched
            }
        }
    }

    fn decide(&self, case: &ServicePacket<'_>, reasons: &mut Reasons) -> PromisedVerdict {
        let ServicePacket { port, arrival, semantics, .. } = case;
        let endpoints = match endpoints::merged(&port.endpoints, arrival.node, reasons) {
            Ok(endpoints) => endpoints,
            Err(address) => {
                reasons.add(Rule::Contradiction, address.to_string());
                return PromisedVerdict::Undefined;
            }
        };
        let anybody = policy::any_usable(&endpoints);
        let unspoken = match port.name.protocol {
            Protocol::Sctp => semantics.refuses_sctp,
            Protocol::Udp => semantics.refuses_udp,
            Protocol::Tcp => false,
        };
        if !firewall::allows(self.objects, self.world, case, reasons) {
            // Without endpoints, documentation leaves open whether to drop or reject. Where relays serve the loopback
            // range, no relay listens.
            return if anybody && !unspoken && !case.to.ip().is_loopback() {
                PromisedVerdict::Drop
            } else {
                PromisedVerdict::Refuse
            };
        }
        if unspoken {
            reasons.add(Rule::NotRelayed, port.name.to_string());
            return PromisedVerdict::Reject;
        }
        if !anybody {
            reasons.add(Rule::NoEndpoints, port.name.to_string());
            return PromisedVerdict::Reject;
        }
        let fallen_back = policy::fallen_back(case, &endpoints, reasons);
        let case = &ServicePacket { port: fallen_back.as_ref().unwrap_or(port), ..case.clone() };
        let reach = policy::reach(case, reasons);
        let chosen = policy::select(&endpoints, reach, self.here(arrival.node), reasons);
        if chosen.is_empty() {
            reasons.add(Rule::NoLocalEndpoints, format!("{} on {}", port.name, arrival.node));
            return PromisedVerdict::Drop;
        }
        let differ = endpoints.iter().any(|endpoint| Some(endpoint.address.port()) != first_port(&endpoints));
        if differ || !port.name.port.is_empty() {
            reasons.add(Rule::TargetPort, port.name.to_string());
        }
        PromisedVerdict::Deliver(delivery::deliver(self.objects, self.world, case, &chosen, reasons))
    }

    fn here<'n>(&'n self, node: &'n str) -> NodeLocation<'n> {
        let labels = self.objects.node(node).and_then(|node| node.metadata.labels.as_ref());
        let zone = labels.and_then(|labels| labels.get(ZONE_LABEL)).map(String::as_str);
        NodeLocation { node, zone: zone.filter(|zone| !zone.is_empty()) }
    }

    /// Adds the rules by which a destination that objects mention belongs to no service.
    fn explain_nothing(&self, ports: &PortIndex, question: &Question, reasons: &mut Reasons) {
        reasons.add(Rule::NoService, question.to.to_string());
        frontend::explain_protocol(ports, question, reasons);
        let (to, family) = (question.to.ip(), Family::of(question.to.ip()));
        for service in self.mentions.get(&to).into_iter().flatten() {
            let name = service.metadata.name.as_deref().unwrap_or_default();
            let Some(spec) = &service.spec else { continue };
            if service::ingress(service, family, true).contains(&to) {
                reasons.add(Rule::LoadBalancerProxies, format!("{to} of {name}"));
            }
            let mut external = spec.external_ips.iter().flatten().filter_map(|text| address::parse(text));
            if !self.world.proxy.external_ips && external.any(|address| address == to) {
                reasons.add(Rule::ExternalIpsShut, format!("{to} of {name}"));
            }
            if let Some(rule) =
                service::unhandled_reason(service).filter(|_| service::cluster_ip(spec, family) == Some(to))
            {
                reasons.add(rule, name);
            }
        }
        let node = self.world.owner(to).filter(|_| question.protocol == Protocol::Tcp);
        for check in node.map(|node| health::checks(self.objects, &node.name)).unwrap_or_default() {
            if check.port == question.to.port() && check.family == family {
                let status = check.status().map_or_else(|| "contradiction".to_owned(), |status| status.to_string());
                reasons.add(Rule::HealthCheck, format!("{}/{}: {status}", check.namespace, check.service));
            }
        }
    }
}

fn first_port(endpoints: &[Endpoint]) -> Option<u16> {
    endpoints.first().map(|endpoint| endpoint.address.port())
}
