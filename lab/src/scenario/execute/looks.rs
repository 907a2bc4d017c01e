//! Steps that look at something without sending requests to a service.

use std::collections::BTreeSet;

use serde_saphyr::Spanned;
use svclab_apiserver::objects::ObjectKey;

use super::{Backend, Seen};
use crate::expect::Mismatch;
use crate::scenario::file::{ExpectFile, OneFamily, RuleFile, ScanFile};
use crate::scenario::{Step, look, resolve};

/// Chains and rules.
pub(super) async fn rules<B: Backend>(backend: &B, rules: &[RuleFile]) -> Result<Seen, B::Error> {
    let (modes, saved) = (backend.modes(), backend.saved(rules).await?);
    let broken = look::compare(&modes, rules, None, &saved, &|_| 0)?;
    let not_judged = look::left_out(&modes, rules)?;
    Ok(Seen { not_judged, ..Seen::new("", broken) })
}

/// A node's health check for a service.
pub(super) async fn health<B: Backend>(
    backend: &mut B,
    node: &str,
    service: &ObjectKey,
    family: Option<&Spanned<OneFamily>>,
    expect: &ExpectFile,
) -> Result<Seen, B::Error> {
    let address = backend.read(|store| resolve::health_check(store, node, service, family))?;
    Ok(match backend.health(node, address).await {
        Ok(answer) => {
            let body = answer.body.trim();
            let broken = look::health(expect, answer.status, answer.local_endpoints, body);
            Seen::new(format!("{} {}", answer.status, body.replace('\n', " ")), broken)
        }
        Err(silent) => Seen::new("", [Mismatch::new(format!("{address} answers"), silent)]),
    })
}

/// The nodes that the load balancer uses for a service.
pub(super) async fn load_balancer<B: Backend>(
    backend: &mut B,
    service: &ObjectKey,
    step: &Step,
) -> Result<Seen, B::Error> {
    let healthy = step.expect.healthy_nodes.as_ref();
    let wanted = healthy.map(|nodes| nodes.iter().map(|node| node.value.clone()).collect::<BTreeSet<_>>());
    let wanted = wanted.map(Vec::from_iter);
    let (address, nodes) = backend.balanced(service, wanted.as_deref(), step.eventually).await?;
    let seen = nodes.join(", ");
    let wrong = wanted
        .filter(|wanted| *wanted != nodes)
        .map(|wanted| Mismatch::new(format!("{address} goes to {}", wanted.join(", ")), format!("it goes to {seen}")));
    Ok(Seen::new(format!("{address} goes to {seen}"), wrong))
}

/// Every port of an address, and those that answer.
pub(super) async fn scan<B: Backend>(backend: &mut B, file: &ScanFile, expect: &ExpectFile) -> Result<Seen, B::Error> {
    let plan = backend.read(|store| resolve::scan(store, file, expect))?;
    let open = backend.scan(&plan).await?;
    let (summary, wrong) = resolve::judge_scan(&plan, &open);
    Ok(Seen::new(summary, wrong))
}
