//! The questions' way through the rules, from top to bottom.

use std::collections::BTreeSet;

use crate::address::Family;
use crate::arrival::{self, Arrival};
use crate::endpoints::{self, Endpoint};
use crate::firewall;
use crate::frontend::{self, Destination};
use crate::masquerade;
use crate::modes::{self, Ways};
use crate::policy;
use crate::promise::{Backend, Delivery, Promise, Reply, Share, Stickiness, Verdict};
use crate::question::{Protocol, Question};
use crate::rules::{Reasons, Rule};
use crate::service::{self, FrontendKind, ServicePort};
use crate::topology::Here;
use crate::world::{Objects, World};

/// The label that says a node's zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Answers questions about one cluster.
#[derive(Debug)]
pub struct Oracle<'a> {
    objects: &'a Objects,
    world: &'a World,
    v4: Vec<ServicePort>,
    v6: Vec<ServicePort>,
}

/// Answers one question.
#[must_use]
pub fn ask(objects: &Objects, world: &World, question: &Question) -> Promise {
    Oracle::new(objects, world).ask(question)
}

impl<'a> Oracle<'a> {
    /// Reads the services, once for many questions.
    #[must_use]
    pub fn new(objects: &'a Objects, world: &'a World) -> Oracle<'a> {
        let ports = |family| objects.services.iter().flat_map(|service| service::ports(service, family)).collect();
        Oracle { objects, world, v4: ports(Family::V4), v6: ports(Family::V6) }
    }

    /// What Kubernetes promises.
    #[must_use]
    pub fn ask(&self, question: &Question) -> Promise {
        let mut reasons = Reasons::default();
        let verdict = self.verdict(question, &mut reasons);
        Promise { verdict, because: reasons.0 }
    }

    fn verdict(&self, question: &Question, reasons: &mut Reasons) -> Verdict {
        let ports = if question.to.is_ipv4() { &self.v4 } else { &self.v6 };
        let bound = frontend::is_bound(ports, question.to.ip());
        let Some(source) = self.world.source_address(question, bound) else {
            reasons.add(Rule::Family, format!("{} has no address to reach {} from", question.from, question.to));
            return Verdict::Untouched;
        };
        match frontend::find(self.objects, self.world, ports, question, reasons) {
            Destination::Service { port, kind, node } => {
                let arrival = arrival::at(self.objects, self.world, question, node, source);
                self.decide(question, port, kind, &arrival, reasons)
            }
            Destination::Shared | Destination::Unclear => Verdict::Undefined,
            Destination::OtherPortOfVip => {
                reasons.add(Rule::OtherPortOfVip, question.to.to_string());
                Verdict::Reject
            }
            Destination::Martian => {
                reasons.add(Rule::Martian, question.to.to_string());
                Verdict::Drop
            }
            Destination::Nothing => {
                self.explain_nothing(question, reasons);
                Verdict::Untouched
            }
        }
    }

    /// The destination is a service port's. May the source use it; is anybody there; who of them; whom do they see?
    fn decide(
        &self,
        question: &Question,
        port: &ServicePort,
        kind: FrontendKind,
        arrival: &Arrival<'_>,
        reasons: &mut Reasons,
    ) -> Verdict {
        let ways = modes::ways(&self.world.proxy);
        let copies = endpoints::copies(&self.objects.slices, port);
        let Ok(endpoints) = endpoints::merged(&copies, arrival.node, reasons)
            .inspect_err(|address| reasons.add(Rule::Contradiction, address.to_string()))
        else {
            return Verdict::Undefined;
        };
        let anybody = policy::any_usable(&endpoints);
        let silent = ways.refuses_sctp && port.name.protocol == Protocol::Sctp;
        if !firewall::allows(self.objects, self.world, port, kind, arrival, reasons) {
            // Where there is nobody anyway, no page says which of the two the client is to notice.
            return if anybody && !silent { Verdict::Drop } else { Verdict::Refuse };
        }
        if silent {
            reasons.add(Rule::NotRelayed, port.name.to_string());
            return Verdict::Reject;
        }
        if !anybody {
            reasons.add(Rule::NoEndpoints, port.name.to_string());
            return Verdict::Reject;
        }
        let reach = policy::reach(port, kind, arrival, ways, reasons);
        let chosen = policy::select(&endpoints, reach, self.here(arrival.node), reasons);
        if chosen.is_empty() {
            reasons.add(Rule::NoLocalEndpoints, format!("{} on {}", port.name, arrival.node));
            return Verdict::Drop;
        }
        Verdict::Deliver(self.delivery(question, port, kind, arrival, &chosen, ways, reasons))
    }

    #[allow(clippy::too_many_arguments, reason = "all of it decides whom an endpoint sees")]
    fn delivery(
        &self,
        question: &Question,
        port: &ServicePort,
        kind: FrontendKind,
        arrival: &Arrival<'_>,
        chosen: &[&Endpoint],
        ways: Ways,
        reasons: &mut Reasons,
    ) -> Delivery {
        reasons.add(
            if ways.picking.is_even() { Rule::Even } else { Rule::Scheduled },
            format!("{} of them", chosen.len()),
        );
        let (masqueraded, rule) = masquerade::for_all(port, kind, arrival, ways, self.world.proxy.masquerade_all);
        reasons.add(rule, arrival.source.to_string());
        let share = ways.picking.is_even().then(|| Share { of: u32::try_from(chosen.len()).unwrap_or(u32::MAX) });
        let backends = chosen.iter().map(|endpoint| {
            let hairpin = !masqueraded && masquerade::is_hairpin(endpoint, arrival);
            if hairpin {
                reasons.add(Rule::Hairpin, endpoint.address.to_string());
            }
            self.backend(question, endpoint, arrival, masqueraded || hairpin, share)
        });
        let backends: Vec<Backend> = backends.collect();
        if let Some(astray) = backends.iter().find(|backend| matches!(backend.reply, Reply::Astray(_))) {
            reasons.add(Rule::Astray, format!("{} past {}", astray.address, arrival.node));
        }
        let affinity = port.affinity.map(|timeout| Stickiness { timeout, scope: ways.affinity });
        if affinity.is_some() {
            reasons.add(Rule::Affinity, arrival.source.to_string());
        }
        Delivery {
            service: port.name.clone(),
            frontend: kind,
            node: arrival.node.to_owned(),
            client: arrival.source,
            backends,
            picking: ways.picking,
            affinity,
        }
    }

    fn backend(
        &self,
        question: &Question,
        endpoint: &Endpoint,
        arrival: &Arrival<'_>,
        masqueraded: bool,
        share: Option<Share>,
    ) -> Backend {
        let pod = self.world.pod_at(endpoint.address.ip());
        let on = pod.map(|pod| pod.node.as_str()).or(endpoint.node.as_deref());
        let returns = masqueraded || arrival.at_home || on == Some(arrival.node);
        let node = self.world.node(arrival.node);
        let sees = if masqueraded {
            node.map(|node| node.of_family(Family::of(arrival.source))).unwrap_or_default()
        } else {
            BTreeSet::from([arrival.source])
        };
        Backend {
            address: endpoint.address,
            pod: endpoint.pod.clone().or_else(|| pod.map(|pod| pod.name.clone())),
            share,
            masqueraded,
            sees,
            reply: if returns { Reply::From(question.to) } else { Reply::Astray(endpoint.address) },
        }
    }

    fn here<'n>(&'n self, node: &'n str) -> Here<'n> {
        let labels = self.objects.node(node).and_then(|node| node.metadata.labels.as_ref());
        let zone = labels.and_then(|labels| labels.get(ZONE_LABEL)).map(String::as_str);
        Here { node, zone: zone.filter(|zone| !zone.is_empty()) }
    }

    /// Somebody may have expected a service there.
    fn explain_nothing(&self, question: &Question, reasons: &mut Reasons) {
        reasons.add(Rule::NoService, question.to.to_string());
        let (to, family) = (question.to.ip(), Family::of(question.to.ip()));
        for service in &self.objects.services {
            let name = service.metadata.name.as_deref().unwrap_or_default();
            let Some(spec) = &service.spec else { continue };
            if service::ingress(service, family, true).contains(&to) {
                reasons.add(Rule::LoadBalancerProxies, format!("{to} of {name}"));
            }
            if let Some(rule) = service::left_alone(service).filter(|_| service::cluster_ip(spec, family) == Some(to)) {
                reasons.add(rule, name);
            }
        }
        let node = self.world.owner(to).filter(|_| question.protocol == Protocol::Tcp);
        for check in node.map(|node| crate::health::checks(self.objects, &node.name)).unwrap_or_default() {
            if check.port == question.to.port() {
                reasons.add(Rule::HealthCheck, format!("{}/{}: {}", check.namespace, check.service, check.status()));
            }
        }
    }
}
