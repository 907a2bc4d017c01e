use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use super::names;
use crate::mode::Plans;
use crate::mode::iptables_family::engine::render::{ChainId, ServiceRules};
use crate::mode::iptables_family::rules::filter::{self, FilterComments};
use crate::mode::iptables_family::rules::matching::from_pods;
use crate::model::ServiceAnnotation;
use crate::plan::{
    AllowedSources, BackendSet, ClusterIpFrontend, ExternalFrontends, FrontendAction, FrontendVerdict, Masquerade,
    NodePlan, ServicePortPlan, ShortCircuit,
};
use crate::ruleset::{Rule, Table};

pub const SERVICES: ChainId = (Table::Nat, names::SERVICES);
pub const NODE_PORTS: ChainId = (Table::Nat, names::NODE_PORTS);

/// The most endpoints whose rules have comments (upstream's `largeClusterEndpointsThreshold`).
const LARGE: usize = 1000;

/// Whether endpoints' rules have comments: each takes 256 bytes in the kernel, almost half of a large table, which each
/// change in the legacy variant reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointComments {
    Written,
    LeftOut,
}

impl EndpointComments {
    pub fn of(plans: &dyn Plans) -> EndpointComments {
        let endpoints = plans.iter().map(|plan| plan.cluster_backends.len().max(plan.local_backends.len()));
        let mut sums = endpoints.scan(0, |sum, endpoints| {
            *sum += endpoints;
            Some(*sum)
        });
        if sums.any(|sum| sum > LARGE) { EndpointComments::LeftOut } else { EndpointComments::Written }
    }
}

pub fn render(plan: &ServicePortPlan, node: &NodePlan, comments: EndpointComments) -> ServiceRules {
    let accepting = names::service_port_chain(names::FW, &plan.name);
    let mut out = ServiceRules::default();
    let words = FilterComments { resets: true, ..FilterComments::no_endpoints(&accepting) };
    filter::render(plan, node, words, &mut out);
    let mut backends: Vec<SocketAddr> = [&plan.cluster_backends[..], &plan.local_backends].concat();
    backends.sort_unstable();
    backends.dedup();
    let endpoints =
        backends.into_iter().map(|backend| (backend, names::endpoint_chain(&plan.name, &backend))).collect();
    let mut writer = ChainRenderer { plan, node, comments, name: plan.name.to_string(), endpoints, out };
    if let Some(internal) = &plan.internal {
        writer.internal(internal);
    }
    if let Some(external) = &plan.external {
        writer.external(external);
    }
    for (set, prefix) in [(BackendSet::Cluster, names::SVC), (BackendSet::Local, names::SVL)] {
        writer.backend_set(plan.backends(set), names::service_port_chain(prefix, &plan.name));
    }
    writer.endpoints();
    writer.out
}

struct ChainRenderer<'a> {
    plan: &'a ServicePortPlan,
    node: &'a NodePlan,
    comments: EndpointComments,
    /// `namespace/name:port`.
    name: String,
    /// Sorted endpoints with chain names, whose hashes are costly to compute.
    endpoints: Vec<(SocketAddr, String)>,
    out: ServiceRules,
}

impl ChainRenderer<'_> {
    fn chain(&self, prefix: &str) -> String {
        names::service_port_chain(prefix, &self.plan.name)
    }

    fn set_chain(&self, set: BackendSet) -> String {
        self.chain(match set {
            BackendSet::Cluster => names::SVC,
            BackendSet::Local => names::SVL,
        })
    }

    fn endpoint_chain(&self, backend: &SocketAddr) -> &str {
        let at = self.endpoints.binary_search_by_key(backend, |(address, _)| *address);
        at.ok().and_then(|at| self.endpoints.get(at)).map_or("", |(_, chain)| chain)
    }

    /// Returns the list of an endpoint's clients.
    fn clients<'c>(&self, backend: &SocketAddr, chain: &'c str) -> Cow<'c, str> {
        if self.plan.affinity_across_ports {
            names::shared_clients_list(&self.plan.name.service, backend.ip()).into()
        } else {
            chain.into()
        }
    }

    fn append(&mut self, chain: &str, rule: Rule) {
        self.out.chains.entry(chain.to_owned()).or_default().push(rule);
    }

    fn of_endpoint(&self, comment: impl FnOnce() -> String) -> Rule {
        match self.comments {
            EndpointComments::Written => Rule::commented(comment()),
            EndpointComments::LeftOut => Rule::new(),
        }
    }

    fn to(&self, address: IpAddr, kind: &str) -> Rule {
        Rule::commented(format!("{} {kind}", self.name)).destination(address).port(self.plan.protocol(), self.plan.port)
    }

    fn internal(&mut self, internal: &ClusterIpFrontend) {
        let (address, FrontendAction { verdict, masquerade }) = (internal.address, internal.action);
        let FrontendVerdict::Deliver(set) = verdict else { return };
        let chain = self.set_chain(set);
        self.out.add(SERVICES, [self.to(address, "cluster IP").jump(&chain)]);
        let matching = self.to(address, "cluster IP");
        let masqueraded = match (masquerade, &self.node.pods) {
            (Masquerade::Always, _) => Some(matching.jump(names::MARK_MASQ)),
            (Masquerade::NotPods, Some(pods)) => Some(from_pods(matching, pods, true).jump(names::MARK_MASQ)),
            (Masquerade::NotPods, None) | (Masquerade::Never, _) => None,
        };
        if let Some(rule) = masqueraded {
            self.append(&chain, rule);
        }
    }

    fn external(&mut self, external: &ExternalFrontends) {
        if !external.delivers() {
            return;
        }
        self.entry_chain(external);
        self.external_jumps(external);
        if let Some(allowed) = &external.allowed_sources {
            self.firewall_chain(&self.chain(names::FW), "loadbalancer IP", allowed, &external.load_balancer_ips);
        }
        if let Some(allowed) = &external.annotated_sources {
            let chain = names::annotated_sources_chain(&self.plan.name);
            self.firewall_chain(&chain, ServiceAnnotation::SourceRanges.key(), allowed, &external.external_ips);
        }
    }

    fn external_jumps(&mut self, external: &ExternalFrontends) {
        let entry = self.chain(names::EXT);
        let by_load_balancer = if external.allowed_sources.is_some() { self.chain(names::FW) } else { entry.clone() };
        let annotated = external.annotated_sources.as_deref().map(|_| names::annotated_sources_chain(&self.plan.name));
        let by_others = annotated.unwrap_or(entry);
        for address in &external.external_ips {
            self.out.add(SERVICES, [self.to(*address, "external IP").jump(&by_others)]);
        }
        for address in &external.load_balancer_ips {
            self.out.add(SERVICES, [self.to(*address, "loadbalancer IP").jump(&by_load_balancer)]);
        }
        if let Some(port) = external.node_port {
            let rule = Rule::commented(&self.name).port(self.plan.protocol(), port);
            self.out.add(NODE_PORTS, [rule.jump(&by_others)]);
        }
    }

    /// `KUBE-EXT-`: rules for sources to which the policy does not apply, then for all.
    fn entry_chain(&mut self, external: &ExternalFrontends) {
        let entry = self.chain(names::EXT);
        self.out.chains.entry(entry.clone()).or_default();
        let comment = |text: &str| Rule::commented(text.replace("{}", &self.name));
        let mut rules = Vec::new();
        if external.action.masquerade == Masquerade::Always {
            rules.push(comment("masquerade traffic for {} external destinations").jump(names::MARK_MASQ));
        }
        if let Some(ShortCircuit { pods, node }) = external.short_circuit {
            if let (Some(source), FrontendVerdict::Deliver(set)) = (&self.node.pods, pods.verdict) {
                let rule = from_pods(comment("pod traffic for {} external destinations"), source, false);
                rules.push(rule.jump(self.set_chain(set)));
            }
            if node.masquerade == Masquerade::Always {
                rules.push(
                    comment("masquerade LOCAL traffic for {} external destinations")
                        .from_local_address()
                        .jump(names::MARK_MASQ),
                );
            }
            if let FrontendVerdict::Deliver(set) = node.verdict {
                let rule = comment("route LOCAL traffic for {} external destinations").from_local_address();
                rules.push(rule.jump(self.set_chain(set)));
            }
        }
        if let FrontendVerdict::Deliver(set) = external.action.verdict {
            rules.push(Rule::new().jump(self.set_chain(set)));
        }
        self.out.chains.insert(entry, rules);
    }

    /// `KUBE-FW-`: allowed sources' packets jump to `KUBE-EXT-`; `KUBE-PROXY-FIREWALL` drops all others.
    fn firewall_chain(&mut self, chain: &str, kind: &str, allowed: &AllowedSources, addresses: &[IpAddr]) {
        let entry = self.chain(names::EXT);
        let allow = |name: &str| Rule::commented(format!("{name} {kind}"));
        for range in &allowed.ranges {
            // iptables-save omits `-s 0.0.0.0/0`.
            let rule = if range.prefix_len() == 0 { allow(&self.name) } else { allow(&self.name).source(*range) };
            self.append(chain, rule.jump(&entry));
        }
        for address in addresses.iter().filter(|_| allowed.own_addresses) {
            self.append(chain, allow(&self.name).source_ip(*address).jump(&entry));
        }
        let end = format!("other traffic to {} will be dropped by {}", self.name, names::PROXY_FIREWALL);
        self.append(chain, Rule::commented(end));
    }

    /// `KUBE-SVC-` or `KUBE-SVL-`: session affinity, then a uniform random choice.
    fn backend_set(&mut self, backends: &[SocketAddr], chain: String) {
        let comment = |backend: &SocketAddr| self.of_endpoint(|| format!("{} -> {backend}", self.name));
        let mut rules = Vec::new();
        if let Some(timeout) = self.plan.affinity {
            for backend in backends {
                let chain = self.endpoint_chain(backend);
                let list = self.clients(backend, chain);
                let rule = comment(backend).recent_check(&list, timeout.as_secs(), self.node.family);
                rules.push(rule.jump(chain));
            }
        }
        for (index, backend) in backends.iter().enumerate() {
            let left = backends.len() - index;
            let rule = if left > 1 { comment(backend).one_in(left) } else { comment(backend) };
            rules.push(rule.jump(self.endpoint_chain(backend)));
        }
        if !rules.is_empty() {
            self.out.chains.entry(chain).or_default().extend(rules);
        }
    }

    /// `KUBE-SEP-`: masquerades hairpins, records clients, translates destinations.
    fn endpoints(&mut self) {
        for (backend, chain) in std::mem::take(&mut self.endpoints) {
            let rule = || self.of_endpoint(|| self.name.clone());
            let hairpin = rule().source_ip(backend.ip()).jump(names::MARK_MASQ);
            let rule = rule();
            let rule = match self.plan.affinity {
                Some(_) => rule.recent_set(&self.clients(&backend, &chain), self.node.family),
                None => rule,
            };
            let rules = vec![hairpin, rule.dnat(self.plan.protocol(), backend)];
            self.out.chains.insert(chain, rules);
        }
    }
}
