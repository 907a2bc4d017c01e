//! Changes of a Service's traffic policies.

use std::sync::Arc;

use super::memory::Memory;
use crate::model::{Batch, Change, ObjectKey, ServicePortName};
use crate::mutants::{Hook, Mutant, PlanInput};
use crate::plan::{HealthCheck, ServicePortPlan};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "policy-changes-external-frozen",
        "keeps the externalTrafficPolicy that a Service had first",
        "policy-changes",
        Hook::Batch(keep_external_policies),
    ),
    Mutant::new(
        "policy-changes-internal-frozen",
        "keeps the internalTrafficPolicy that a Service had first",
        "policy-changes",
        Hook::Batch(keep_internal_policies),
    ),
    Mutant::new(
        "policy-changes-health-port-stays",
        "leaves a health check port open after the policy became Cluster",
        "policy-changes",
        Hook::Plan(keep_health_port),
    )
    .remembering(),
    Mutant::new(
        "policy-changes-health-port-number-stays",
        "ignores that the number of a health check port changes",
        "policy-changes",
        Hook::Plan(keep_health_port_number),
    )
    .remembering(),
];

fn keep_external_policies(batch: &mut Batch) {
    static FIRST: Memory<ObjectKey, Option<String>> = Memory::new();
    for change in &mut batch.changes {
        if let Change::Service(key, Some(service)) = change
            && let Some(spec) = &mut Arc::make_mut(service).spec
        {
            spec.external_traffic_policy = FIRST.first(key.clone(), spec.external_traffic_policy.clone());
        }
    }
}

fn keep_internal_policies(batch: &mut Batch) {
    static FIRST: Memory<ObjectKey, Option<String>> = Memory::new();
    for change in &mut batch.changes {
        if let Change::Service(key, Some(service)) = change
            && let Some(spec) = &mut Arc::make_mut(service).spec
        {
            spec.internal_traffic_policy = FIRST.first(key.clone(), spec.internal_traffic_policy.clone());
        }
    }
}

fn keep_health_port(_: &PlanInput<'_>, plan: &mut ServicePortPlan) {
    static SEEN: Memory<ServicePortName, HealthCheck> = Memory::new();
    if let Some(check) = &plan.health_check {
        SEEN.set(plan.name.clone(), check.clone());
    } else {
        plan.health_check = SEEN.get(&plan.name);
    }
}

fn keep_health_port_number(_: &PlanInput<'_>, plan: &mut ServicePortPlan) {
    static FIRST: Memory<ServicePortName, u16> = Memory::new();
    if let Some(check) = &mut plan.health_check {
        check.port = FIRST.first(plan.name.clone(), check.port);
    }
}
