//! Every rule that the oracle knows, what it says in a sentence, and where Kubernetes says so.
//!
//! Sources: `API` is the documentation of the field (kubernetes.io, API reference, v1.37), `page` a page of
//! kubernetes.io/docs, `KEP` an enhancement proposal, `upstream's test` a row that kube-proxy's own packet-flow tests
//! hold where no page says it, `docs` a page of this project on what a mode does differently.

use std::fmt;

/// A rule that decided something.
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
    NodeHints,
    ZoneHints,
    NoHints,
    ClusterPolicy,
    InternalLocal,
    ExternalLocal,
    ShortCircuit,
    OneListPerServer,
    NoEndpoints,
    NoLocalEndpoints,
    SourceRanges,
    SourceRangesOwnNode,
    SourceRangesFamily,
    NotRelayed,
    Even,
    Scheduled,
    Affinity,
    Hairpin,
    MasqueradeAll,
    OffCluster,
    ExternalMasquerade,
    OwnNode,
    Kept,
    Relayed,
    AsymmetricReply,
    HealthCheck,
}

/// What part of a promise a rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PromisePart {
    /// Whether a destination is a service's, and whose.
    Frontend,
    /// Which endpoints may get the traffic.
    Endpoints,
    /// What is refused, and how.
    Refusal,
    /// Which of the endpoints gets it.
    Choice,
    /// Whom the endpoint sees, and whether the answer comes back.
    Source,
    /// What a load balancer is told.
    Health,
}

/// One row of the table.
struct Row {
    id: &'static str,
    says: &'static str,
    source: &'static str,
}

const fn row(id: &'static str, says: &'static str, source: &'static str) -> Row {
    Row { id, says, source }
}

impl Rule {
    /// A short name that stays.
    #[must_use]
    pub fn id(self) -> &'static str {
        self.row().id
    }

    /// The rule in a sentence.
    #[must_use]
    pub fn says(self) -> &'static str {
        self.row().says
    }

    /// Where it is written.
    #[must_use]
    pub fn source(self) -> &'static str {
        self.row().source
    }

    /// What part of a promise it decides.
    #[must_use]
    pub fn part(self) -> PromisePart {
        use Rule::*;
        match self {
            OtherProxy
            | Headless
            | ExternalName
            | ClusterIp
            | NodePort
            | ExternalIp
            | ExternalIpsShut
            | LoadBalancerIp
            | LoadBalancerProxies
            | NoService
            | Shared
            | Undecided
            | Family
            | NodePortAddresses
            | NodePortAddressesOtherFamily
            | LocalhostNodePorts
            | LocalhostListeners
            | Martian
            | OtherPortOfVip
            | OtherPortOfClusterIp
            | UnusedClusterIp => PromisePart::Frontend,
            Ready | Terminating | Merged | Reused | Contradiction | NodeHints | ZoneHints | NoHints | ClusterPolicy
            | InternalLocal | ExternalLocal | ShortCircuit | OneListPerServer => PromisePart::Endpoints,
            NoEndpoints | NoLocalEndpoints | SourceRanges | SourceRangesOwnNode | SourceRangesFamily | NotRelayed => {
                PromisePart::Refusal
            }
            Even | Scheduled | Affinity => PromisePart::Choice,
            Hairpin | MasqueradeAll | OffCluster | ExternalMasquerade | OwnNode | Kept | Relayed | AsymmetricReply => {
                PromisePart::Source
            }
            HealthCheck => PromisePart::Health,
        }
    }

    #[rustfmt::skip]
    fn row(self) -> Row {
        match self {
            // Which services are this proxy's.
            Rule::OtherProxy => row("other-proxy", "a service that names another proxy is that one's alone", "page reference/labels-annotations-taints, service.kubernetes.io/service-proxy-name; KEP-2447"),
            Rule::Headless => row("headless", "a headless service has no virtual address, and no proxy handles it", "page concepts/services-networking/service, Headless Services; API ServiceSpec.clusterIP"),
            Rule::ExternalName => row("external-name", "an ExternalName service is an alias in DNS; nothing is proxied", "API ServiceSpec.externalName; page reference/networking/virtual-ips"),
            // Which service a destination belongs to.
            Rule::ClusterIp => row("cluster-ip", "each node captures what goes to a service's cluster IP and port", "page reference/networking/virtual-ips, introduction"),
            Rule::NodePort => row("node-port", "each node answers on the node port of a NodePort or LoadBalancer service", "page concepts/services-networking/service, type: NodePort; API ServicePort.nodePort"),
            Rule::ExternalIp => row("external-ip", "nodes accept what arrives for an external IP and the service's port", "API ServiceSpec.externalIPs; page concepts/services-networking/service, External IPs"),
            Rule::ExternalIpsShut => row("external-ips-shut", "with the feature gate AllowServiceExternalIPs off nodes do not look at external IPs", "KEP-5707"),
            Rule::LoadBalancerIp => row("load-balancer-ip", "with ipMode VIP, or none, packets reach the node with the load balancer's address, which is the service's", "API LoadBalancerIngress.ipMode; KEP-1860"),
            Rule::LoadBalancerProxies => row("load-balancer-proxies", "with ipMode Proxy, or one that is not known, the address is the load balancer's alone: nodes leave it", "API LoadBalancerIngress.ipMode; KEP-1860; upstream's IsVIPMode"),
            Rule::NoService => row("no-service", "what goes to no service's address and port is not touched", "page reference/networking/virtual-ips: only traffic to a service's address and port is captured"),
            Rule::Shared => row("shared", "an address and port that several Services claim goes to the Service whose cluster IP it is, else to the oldest, else to the first by name", "docs/limitations.md; no page says who wins, and KEP-5707 (external IPs) and CVE-2020-8554 warn of it"),
            Rule::Undecided => row("undecided", "where a service's own address meets another's node port, or its own address of another kind, no page says which it is", "none"),
            Rule::Family => row("family", "each family's addresses lead to endpoints of that family", "page concepts/services-networking/dual-stack; API EndpointSlice.addressType"),
            Rule::NodePortAddresses => row("node-port-addresses", "node ports answer on the addresses that nodePortAddresses names, by default on all of the node's", "page reference/config-api/kube-proxy-config.v1alpha1, nodePortAddresses"),
            Rule::NodePortAddressesOtherFamily => row("node-port-addresses-other-family", "ranges of one family: the page closes the other family's addresses, kube-proxy opens them", "page reference/config-api/kube-proxy-config.v1alpha1, nodePortAddresses, against kube-proxy's filtering by family"),
            Rule::LocalhostNodePorts => row("localhost-node-ports", "with localhostNodePorts a node reaches node ports on 127.0.0.1, over IPv4 only, where the mode can", "page reference/config-api/kube-proxy-config.v1alpha1, iptables.localhostNodePorts; KEP-6032"),
            Rule::LocalhostListeners => row("localhost-listeners", "in nftables mode node ports on loopback addresses that nodePortAddresses names are listened on over TCP; other protocols refuse", "KEP-6032; docs/limitations.md"),
            Rule::Martian => row("martian", "what comes from elsewhere for a loopback address is dropped", "RFC 1122 3.2.1.3; CVE-2020-8558"),
            Rule::OtherPortOfVip => row("other-port-of-vip", "where services' addresses are the node's own, every port but the services' is shut", "docs/limitations.md, IPVS mode; kubernetes#72236"),
            Rule::OtherPortOfClusterIp => row("other-port-of-cluster-ip", "in nftables mode ports of a cluster IP that no service has refuse", "page reference/networking/virtual-ips, nftables proxy mode; KEP-3866, Improvements to the iptables mode"),
            Rule::UnusedClusterIp => row("unused-cluster-ip", "in nftables mode what goes to an address of a ServiceCIDR that no service has is dropped", "page reference/networking/virtual-ips, nftables proxy mode; KEP-3866, Improvements to the iptables mode"),
            // Which endpoints.
            Rule::Ready => row("ready", "ready endpoints get the traffic; a condition that is not given is ready", "API EndpointConditions.ready; page concepts/services-networking/endpoint-slices, Conditions"),
            Rule::Terminating => row("terminating", "where none is ready, those that terminate and still serve get it", "page reference/networking/virtual-ips, Traffic to terminating endpoints; KEP-1669"),
            Rule::Merged => row("merged", "an endpoint in several slices counts once", "page concepts/services-networking/endpoint-slices, Duplicate endpoints"),
            Rule::Reused => row("reused", "of an address that a terminating endpoint and another one have, the other one is right", "kubernetes#135266, decided by #135593 (1.36): a pod's address may be given to the next pod while it terminates"),
            Rule::Contradiction => row("contradiction", "copies of an endpoint that contradict each other, all of them terminating or none: no page says which is right", "page concepts/services-networking/endpoint-slices, Duplicate endpoints, is silent; kubernetes#135593 calls it undefined"),
            Rule::NodeHints => row("node-hints", "where every ready endpoint names nodes, and one names this node, those that do get the traffic", "API EndpointHints.forNodes; KEP-3015"),
            Rule::ZoneHints => row("zone-hints", "where every ready endpoint names zones, and one names this node's zone, those that do get the traffic", "page concepts/services-networking/topology-aware-routing, kube-proxy; API EndpointHints.forZones"),
            Rule::NoHints => row("no-hints", "an endpoint without a hint, or no hint for here, and hints count for nothing", "page concepts/services-networking/topology-aware-routing, Safeguards"),
            Rule::ClusterPolicy => row("cluster-policy", "policy Cluster: all endpoints, wherever they are", "API ServiceSpec.internalTrafficPolicy, .externalTrafficPolicy"),
            Rule::InternalLocal => row("internal-local", "internalTrafficPolicy Local: a cluster IP leads to endpoints of the same node only", "API ServiceSpec.internalTrafficPolicy; page concepts/services-networking/service-traffic-policy"),
            Rule::ExternalLocal => row("external-local", "externalTrafficPolicy Local: what comes from outside goes to the node's own endpoints, with the client's address", "API ServiceSpec.externalTrafficPolicy; page tasks/access-application-cluster/create-external-load-balancer, Preserving the client source IP"),
            Rule::ShortCircuit => row("short-circuit", "from within the cluster an external address always has policy Cluster", "API ServiceSpec.externalTrafficPolicy, its note; upstream's test InternalExternalMasquerade for node ports"),
            Rule::OneListPerServer => row("one-list-per-server", "in IPVS mode policy Local holds the node and its pods to its own endpoints, too, while there are any", "docs/limitations.md, IPVS mode"),
            // What is refused.
            Rule::NoEndpoints => row("no-endpoints", "a service without any endpoint refuses at once", "page reference/networking/virtual-ips, Traffic to terminating endpoints; upstream's test NoEndpointsReject and e2e test 'rejected when no endpoints exist'"),
            Rule::NoLocalEndpoints => row("no-local-endpoints", "under policy Local a node without endpoints of its own drops", "API ServiceSpec.internalTrafficPolicy, .externalTrafficPolicy"),
            Rule::SourceRanges => row("source-ranges", "loadBalancerSourceRanges: the load balancer's address is for the listed sources only", "API ServiceSpec.loadBalancerSourceRanges; upstream's test LoadBalancer: others are dropped"),
            Rule::SourceRangesOwnNode => row("source-ranges-own-node", "where the node itself is listed, what has the load balancer's own address as its source is let in", "upstream's test LoadBalancer, rows 'implicitly allowed'"),
            Rule::SourceRangesFamily => row("source-ranges-family", "ranges of one family leave the other open", "docs/limitations.md"),
            Rule::NotRelayed => row("not-relayed", "SCTP is not relayed in userspace mode: it refuses", "docs/limitations.md, userspace mode"),
            // Who of them.
            Rule::Even => row("even", "endpoints are chosen evenly", "API ServiceSpec.externalTrafficPolicy ('evenly'); page reference/networking/virtual-ips, iptables proxy mode: at random"),
            Rule::Scheduled => row("scheduled", "the mode's scheduler chooses", "page reference/networking/virtual-ips, IPVS proxy mode; docs/limitations.md"),
            Rule::Affinity => row("affinity", "sessionAffinity ClientIP: a client stays with its endpoint until it was silent for the time-out", "page reference/networking/virtual-ips, Session affinity; API ClientIPConfig.timeoutSeconds"),
            // Whom it sees.
            Rule::Hairpin => row("hairpin", "an endpoint that meets itself sees its node, or it would answer itself directly", "page tutorials/services/source-ip; upstream's test ClusterIPGeneral 'hairpin'"),
            Rule::MasqueradeAll => row("masquerade-all", "with masqueradeAll whatever goes to a cluster IP has the node's address", "page reference/config-api/kube-proxy-config.v1alpha1, masqueradeAll"),
            Rule::OffCluster => row("off-cluster", "what goes to a cluster IP and is not from a pod, as detectLocalMode tells them, has the node's address", "page reference/command-line-tools-reference/kube-proxy, --cluster-cidr, --detect-local-mode"),
            Rule::ExternalMasquerade => row("external-masquerade", "under externalTrafficPolicy Cluster the client's address is replaced by the node's", "page tutorials/services/source-ip, Source IP for Services with Type=NodePort; API ServiceSpec.externalTrafficPolicy"),
            Rule::OwnNode => row("own-node", "what the node itself sends to an external address has the node's address", "upstream's test InternalExternalMasquerade, rows 'node to …' and 'localhost to …'"),
            Rule::Kept => row("kept", "in all other cases the client's address is kept", "page tutorials/services/source-ip, Source IP for Services with Type=ClusterIP"),
            Rule::Relayed => row("relayed", "in userspace mode, and behind node ports on loopback addresses in nftables mode, endpoints see the node that relays", "docs/limitations.md, userspace mode"),
            Rule::AsymmetricReply => row("astray", "the client's address is kept on a node that neither has the client nor the endpoint: the answer misses that node, and the client does not know it", "follows from kept; page tutorials/services/source-ip shows the way back"),
            Rule::HealthCheck => row("health-check", "healthCheckNodePort answers 200 while the node has ready endpoints of its own in that family, else 503", "API ServiceSpec.healthCheckNodePort; KEP-1669, KEP-3836"),
        }
    }

    /// Every rule.
    #[rustfmt::skip]
    pub const ALL: [Rule; 52] = [
        Rule::OtherProxy, Rule::Headless, Rule::ExternalName, Rule::ClusterIp, Rule::NodePort, Rule::ExternalIp, Rule::ExternalIpsShut,
        Rule::LoadBalancerIp, Rule::LoadBalancerProxies, Rule::NoService, Rule::Shared, Rule::Undecided, Rule::Family,
        Rule::NodePortAddresses, Rule::NodePortAddressesOtherFamily, Rule::LocalhostNodePorts, Rule::LocalhostListeners, Rule::Martian,
        Rule::OtherPortOfVip, Rule::OtherPortOfClusterIp, Rule::UnusedClusterIp, Rule::Ready, Rule::Terminating, Rule::Merged, Rule::Reused, Rule::Contradiction, Rule::NodeHints,
        Rule::ZoneHints, Rule::NoHints, Rule::ClusterPolicy, Rule::InternalLocal, Rule::ExternalLocal,
        Rule::ShortCircuit, Rule::OneListPerServer, Rule::NoEndpoints, Rule::NoLocalEndpoints, Rule::SourceRanges,
        Rule::SourceRangesOwnNode, Rule::SourceRangesFamily, Rule::NotRelayed, Rule::Even, Rule::Scheduled,
        Rule::Affinity, Rule::Hairpin, Rule::MasqueradeAll, Rule::OffCluster, Rule::ExternalMasquerade, Rule::OwnNode,
        Rule::Kept, Rule::Relayed, Rule::AsymmetricReply, Rule::HealthCheck,
    ];
}

/// Why a promise is what it is: a rule, and what it was about here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The rule.
    pub rule: Rule,
    /// What it was applied to.
    pub about: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} – {} [{}]", self.rule.id(), self.about, self.rule.says(), self.rule.source())
    }
}

/// Reasons being gathered.
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
    fn every_rule_is_cited_once() {
        let ids: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.id()).collect();
        assert_eq!(ids.len(), Rule::ALL.len());
        assert!(Rule::ALL.iter().all(|rule| !rule.says().is_empty() && !rule.source().is_empty()));
    }
}
