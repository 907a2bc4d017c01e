//! Every rule that the oracle applies, with the document that states the rule.
//!
//! Sources: `API` is the documentation of a field (API reference, v1.37), `page` a page of kubernetes.io/docs, `KEP` an
//! enhancement proposal, `upstream's test` a row of kube-proxy's packet-flow tests, `docs` a page of this project.
//!
//! # How to add a rule of Kubernetes
//!
//! 1. `lab/oracle/src/rules.rs`: a variant of [`Rule`] and its row.
//! 2. The file that decides (list in `lab/oracle/src/lib.rs`) adds the reason; differences between modes are in
//!    `lab/oracle/src/modes.rs`.
//! 3. Rows in the tables of `lab/oracle/tests/it/policies.rs` or another file there.
//! 4. A new field or value: `lab/oracle/src/generate/recipe.rs`, `lab/oracle/src/generate/strategy.rs`.
//! 5. The proxy: `proxy/src/plan/` decides for all modes, `proxy/src/mode/` writes to the kernel.
//! 6. The promise: a number in `lab/src/promises.rs`, and a step in `scenarios/` that names the id.
//! 7. A mutant that breaks the rule: `lab/properties/src/mutants/iptables.rs` or another file there.
//! 8. A difference from kube-proxy: `docs/limitations.md`.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    OtherProxy,
    Headless,
    ExternalName,
    ClusterIp,
    NodePort,
    ExternalIp,
    ExternalIpsShut,
    LoadBalancerIp,
    LoadBalancerProxies,
    Protocols,
    NoService,
    Shared,
    Undecided,
    Family,
    NodePortAddresses,
    NodePortAddressesOtherFamily,
    LocalhostNodePorts,
    LocalhostListeners,
    Martian,
    OtherPortOfVip,
    OtherPortOfClusterIp,
    UnusedClusterIp,
    Ready,
    Terminating,
    Merged,
    Reused,
    Contradiction,
    TargetPort,
    WithoutNode,
    NodeHints,
    ZoneHints,
    NoHints,
    LocalBeforeHints,
    ClusterPolicy,
    InternalLocal,
    ExternalLocal,
    LocalFallback,
    ShortCircuit,
    OneListPerServer,
    NoEndpoints,
    NoLocalEndpoints,
    SourceRanges,
    SourceRangesOwnNode,
    SourceRangesFamily,
    AnnotatedSourceRanges,
    NotRelayed,
    Even,
    Scheduled,
    ConsistentHash,
    Affinity,
    AffinityAcrossPorts,
    Hairpin,
    MasqueradeAll,
    OffCluster,
    ExternalMasquerade,
    OwnNode,
    NoMasquerade,
    MasqueradeSource,
    Kept,
    Relayed,
    AsymmetricReply,
    HealthCheck,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PromisePart {
    Frontend,
    Endpoints,
    Refusal,
    Choice,
    /// The source that the endpoint sees, and the reply path.
    Source,
    Health,
}

struct RuleRow {
    rule: Rule,
    part: PromisePart,
    id: &'static str,
    says: &'static str,
    source: &'static str,
}

const fn row(rule: Rule, part: PromisePart, id: &'static str, says: &'static str, source: &'static str) -> RuleRow {
    RuleRow { rule, part, id, says, source }
}

/// The rows, in the order of the variants.
#[rustfmt::skip]
const TABLE: [RuleRow; 62] = [
    row(Rule::OtherProxy, PromisePart::Frontend, "other-proxy", "a service that names another proxy is that one's alone", "page reference/labels-annotations-taints, service.kubernetes.io/service-proxy-name; KEP-2447"),
    row(Rule::Headless, PromisePart::Frontend, "headless", "a headless service has no virtual address, and no proxy handles it", "page concepts/services-networking/service, Headless Services; API ServiceSpec.clusterIP"),
    row(Rule::ExternalName, PromisePart::Frontend, "external-name", "an ExternalName service is an alias in DNS; nothing is proxied", "API ServiceSpec.externalName; page reference/networking/virtual-ips"),
    row(Rule::ClusterIp, PromisePart::Frontend, "cluster-ip", "each node captures what goes to a service's cluster IP and port", "page reference/networking/virtual-ips, introduction"),
    row(Rule::NodePort, PromisePart::Frontend, "node-port", "each node answers on the node port of a NodePort or LoadBalancer service", "page concepts/services-networking/service, type: NodePort; API ServicePort.nodePort"),
    row(Rule::ExternalIp, PromisePart::Frontend, "external-ip", "nodes accept what arrives for an external IP and the service's port", "API ServiceSpec.externalIPs; page concepts/services-networking/service, External IPs"),
    row(Rule::ExternalIpsShut, PromisePart::Frontend, "external-ips-shut", "with the feature gate AllowServiceExternalIPs off nodes do not look at external IPs", "KEP-5707"),
    row(Rule::LoadBalancerIp, PromisePart::Frontend, "load-balancer-ip", "with ipMode VIP, or none, packets reach the node with the load balancer's address, which is the service's", "API LoadBalancerIngress.ipMode; KEP-1860"),
    row(Rule::LoadBalancerProxies, PromisePart::Frontend, "load-balancer-proxies", "with ipMode Proxy, or one that is not known, the address is the load balancer's alone: nodes leave it", "API LoadBalancerIngress.ipMode; KEP-1860; upstream's IsVIPMode"),
    row(Rule::Protocols, PromisePart::Frontend, "protocols", "one number under two protocols is two ports, each with its own endpoints; a protocol that the service does not have is not served", "page concepts/services-networking/service, Port definitions; upstream's e2e test 'should serve endpoints on same port and different protocols'"),
    row(Rule::NoService, PromisePart::Frontend, "no-service", "what goes to no service's address and port is not touched", "page reference/networking/virtual-ips: only traffic to a service's address and port is captured"),
    row(Rule::Shared, PromisePart::Frontend, "shared", "an address and port that several Services claim goes to the Service whose cluster IP it is, else to the oldest, else to the first by name", "docs/limitations.md; no page says who wins, and KEP-5707 (external IPs) and CVE-2020-8554 warn of it"),
    row(Rule::Undecided, PromisePart::Frontend, "undecided", "where a service's own address meets another's node port, or its own address of another kind, no page says which it is", "none"),
    row(Rule::Family, PromisePart::Frontend, "family", "each family's addresses lead to endpoints of that family", "page concepts/services-networking/dual-stack; API EndpointSlice.addressType"),
    row(Rule::NodePortAddresses, PromisePart::Frontend, "node-port-addresses", "node ports answer on the addresses that nodePortAddresses names, by default on all of the node's", "page reference/config-api/kube-proxy-config.v1alpha1, nodePortAddresses"),
    row(Rule::NodePortAddressesOtherFamily, PromisePart::Frontend, "node-port-addresses-other-family", "ranges of one family: the page closes the other family's addresses, kube-proxy opens them", "page reference/config-api/kube-proxy-config.v1alpha1, nodePortAddresses, against kube-proxy's filtering by family"),
    row(Rule::LocalhostNodePorts, PromisePart::Frontend, "localhost-node-ports", "with localhostNodePorts a node reaches node ports on 127.0.0.1, over IPv4 only, where the mode can", "page reference/config-api/kube-proxy-config.v1alpha1, iptables.localhostNodePorts; KEP-6032"),
    row(Rule::LocalhostListeners, PromisePart::Frontend, "localhost-listeners", "in nftables mode node ports on loopback addresses that nodePortAddresses names are listened on over TCP; other protocols refuse", "KEP-6032; docs/limitations.md"),
    row(Rule::Martian, PromisePart::Frontend, "martian", "what comes from elsewhere for a loopback address is dropped", "RFC 1122 3.2.1.3; CVE-2020-8558"),
    row(Rule::OtherPortOfVip, PromisePart::Frontend, "other-port-of-vip", "where services' addresses are the node's own, every port but the services' is shut", "docs/limitations.md, IPVS mode; kubernetes#72236"),
    row(Rule::OtherPortOfClusterIp, PromisePart::Frontend, "other-port-of-cluster-ip", "in nftables mode ports of a cluster IP that no service has refuse", "page reference/networking/virtual-ips, nftables proxy mode; KEP-3866, Improvements to the iptables mode"),
    row(Rule::UnusedClusterIp, PromisePart::Frontend, "unused-cluster-ip", "in nftables mode what goes to an address of a ServiceCIDR that no service has is dropped", "page reference/networking/virtual-ips, nftables proxy mode; KEP-3866, Improvements to the iptables mode"),
    row(Rule::Ready, PromisePart::Endpoints, "ready", "ready endpoints get the traffic; a condition that is not given is ready", "API EndpointConditions.ready; page concepts/services-networking/endpoint-slices, Conditions"),
    row(Rule::Terminating, PromisePart::Endpoints, "terminating", "where none is ready, those that terminate and still serve get it", "page reference/networking/virtual-ips, Traffic to terminating endpoints; KEP-1669"),
    row(Rule::Merged, PromisePart::Endpoints, "merged", "an endpoint in several slices counts once", "page concepts/services-networking/endpoint-slices, Duplicate endpoints"),
    row(Rule::Reused, PromisePart::Endpoints, "reused", "of an address that a terminating endpoint and another one have, the other one is right", "kubernetes#135266, decided by #135593 (1.36): a pod's address may be given to the next pod while it terminates"),
    row(Rule::Contradiction, PromisePart::Endpoints, "contradiction", "copies of an endpoint that contradict each other, all of them terminating or none: no page says which is right", "page concepts/services-networking/endpoint-slices, Duplicate endpoints, is silent; kubernetes#135593 calls it undefined"),
    row(Rule::TargetPort, PromisePart::Endpoints, "target-port", "each port of a service has its own target port, and endpoints may have different numbers for it", "page concepts/services-networking/service, Port definitions; API EndpointPort.name; upstream's e2e test 'should support named targetPorts that resolve to different ports on different endpoints'"),
    row(Rule::WithoutNode, PromisePart::Endpoints, "without-node", "an endpoint that names no node is local to no node", "API Endpoint.nodeName: it tells which endpoints are local to a node"),
    row(Rule::NodeHints, PromisePart::Endpoints, "node-hints", "where every ready endpoint names nodes, and one names this node, those that do get the traffic", "API EndpointHints.forNodes; KEP-3015"),
    row(Rule::ZoneHints, PromisePart::Endpoints, "zone-hints", "where every ready endpoint names zones, and one names this node's zone, those that do get the traffic", "page concepts/services-networking/topology-aware-routing, kube-proxy; API EndpointHints.forZones"),
    row(Rule::NoHints, PromisePart::Endpoints, "no-hints", "an endpoint without a hint, or no hint for here, and hints count for nothing", "page concepts/services-networking/topology-aware-routing, Safeguards"),
    row(Rule::LocalBeforeHints, PromisePart::Endpoints, "local-before-hints", "where policy Local applies, hints count for nothing", "page concepts/services-networking/topology-aware-routing, Constraints; KEP-2086, Overlap with topology-aware routing; KEP-4444"),
    row(Rule::ClusterPolicy, PromisePart::Endpoints, "cluster-policy", "policy Cluster: all endpoints, wherever they are", "API ServiceSpec.internalTrafficPolicy, .externalTrafficPolicy"),
    row(Rule::InternalLocal, PromisePart::Endpoints, "internal-local", "internalTrafficPolicy Local: a cluster IP leads to endpoints of the same node only", "API ServiceSpec.internalTrafficPolicy; page concepts/services-networking/service-traffic-policy"),
    row(Rule::ExternalLocal, PromisePart::Endpoints, "external-local", "externalTrafficPolicy Local: what comes from outside goes to the node's own endpoints, with the client's address", "API ServiceSpec.externalTrafficPolicy; page tasks/access-application-cluster/create-external-load-balancer, Preserving the client source IP"),
    row(Rule::LocalFallback, PromisePart::Endpoints, "local-fallback", "with the annotation svcproxy/local-fallback: cluster, externalTrafficPolicy Local is policy Cluster on a node without endpoints of its own", "docs/svcproxy.md, Nodes without endpoints"),
    row(Rule::ShortCircuit, PromisePart::Endpoints, "short-circuit", "from within the cluster an external address always has policy Cluster", "API ServiceSpec.externalTrafficPolicy, its note; upstream's test InternalExternalMasquerade for node ports"),
    row(Rule::OneListPerServer, PromisePart::Endpoints, "one-list-per-server", "in IPVS mode policy Local holds the node and its pods to its own endpoints, too, while there are any", "docs/limitations.md, IPVS mode"),
    row(Rule::NoEndpoints, PromisePart::Refusal, "no-endpoints", "a service without any endpoint refuses at once", "page reference/networking/virtual-ips, Traffic to terminating endpoints; upstream's test NoEndpointsReject and e2e test 'rejected when no endpoints exist'"),
    row(Rule::NoLocalEndpoints, PromisePart::Refusal, "no-local-endpoints", "under policy Local a node without endpoints of its own drops", "API ServiceSpec.internalTrafficPolicy, .externalTrafficPolicy"),
    row(Rule::SourceRanges, PromisePart::Refusal, "source-ranges", "loadBalancerSourceRanges: the load balancer's address is for the listed sources only", "API ServiceSpec.loadBalancerSourceRanges; upstream's test LoadBalancer: others are dropped"),
    row(Rule::SourceRangesOwnNode, PromisePart::Refusal, "source-ranges-own-node", "where the node itself is listed, what has the load balancer's own address as its source is let in", "upstream's test LoadBalancer, rows 'implicitly allowed'"),
    row(Rule::SourceRangesFamily, PromisePart::Refusal, "source-ranges-family", "ranges of one family leave the other open", "docs/limitations.md"),
    row(Rule::AnnotatedSourceRanges, PromisePart::Refusal, "annotated-source-ranges", "the annotation svcproxy/source-ranges: node ports and external IPs are for the listed sources only, in both families", "docs/svcproxy.md, Source ranges"),
    row(Rule::NotRelayed, PromisePart::Refusal, "not-relayed", "SCTP is not relayed in userspace mode: it refuses", "docs/limitations.md, userspace mode"),
    row(Rule::Even, PromisePart::Choice, "even", "endpoints are chosen evenly", "API ServiceSpec.externalTrafficPolicy ('evenly'); page reference/networking/virtual-ips, iptables proxy mode: at random"),
    row(Rule::Scheduled, PromisePart::Choice, "scheduled", "the mode's scheduler chooses", "page reference/networking/virtual-ips, IPVS proxy mode; docs/limitations.md"),
    row(Rule::ConsistentHash, PromisePart::Choice, "consistent-hash", "if a Service asks for it by an annotation, or the node's configuration does for all, every node sends a client to the same endpoint, and one that goes takes only its own clients along", "docs/svcproxy.md, Consistent hashing; kubernetes#58329"),
    row(Rule::Affinity, PromisePart::Choice, "affinity", "sessionAffinity ClientIP: a client stays with its endpoint until it was silent for the time-out", "page reference/networking/virtual-ips, Session affinity; API ClientIPConfig.timeoutSeconds"),
    row(Rule::AffinityAcrossPorts, PromisePart::Choice, "affinity-across-ports", "with the annotation svcproxy/affinity-across-ports: all, a client that session affinity keeps at a pod reaches the same pod by all ports of the Service that have it", "docs/svcproxy.md, Affinity across ports; kubernetes#103000"),
    row(Rule::Hairpin, PromisePart::Source, "hairpin", "an endpoint that meets itself sees its node, or it would answer itself directly", "page tutorials/services/source-ip; upstream's test ClusterIPGeneral 'hairpin'"),
    row(Rule::MasqueradeAll, PromisePart::Source, "masquerade-all", "with masqueradeAll whatever goes to a cluster IP has the node's address", "page reference/config-api/kube-proxy-config.v1alpha1, masqueradeAll"),
    row(Rule::OffCluster, PromisePart::Source, "off-cluster", "what goes to a cluster IP and is not from a pod, as detectLocalMode tells them, has the node's address", "page reference/command-line-tools-reference/kube-proxy, --cluster-cidr, --detect-local-mode"),
    row(Rule::ExternalMasquerade, PromisePart::Source, "external-masquerade", "under externalTrafficPolicy Cluster the client's address is replaced by the node's", "page tutorials/services/source-ip, Source IP for Services with Type=NodePort; API ServiceSpec.externalTrafficPolicy"),
    row(Rule::OwnNode, PromisePart::Source, "own-node", "what the node itself sends to an external address has the node's address", "upstream's test InternalExternalMasquerade, rows 'node to …' and 'localhost to …'"),
    row(Rule::NoMasquerade, PromisePart::Source, "no-masquerade", "what the node itself sends to an endpoint in noMasqueradeCIDRs keeps its source, unless that is a loopback address", "docs/decisions.md; KEP-6246, The no-masquerade-cidrs option"),
    row(Rule::MasqueradeSource, PromisePart::Source, "masquerade-source", "with masqueradeSource what is masqueraded has that address, by whatever interface it leaves", "docs/limitations.md; KEP-6246, Kube-Proxy SNAT to Primary Node IP; kubernetes#78949"),
    row(Rule::Kept, PromisePart::Source, "kept", "in all other cases the client's address is kept", "page tutorials/services/source-ip, Source IP for Services with Type=ClusterIP"),
    row(Rule::Relayed, PromisePart::Source, "relayed", "in userspace mode, and behind node ports on loopback addresses in nftables mode, endpoints see the node that relays", "docs/limitations.md, userspace mode"),
    row(Rule::AsymmetricReply, PromisePart::Source, "astray", "the client's address is kept on a node that neither has the client nor the endpoint: the answer misses that node, and the client does not know it", "follows from kept; page tutorials/services/source-ip shows the way back"),
    row(Rule::HealthCheck, PromisePart::Health, "health-check", "healthCheckNodePort answers 200 while the node has ready endpoints of its own in that family, else 503", "API ServiceSpec.healthCheckNodePort; KEP-1669, KEP-3836"),
];

impl Rule {
    pub const ALL: [Rule; TABLE.len()] = {
        let mut all = [Rule::OtherProxy; TABLE.len()];
        let mut index = 0;
        while index < TABLE.len() {
            all[index] = TABLE[index].rule;
            index += 1;
        }
        all
    };

    /// Returns the rule's id, which never changes.
    pub fn id(self) -> &'static str {
        self.row().id
    }

    pub fn says(self) -> &'static str {
        self.row().says
    }

    pub fn source(self) -> &'static str {
        self.row().source
    }

    pub fn part(self) -> PromisePart {
        self.row().part
    }

    fn row(self) -> &'static RuleRow {
        &TABLE[self as usize]
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    pub rule: Rule,
    pub about: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} – {} [{}]", self.rule.id(), self.about, self.rule.says(), self.rule.source())
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Reasons(pub(crate) Vec<Reason>);

impl Reasons {
    pub(crate) fn add(&mut self, rule: Rule, about: impl Into<String>) {
        let reason = Reason { rule, about: about.into() };
        if !self.0.contains(&reason) {
            self.0.push(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_rule_has_its_row_and_an_id_of_its_own() {
        assert!((0..).zip(&TABLE).all(|(index, row)| row.rule as usize == index));
        let ids: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.id()).collect();
        assert_eq!(ids.len(), Rule::ALL.len());
        assert!(Rule::ALL.iter().all(|rule| !rule.says().is_empty() && !rule.source().is_empty()));
    }

    #[test]
    fn the_files_of_how_to_add_a_rule_exist() {
        let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let header = include_str!("rules.rs").lines().take_while(|line| line.starts_with("//!"));
        let quoted = header.flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|word| word.contains('/'));
        let missing: Vec<&str> = quoted.clone().filter(|path| !repository.join(path).exists()).collect();
        assert_eq!(missing, [""; 0]);
        assert!(quoted.count() > 8);
    }
}
