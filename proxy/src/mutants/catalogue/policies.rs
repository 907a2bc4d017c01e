//! Which endpoints the traffic policies and the conditions of endpoints admit.

use std::collections::BTreeSet;

use crate::config::Mode;
use crate::model::Protocol;
use crate::mutants::{Hook, Mutant, PlanInput};
use crate::plan::{BackendSet, FrontendVerdict, Masquerade, ServicePortPlan};
use crate::state::endpoints::Endpoint;
use crate::state::service::TrafficPolicy;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "policies-internal-ignored",
        "ignores internalTrafficPolicy",
        "internal-policy",
        Hook::ServicePort(|_, port| port.internal_policy = TrafficPolicy::Cluster),
    ),
    Mutant::new(
        "policies-internal-ignored-for-udp",
        "ignores internalTrafficPolicy for UDP",
        "internal-policy",
        Hook::ServicePort(|_, port| {
            if port.name.protocol == Protocol::Udp {
                port.internal_policy = TrafficPolicy::Cluster;
            }
        }),
    ),
    Mutant::new(
        "policies-internal-falls-back",
        "uses other nodes' endpoints under internalTrafficPolicy Local where the node has none",
        "internal-policy",
        Hook::Endpoints(|_, port, endpoints| {
            if port.internal_policy == TrafficPolicy::Local {
                fall_back(endpoints);
            }
        }),
    ),
    Mutant::new(
        "policies-external-ignored",
        "ignores externalTrafficPolicy",
        "local-policy",
        Hook::ServicePort(|_, port| port.external_policy = TrafficPolicy::Cluster),
    ),
    Mutant::new(
        "policies-external-ignored-for-udp",
        "ignores externalTrafficPolicy for UDP",
        "local-policy",
        Hook::ServicePort(|_, port| {
            if port.name.protocol == Protocol::Udp {
                port.external_policy = TrafficPolicy::Cluster;
            }
        }),
    ),
    Mutant::new(
        "policies-local-fallback-ignored",
        "does not know the annotation svcproxy/local-fallback",
        "local-fallback",
        Hook::ServicePort(|_, port| port.local_fallback = false),
    ),
    Mutant::new(
        "policies-local-fallback-always",
        "uses all nodes' endpoints for a Service with a fallback, even where the node has some",
        "local-fallback",
        Hook::ServicePort(|_, port| {
            if port.local_fallback {
                port.external_policy = TrafficPolicy::Cluster;
            }
        }),
    ),
    Mutant::new(
        "policies-local-fallback-of-every-service",
        "falls back for every Service under externalTrafficPolicy Local",
        "local-fallback",
        Hook::ServicePort(|_, port| port.local_fallback = true),
    ),
    Mutant::new(
        "policies-local-fallback-keeps-clients",
        "keeps the client's address where it falls back, so that answers miss this node",
        "local-fallback",
        Hook::Plan(|_, plan| {
            if plan.health_check.is_some()
                && let Some(external) = &mut plan.external
                && external.action.verdict == FrontendVerdict::Deliver(BackendSet::Cluster)
            {
                external.action.masquerade = Masquerade::Never;
            }
        }),
    ),
    Mutant::new(
        "policies-ipvs-every-list-is-the-clusters",
        "gives its virtual servers the endpoints of all nodes under externalTrafficPolicy Local",
        "short-circuit",
        Hook::Plan(|_, plan| {
            if let Some(external) = &mut plan.external
                && external.action.verdict == FrontendVerdict::Deliver(BackendSet::Local)
            {
                external.action.verdict = FrontendVerdict::Deliver(BackendSet::Cluster);
            }
        }),
    )
    .only(&[Mode::Ipvs]),
    Mutant::new(
        "policies-internal-from-external",
        "applies externalTrafficPolicy to the cluster IP, too",
        "policy-changes",
        Hook::ServicePort(|_, port| port.internal_policy = port.external_policy),
    ),
    Mutant::new(
        "policies-external-from-internal",
        "applies internalTrafficPolicy to node ports, too",
        "policy-changes",
        Hook::ServicePort(|_, port| port.external_policy = port.internal_policy),
    ),
    Mutant::new(
        "policies-host-network-endpoint-is-elsewhere",
        "takes no host-network endpoint for one of its node",
        "internal-policy",
        Hook::Endpoints(|state, _, endpoints| {
            let own = &state.node().internal_ips;
            endpoints.iter_mut().filter(|e| own.contains(&e.address.ip())).for_each(|e| e.local = false);
        }),
    ),
    Mutant::new(
        "policies-no-node-is-local",
        "takes an endpoint without nodeName for one of its node",
        "endpoint-without-node",
        Hook::Endpoints(|_, _, endpoints| {
            endpoints.iter_mut().filter(|e| e.unplaced).for_each(|e| e.local = true);
        }),
    ),
    Mutant::new(
        "policies-no-node-unused",
        "does not use an endpoint without nodeName",
        "endpoint-without-node",
        Hook::Endpoints(|_, _, endpoints| endpoints.retain(|e| !e.unplaced)),
    ),
    Mutant::new(
        "policies-no-node-is-healthy",
        "counts endpoints without nodeName in its health check",
        "endpoint-without-node",
        Hook::Plan(|input, plan| count_as_healthy(input, plan, |e| e.unplaced && e.ready)),
    ),
    Mutant::new(
        "policies-short-circuit-prefers-own",
        "sends pods and the node itself to the node's own endpoints under externalTrafficPolicy Local while there are any",
        "short-circuit",
        Hook::Plan(|_, plan| {
            let short = plan.external.as_mut().and_then(|external| external.short_circuit.as_mut());
            if let Some(short) = short.filter(|_| !plan.local_backends.is_empty()) {
                short.pods.verdict = FrontendVerdict::Deliver(BackendSet::Local);
                short.node.verdict = FrontendVerdict::Deliver(BackendSet::Local);
            }
        }),
    ),
    Mutant::new(
        "policies-unready-as-fallback",
        "uses endpoints that are not ready while no endpoint is",
        "left-out-conditions",
        Hook::Endpoints(|_, _, endpoints| {
            for endpoint in endpoints.iter_mut().filter(|e| !e.ready && !e.terminating) {
                (endpoint.serving, endpoint.terminating) = (true, true);
            }
        }),
    ),
    Mutant::new(
        "policies-terminating-unused-under-local",
        "has no fallback to terminating endpoints under policy Local",
        "terminating",
        Hook::Endpoints(|_, _, endpoints| {
            endpoints.iter_mut().filter(|e| only_terminates(e)).for_each(|e| e.local = false);
        }),
    ),
    Mutant::new(
        "policies-terminating-unused-while-another-node-is-ready",
        "uses terminating endpoints under policy Local only if no endpoint of any node is ready",
        "terminating",
        Hook::Endpoints(|_, _, endpoints| {
            if endpoints.iter().any(|e| e.ready) {
                endpoints.iter_mut().filter(|e| only_terminates(e)).for_each(|e| e.local = false);
            }
        }),
    ),
    Mutant::new(
        "policies-terminating-unused-by-internal-local",
        "has no fallback to terminating endpoints under internalTrafficPolicy Local",
        "terminating",
        Hook::Plan(|input, plan| {
            if let Some(internal) = &mut plan.internal
                && internal.action.verdict == FrontendVerdict::Deliver(BackendSet::Local)
                && input.endpoints.iter().all(|e| !e.local || only_terminates(e))
            {
                internal.action.verdict = FrontendVerdict::Drop;
            }
        }),
    ),
    Mutant::new(
        "policies-terminating-unused-by-external-local",
        "has no fallback to terminating endpoints under externalTrafficPolicy Local",
        "terminating",
        Hook::Plan(|input, plan| {
            if let Some(external) = &mut plan.external
                && external.action.verdict == FrontendVerdict::Deliver(BackendSet::Local)
                && input.endpoints.iter().all(|e| !e.local || only_terminates(e))
            {
                external.action.verdict = FrontendVerdict::Drop;
            }
        }),
    ),
    Mutant::new(
        "policies-terminating-unused-by-external-cluster",
        "has no fallback to terminating endpoints for node ports, external and load-balancer IPs under policy Cluster",
        "terminating",
        Hook::Plan(|input, plan| {
            if let Some(external) = &mut plan.external
                && external.action.verdict == FrontendVerdict::Deliver(BackendSet::Cluster)
                && input.endpoints.iter().all(only_terminates)
            {
                external.action.verdict = FrontendVerdict::Reject;
            }
        }),
    ),
    Mutant::new(
        "policies-published-ignored",
        "ignores publishNotReadyAddresses",
        "not-ready",
        Hook::Endpoints(|_, _, endpoints| {
            endpoints.iter_mut().filter(|e| !e.serving).for_each(|e| e.ready = false);
        }),
    ),
    Mutant::new(
        "policies-published-ignored-under-local",
        "ignores publishNotReadyAddresses under policy Local",
        "not-ready",
        Hook::Endpoints(|_, _, endpoints| {
            endpoints.iter_mut().filter(|e| e.ready && !e.serving).for_each(|e| e.local = false);
        }),
    ),
    Mutant::new(
        "policies-published-ignored-by-health",
        "does not count addresses of publishNotReadyAddresses in its health check",
        "not-ready",
        Hook::Plan(|input, plan| {
            if let Some(health) = &mut plan.health_check {
                let serves = |e: &Endpoint| e.serving && health.local_ready.contains(&e.address.ip());
                let serving: BTreeSet<_> =
                    input.endpoints.iter().filter(|e| serves(e)).map(|e| e.address.ip()).collect();
                health.local_ready = serving.into_iter().collect();
            }
        }),
    ),
    Mutant::new(
        "policies-published-unused-while-terminating",
        "gives a terminating endpoint of publishNotReadyAddresses no new connections",
        "not-ready",
        Hook::Endpoints(|_, _, endpoints| {
            endpoints.iter_mut().filter(|e| e.terminating).for_each(|e| e.ready = false);
        }),
    ),
    Mutant::new(
        "policies-terminating-is-healthy",
        "counts terminating endpoints in its health check",
        "health-check-node-port",
        Hook::Plan(|input, plan| {
            count_as_healthy(input, plan, |e| e.local && e.serving && e.terminating);
        }),
    ),
];

fn only_terminates(endpoint: &Endpoint) -> bool {
    endpoint.terminating && !endpoint.ready
}

/// Takes all endpoints for the node's own if it has none that can be used.
fn fall_back(endpoints: &mut [Endpoint]) {
    if !endpoints.iter().any(|e| e.local && (e.ready || (e.serving && e.terminating))) {
        endpoints.iter_mut().for_each(|e| e.local = true);
    }
}

fn count_as_healthy(input: &PlanInput<'_>, plan: &mut ServicePortPlan, counts: impl Fn(&Endpoint) -> bool) {
    if let Some(health) = &mut plan.health_check {
        let more = input.endpoints.iter().filter(|e| counts(e)).map(|e| e.address.ip());
        health.local_ready.extend(more);
        health.local_ready.sort_unstable();
        health.local_ready.dedup();
    }
}
