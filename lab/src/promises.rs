//! Everything that a service proxy must do. Each promise has a permanent number, so that cards of two versions compare.
//!
//! Numbers below 700 are the oracle's rules about single packets, and what the proxy reports of itself; from 700 on:
//! changes, restarts, faults. Numbers of removed promises are never reused.

use svclab_oracle::Rule;

use crate::mode::Mode;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Promise {
    pub number: u16,
    pub id: &'static str,
    pub says: &'static str,
    /// The page, KEP or test that states the promise.
    pub source: &'static str,
}

/// The short name of promise 906, which every run checks before its first step.
pub const STARTS: &str = "starts";

impl Promise {
    pub fn all() -> impl Iterator<Item = &'static Promise> {
        static ALL: std::sync::LazyLock<Vec<Promise>> = std::sync::LazyLock::new(|| {
            let rules = RULES.iter().map(|(number, rule)| Promise {
                number: *number,
                id: rule.id(),
                says: rule.says(),
                source: rule.source(),
            });
            rules.chain(BESIDES).collect()
        });
        ALL.iter()
    }

    #[must_use]
    pub fn of_id(id: &str) -> Option<&'static Promise> {
        Promise::all().find(|promise| promise.id == id)
    }

    /// Whether Kubernetes states it (page, KEP, upstream test), and not only this project.
    #[must_use]
    pub fn is_kubernetes(&self) -> bool {
        !self.source.starts_with("docs/")
    }

    #[must_use]
    pub fn is_for(&self, mode: Mode) -> bool {
        match self.id {
            "drain" | "port-reuse" | "strict-arp" | "other-port-of-vip" | "one-list-per-server" => mode == Mode::Ipvs,
            "next-endpoint" | "not-relayed" => mode == Mode::Userspace,
            "consistent-hash"
            | "flowtable"
            | "localhost-listeners"
            | "other-port-of-cluster-ip"
            | "unused-cluster-ip" => mode == Mode::Nftables,
            "affinity-across-ports" | "flow-fate" => !matches!(mode, Mode::Ipvs | Mode::Other),
            "relayed" => matches!(mode, Mode::Userspace | Mode::Nftables),
            "no-masquerade" | "traffic-counters" => matches!(mode, Mode::Iptables | Mode::Nftables),
            "masquerade-source" => !matches!(mode, Mode::Userspace | Mode::Other),
            // kube-proxy's own, by its flags and pages.
            "configuration" | "localhost-node-ports" | "proxy-mode" | "scheduled" | "switch-mode" => {
                mode != Mode::Other
            }
            _ => true,
        }
    }

    #[must_use]
    pub fn chapter(&self) -> &'static str {
        match self.number / 100 {
            1 => "Which addresses are served",
            2 => "Which endpoints get the traffic",
            3 => "What is refused",
            4 => "Which endpoint is chosen",
            5 => "Which source address pods see",
            6 => "What health checks report",
            7 => "While things change",
            8 => "When the proxy ends",
            _ => "Faults",
        }
    }
}

/// The oracle's rules with their numbers, without those that give no verdict (`undecided`, `contradiction`,
/// `node-port-addresses-other-family`), and without `astray`, which follows from `kept`.
const RULES: [(u16, Rule); 58] = [
    (101, Rule::ClusterIp),
    (102, Rule::NodePort),
    (103, Rule::ExternalIp),
    (104, Rule::LoadBalancerIp),
    (105, Rule::LoadBalancerProxies),
    (106, Rule::Headless),
    (107, Rule::ExternalName),
    (108, Rule::OtherProxy),
    (109, Rule::NoService),
    (110, Rule::Family),
    (111, Rule::NodePortAddresses),
    (112, Rule::LocalhostNodePorts),
    (113, Rule::LocalhostListeners),
    (114, Rule::Martian),
    (115, Rule::ExternalIpsShut),
    (116, Rule::OtherPortOfClusterIp),
    (117, Rule::UnusedClusterIp),
    (118, Rule::Shared),
    (119, Rule::OtherPortOfVip),
    (120, Rule::Protocols),
    (201, Rule::Ready),
    (202, Rule::Terminating),
    (203, Rule::Merged),
    (204, Rule::Reused),
    (205, Rule::ClusterPolicy),
    (206, Rule::InternalLocal),
    (207, Rule::ExternalLocal),
    (208, Rule::ShortCircuit),
    (209, Rule::ZoneHints),
    (210, Rule::NodeHints),
    (211, Rule::NoHints),
    (212, Rule::OneListPerServer),
    (213, Rule::TargetPort),
    (214, Rule::LocalBeforeHints),
    (215, Rule::WithoutNode),
    (216, Rule::LocalFallback),
    (301, Rule::NoEndpoints),
    (302, Rule::NoLocalEndpoints),
    (303, Rule::SourceRanges),
    (304, Rule::SourceRangesOwnNode),
    (305, Rule::SourceRangesFamily),
    (306, Rule::NotRelayed),
    (307, Rule::AnnotatedSourceRanges),
    (401, Rule::Even),
    (402, Rule::Scheduled),
    (403, Rule::Affinity),
    (404, Rule::ConsistentHash),
    (405, Rule::AffinityAcrossPorts),
    (501, Rule::Kept),
    (502, Rule::Hairpin),
    (503, Rule::OffCluster),
    (504, Rule::MasqueradeAll),
    (505, Rule::ExternalMasquerade),
    (506, Rule::OwnNode),
    (508, Rule::Relayed),
    (509, Rule::NoMasquerade),
    (510, Rule::MasqueradeSource),
    (601, Rule::HealthCheck),
];

const fn promise(number: u16, id: &'static str, says: &'static str, source: &'static str) -> Promise {
    Promise { number, id, says, source }
}

#[rustfmt::skip]
const BESIDES: [Promise; 43] = [
    promise(602, "drained-node", "a node that is about to be deleted answers 503 on the proxy's /healthz and still serves what arrives", "KEP-3836"),
    promise(603, "proxy-health", "/healthz and /livez of the proxy answer 200 while its rules are up to date, on every address and in each family of the node, and 503 while they are not", "KEP-3836, Summary; page reference/config-api/kube-proxy-config.v1alpha1, healthzBindAddress"),
    promise(604, "proxy-mode", "the proxy names its mode at /proxyMode of its metrics address", "page tutorials/services/source-ip, Source IP for Services with Type=ClusterIP; upstream's e2e test 'should check kube-proxy urls'"),
    promise(605, "traffic-counters", "if asked for, metrics count the connections of selected Services, each once, and in nftables mode packets and bytes in both directions; counts stay while endpoints change", "docs/metrics.md"),
    promise(701, "endpoint-changes", "while endpoints are added and removed, no connection is refused, reset or sent to a removed endpoint, as long as one is ready", "page concepts/workloads/pods/pod-lifecycle, Termination of Pods; KEP-1669"),
    promise(702, "udp-flows", "a UDP flow stays with its endpoint while that exists, and moves to another one as soon as it is removed", "upstream's e2e tests of conntrack, 'should be able to preserve UDP traffic when server pod cycles'"),
    promise(703, "drain", "in IPVS mode a connection outlives its endpoint's removal", "kubernetes#57841, graceful termination"),
    promise(704, "port-reuse", "in IPVS mode a client that reuses its source port is answered at once", "kubernetes#70747, kubernetes#81775"),
    promise(705, "dns-race", "two datagrams sent at once over one socket are both answered", "kubernetes#56903"),
    promise(706, "invalid-packets", "a packet that connection tracking calls invalid does not reset a connection", "kubernetes#74839; page reference/config-api/kube-proxy-config.v1alpha1, conntrack.tcpBeLiberal"),
    promise(707, "lossy-network", "packets that are sent again on a lossy network go to the same endpoint", "docs/scenario-list.md"),
    promise(708, "networks", "services work on any network between nodes: overlays, second interfaces, strict reverse paths", "docs/scenario-list.md"),
    promise(709, "partial-sync", "a change of one service does not rewrite the rules of the others", "page reference/networking/virtual-ips, Optimizing iptables mode performance; KEP-3453"),
    promise(710, "idle", "while nothing happens the proxy does nothing", "docs/scenario-list.md"),
    promise(711, "unknown-values", "a value that the proxy does not know, or does not need, does not invalidate the object", "docs/scenario-list.md"),
    promise(712, "flowtable", "long connections may bypass the rules by a flowtable, and still follow changes", "KEP-4963"),
    promise(713, "next-endpoint", "in userspace mode the proxy skips an endpoint that refuses", "page reference/networking/virtual-ips of 1.25, userspace proxy mode"),
    promise(714, "strict-arp", "in IPVS mode with strictARP no node answers ARP for services' addresses", "page reference/config-api/kube-proxy-config.v1alpha1, ipvs.strictARP"),
    promise(715, "service-changes", "a service whose type, ports or addresses change is served as it is now; what it does not have any more is closed", "page concepts/services-networking/service, Service type; upstream's e2e tests 'should be updated after adding or deleting ports', 'should be able to change the type and ports of a TCP service'"),
    promise(716, "policy-changes", "a changed traffic policy, session affinity or health check port is in force at once for new connections", "upstream's e2e tests 'should implement NodePort and HealthCheckNodePort correctly when ExternalTrafficPolicy changes', 'should be able to switch session affinity for service with type clusterIP'"),
    promise(717, "connections-stay", "an open connection stays with its endpoint while that exists, also when it is not ready or terminates, and when others are added", "page concepts/workloads/pods/pod-lifecycle, Termination of Pods; KEP-1669, Design Details"),
    promise(720, "in-time", "a change of Services, endpoints or readiness is in the rules of every node within seconds", "docs/scenario-list.md"),
    promise(722, "early-udp-flows", "a UDP flow that began before the service had a ready endpoint reaches it, and follows a changed target port", "upstream's e2e tests of conntrack, 'should be able to preserve UDP traffic when initial unready endpoints get ready', 'should be able to cleanup conntrack entries when UDP service target port changes for a NodePort service'"),
    promise(723, "conntrack-timeouts", "the node's timeouts of tracked connections are those of the configuration", "page reference/config-api/kube-proxy-config.v1alpha1, conntrack.tcpCloseWaitTimeout; upstream's e2e test 'should set TCP CLOSE_WAIT timeout'"),
    promise(731, "payload", "requests and answers of any size arrive whole, in segments or in fragments, also where a link on the way is narrower than the client's", "upstream's e2e tests 'should be able to handle large requests: http' and 'udp'; RFC 1191, RFC 8201"),
    promise(732, "packet-fields", "the proxy leaves a packet's DSCP, its segment size and other programs' bits of the mark alone, and its own bit is gone when the packet leaves the node", "kubernetes#19983, kubernetes#92035; page reference/config-api/kube-proxy-config.v1alpha1, iptables.masqueradeBit"),
    promise(733, "source-ports", "clients that use one source port are told apart, also where a node masquerades them", "kubernetes#76699, kubernetes#78547"),
    promise(734, "firewalls", "behind policies of INPUT and FORWARD that drop, a node forwards services' packets, and its own requests are answered", "kubernetes#39823, kubernetes#97225"),
    promise(741, "any-number", "the proxy limits neither how many connections and flows clients have at once, nor how fast they begin", "docs/scenario-list.md"),
    promise(742, "errors-arrive", "a reset or an ICMP error of an endpoint reaches the client, as one of the address that it has called", "RFC 5508, Requirements 4 and 5; page concepts/services-networking/service, Virtual IP addressing mechanism"),
    promise(743, "large-cluster", "in a cluster of hundreds of services each of them is served, and a change of one takes effect within seconds", "SIG Scalability's network programming latency (slos/network_programming_latency.md)"),
    promise(744, "flow-fate", "if a Service asks for it by an annotation, or the node's configuration does for all, open connections are reset once their endpoint no longer serves their Service, at once or after a time, and no others", "docs/svcproxy.md, Established connections"),
    promise(801, "restart", "a proxy that ends, however it ends, leaves its rules in place; the next one catches up, and connections survive", "docs/scenario-list.md"),
    promise(802, "cleanup", "--cleanup removes everything that the proxy has written, and nothing else", "page reference/command-line-tools-reference/kube-proxy, --cleanup"),
    promise(803, "switch-mode", "a proxy in another mode takes over without a failed connection, and removes the rules of the old mode", "KEP-3866, Upgrade / Downgrade Strategy; page reference/networking/virtual-ips"),
    promise(804, "configuration", "a proxy that follows its configuration file ends when that changes, with an error's status, to be started again; its rules and connections stay, and the next one has the new settings", "docs/svcproxy.md, A changed configuration file"),
    promise(901, "api-outage", "while the API is unavailable the rules stay; afterwards the proxy catches up", "docs/scenario-list.md"),
    promise(902, "api-answers", "whatever lists and watches answer, the proxy ends up with the current objects, and loses no rule meanwhile", "page reference/using-api/api-concepts, Efficient detection of changes: clients have to expect 410 and begin anew"),
    promise(903, "rules-taken-away", "the proxy restores rules that another program deletes, and keeps other programs' rules", "page reference/config-api/kube-proxy-config.v1alpha1, iptables.syncPeriod"),
    promise(904, "commands-fail", "a command that fails, hangs or waits for a lock delays no other family, and the proxy reports that it is unhealthy", "docs/scenario-list.md"),
    promise(905, "busy-tables", "changes take effect in seconds although other programs write rules all the time", "docs/scenario-list.md"),
    promise(906, "starts", "with every cluster that an API server accepts the proxy starts, writes its rules and reports that it is ready", "docs/conformance.md"),
    promise(907, "log", "a stalled or closed reader of the log delays no change and does not end the proxy", "docs/scenario-list.md"),
];

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn numbers_and_names_stay() {
        let mut text = String::new();
        for promise in Promise::all() {
            let _ = writeln!(text, "{} {}", promise.number, promise.id);
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn promises_of_one_mode_are_not_for_other_proxies() {
        let not: Vec<u16> = Promise::all().filter(|one| !one.is_for(Mode::Other)).map(|one| one.number).collect();
        let of_modes = [
            112, 113, 116, 117, 119, 212, 306, 402, 404, 405, 508, 509, 510, 604, 605, 703, 704, 712, 713, 714, 744,
            803, 804,
        ];
        assert_eq!(not, of_modes);
    }

    #[test]
    fn promises_are_unique_and_in_order() {
        let numbers: Vec<u16> = Promise::all().map(|promise| promise.number).collect();
        assert!(numbers.is_sorted_by(|one, next| one < next));
        let mut ids: Vec<&str> = Promise::all().map(|promise| promise.id).collect();
        ids.sort_unstable();
        assert!(ids.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn every_rule_that_decides_has_a_number() {
        let known = [Rule::Undecided, Rule::NodePortAddressesOtherFamily, Rule::Contradiction, Rule::AsymmetricReply];
        let without = Rule::ALL.into_iter().filter(|rule| Promise::of_id(rule.id()).is_none());
        assert_eq!(without.collect::<Vec<_>>(), known);
    }
}
