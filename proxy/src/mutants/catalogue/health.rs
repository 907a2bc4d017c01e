//! What load balancers are told about the node.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Node;

use crate::mutants::{Hook, Mutant, PlanInput};
use crate::plan::ServicePortPlan;
use crate::state::endpoints::Endpoint;

const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

fn has_taint(node: &Node, is_meant: fn(&str) -> bool) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| is_meant(&taint.key))
}

/// Counts other endpoints than the ready ones of this node.
fn count(input: &PlanInput<'_>, plan: &mut ServicePortPlan, is_counted: fn(&Endpoint) -> bool) {
    if let Some(check) = &mut plan.health_check {
        let counted = input.endpoints.iter().filter(|endpoint| is_counted(endpoint));
        check.local_ready = counted.map(|endpoint| endpoint.address.ip()).collect();
        check.local_ready.dedup();
    }
}

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "health-never-up-to-date",
        "answers 503 on /healthz for ever",
        "healthz-families",
        Hook::Health(|path, facts| {
            if path == "/healthz" {
                facts.synced = false;
            }
        }),
    ),
    Mutant::new(
        "health-drain-ignored",
        "answers 200 on /healthz while the cluster autoscaler is about to delete the node",
        "drained-node",
        Hook::Eligible(|node| node.metadata.deletion_timestamp.is_none()),
    ),
    Mutant::new(
        "health-deletion-ignored",
        "answers 200 on /healthz although the Node has a deletion timestamp",
        "drained-node",
        Hook::Eligible(|node| !has_taint(node, |key| key == TO_BE_DELETED)),
    ),
    Mutant::new(
        "health-cordon-drains",
        "answers 503 on /healthz of a node that is only cordoned",
        "drained-node",
        Hook::Eligible(|node| {
            let is_cordoned = has_taint(node, |key| key == "node.kubernetes.io/unschedulable" || key == TO_BE_DELETED);
            !is_cordoned && node.metadata.deletion_timestamp.is_none()
        }),
    ),
    Mutant::new(
        "health-every-taint-drains",
        "answers 503 on /healthz of a node with any taint",
        "drained-node",
        Hook::Eligible(|node| !has_taint(node, |_| true) && node.metadata.deletion_timestamp.is_none()),
    ),
    Mutant::new(
        "health-drain-never-ends",
        "answers 503 on /healthz for good once its node was about to be deleted",
        "drained-node",
        Hook::Health(|_, facts| {
            static DRAINED: AtomicBool = AtomicBool::new(false);
            DRAINED.fetch_or(!facts.node_eligible, Ordering::Relaxed);
            facts.node_eligible &= !DRAINED.load(Ordering::Relaxed);
        }),
    ),
    Mutant::new(
        "health-drain-ends-livez",
        "answers 503 on /livez, too, while its node is about to be deleted",
        "drained-node",
        Hook::Health(|path, facts| facts.alive &= path != "/livez" || facts.node_eligible),
    ),
    Mutant::new(
        "health-drain-ends-service-checks",
        "answers 503 on every healthCheckNodePort while its node is about to be deleted",
        "drained-node",
        Hook::Health(|path, facts| facts.alive &= !path.is_empty() || facts.node_eligible),
    ),
    Mutant::new(
        "health-loopback-only",
        "answers /healthz on 127.0.0.1 only",
        "healthz-families",
        Hook::Config(|config| {
            if let Some(address) = &mut config.healthz_bind_address {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
        }),
    ),
    Mutant::new(
        "health-ipv4-only",
        "answers /healthz over IPv4 only",
        "healthz-families",
        Hook::TablesBeside(
            "table inet mutant {
  chain input {
    type filter hook input priority 1; policy accept;
    meta nfproto ipv6 tcp dport 10256 reject with tcp reset
  }
}
",
        ),
    ),
    Mutant::new(
        "health-ipv6-only",
        "answers /healthz of other machines over IPv6 only",
        "healthz-families",
        Hook::TablesBeside(
            "table inet mutant {
  chain input {
    type filter hook input priority 1; policy accept;
    iifname != \"lo\" meta nfproto ipv4 tcp dport 10256 reject with tcp reset
  }
}
",
        ),
    ),
    Mutant::new(
        "health-service-checks-inside-only",
        "answers healthCheckNodePorts on its own node only",
        "health-check-node-port",
        Hook::TablesBeside(
            "table inet mutant {
  chain input {
    type filter hook input priority 1; policy accept;
    iifname != \"lo\" tcp dport 30000-32767 reject with tcp reset
  }
}
",
        ),
    ),
    Mutant::new(
        "health-service-checks-ipv4-only",
        "answers healthCheckNodePorts over IPv4 only",
        "health-check-families",
        Hook::TablesBeside(
            "table inet mutant {
  chain input {
    type filter hook input priority 1; policy accept;
    meta nfproto ipv6 tcp dport 30000-32767 reject with tcp reset
  }
}
",
        ),
    ),
    Mutant::new(
        "health-counts-other-nodes",
        "counts the ready endpoints of every node on a healthCheckNodePort",
        "health-check-node-port",
        Hook::Plan(|input, plan| count(input, plan, |endpoint| endpoint.ready)),
    ),
    Mutant::new(
        "health-counts-not-ready",
        "counts its node's endpoints on a healthCheckNodePort although they are not ready",
        "health-check-node-port",
        Hook::Plan(|input, plan| count(input, plan, |endpoint| endpoint.local)),
    ),
    Mutant::new(
        "health-counts-terminating",
        "counts endpoints on a healthCheckNodePort that serve while they terminate",
        "health-check-node-port",
        Hook::Plan(|input, plan| {
            count(input, plan, |endpoint| {
                endpoint.local && (endpoint.ready || endpoint.serving && endpoint.terminating)
            });
        }),
    ),
    Mutant::new(
        "health-counts-unplaced",
        "counts an endpoint without nodeName on every node's healthCheckNodePort",
        "health-check-node-port",
        Hook::Plan(|input, plan| {
            count(input, plan, |endpoint| endpoint.ready && (endpoint.local || endpoint.unplaced))
        }),
    ),
    Mutant::new(
        "health-counts-first-port",
        "counts the endpoints of a Service's first port only on its healthCheckNodePort",
        "health-check-node-port",
        Hook::Plan(|input, plan| {
            let mut ports = input.state.service_ports().filter(|port| port.name.service == plan.name.service);
            if let Some(check) = plan.health_check.as_mut().filter(|_| ports.any(|port| port.name < plan.name)) {
                check.local_ready.clear();
            }
        }),
    ),
    Mutant::new(
        "health-needs-node-port",
        "opens no healthCheckNodePort for a Service without node ports",
        "health-check-node-port",
        Hook::Plan(|input, plan| {
            plan.health_check = plan.health_check.take().filter(|_| input.port.node_port.is_some())
        }),
    ),
];
