//! Steps that read state, without requests to a service.

use std::collections::BTreeSet;

use super::{Backend, StepOutcome};
use crate::expect::Mismatch;
use crate::scenario::file::{ExpectFile, HealthCheckFile, LoadBalancerFile, RuleFile, ScanFile};
use crate::scenario::{Step, resolve, rule_checks};

pub(super) async fn rules<B: Backend>(backend: &B, rules: &[RuleFile]) -> Result<StepOutcome, B::Error> {
    let (modes, saved) = (backend.modes(), backend.saved(rules).await?);
    let broken = rule_checks::compare(&modes, rules, None, &saved, &|_| 0)?;
    let not_judged = rule_checks::left_out(&modes, rules)?;
    Ok(StepOutcome { not_judged, ..StepOutcome::new("", broken) })
}

pub(super) async fn health<B: Backend>(
    backend: &mut B,
    step: &Step,
    file: &HealthCheckFile,
) -> Result<StepOutcome, B::Error> {
    let node = step.node();
    let (from, address) = backend.read(|store| resolve::health_check(store, node, file))?;
    Ok(match backend.health(&from, node, address).await {
        Ok(answer) => {
            let body = answer.body.trim();
            let broken = rule_checks::health(&step.expect, answer.status, answer.local_endpoints, body);
            StepOutcome::new(format!("{} {}", answer.status, body.replace('\n', " ")), broken)
        }
        Err(silent) => StepOutcome::new("", [Mismatch::new(format!("{address} answers"), silent)]),
    })
}

pub(super) async fn load_balancer<B: Backend>(
    backend: &mut B,
    file: &LoadBalancerFile,
    step: &Step,
) -> Result<StepOutcome, B::Error> {
    let healthy = step.expect.healthy_nodes.as_ref();
    let wanted = healthy.map(|nodes| nodes.iter().map(|node| node.value.clone()).collect::<BTreeSet<_>>());
    let wanted = wanted.map(Vec::from_iter);
    let address = backend.read(|store| resolve::vip(store, &file.service.value.0, file.family.as_ref()))?;
    let nodes = backend.balanced(address, wanted.as_deref(), step.eventually).await?;
    let seen = nodes.join(", ");
    let wrong = wanted
        .filter(|wanted| *wanted != nodes)
        .map(|wanted| Mismatch::new(format!("{address} goes to {}", wanted.join(", ")), format!("it goes to {seen}")));
    Ok(StepOutcome::new(format!("{address} goes to {seen}"), wrong))
}

pub(super) async fn scan<B: Backend>(
    backend: &mut B,
    file: &ScanFile,
    expect: &ExpectFile,
) -> Result<StepOutcome, B::Error> {
    let plan = backend.read(|store| resolve::scan(store, file, expect))?;
    let open = backend.scan(&plan).await?;
    let (summary, wrong) = resolve::judge_scan(&plan, &open);
    Ok(StepOutcome::new(summary, wrong))
}
