//! What is rejected and what is dropped.

use std::sync::Arc;

use crate::config::Mode;
use crate::model::{Change, Protocol};
use crate::mutants::{Hook, Mutant};
use crate::plan::{BackendSet, FrontendVerdict, ServicePortPlan};
use crate::ruleset::{Match, RuleTarget};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "refusals-no-endpoints-dropped",
        "drops packets to a Service without endpoints in place of rejecting them",
        "no-endpoints",
        Hook::Plan(|_, plan| each(plan, FrontendVerdict::Reject, FrontendVerdict::Drop)),
    ),
    Mutant::new(
        "refusals-no-endpoints-dropped-outside",
        "drops packets to external frontends of a Service without endpoints in place of rejecting them",
        "no-endpoints",
        Hook::Plan(|_, plan| {
            if let Some(external) = &mut plan.external
                && external.action.verdict == FrontendVerdict::Reject
            {
                external.action.verdict = FrontendVerdict::Drop;
            }
        }),
    ),
    Mutant::new(
        "refusals-udp-dropped",
        "drops UDP packets to a Service without endpoints in place of rejecting them",
        "no-endpoints",
        Hook::Plan(|_, plan| {
            if plan.protocol() == Protocol::Udp {
                each(plan, FrontendVerdict::Reject, FrontendVerdict::Drop);
            }
        }),
    ),
    Mutant::new(
        "refusals-no-local-endpoints-rejected",
        "rejects packets under policy Local that other nodes' endpoints could serve, in place of dropping them",
        "local-policy",
        Hook::Plan(|_, plan| each(plan, FrontendVerdict::Drop, FrontendVerdict::Reject)),
    ),
    Mutant::new(
        "refusals-no-local-endpoints-forwarded",
        "forwards to other nodes' endpoints under policy Local if this node has none",
        "local-policy",
        Hook::Plan(|_, plan| each(plan, FrontendVerdict::Drop, FrontendVerdict::Deliver(BackendSet::Cluster))),
    ),
    Mutant::new(
        "refusals-internal-local-rejected",
        "rejects packets under internal policy Local on nodes without an endpoint, in place of dropping them",
        "internal-policy",
        Hook::Plan(|_, plan| {
            if let Some(internal) = &mut plan.internal
                && internal.action.verdict == FrontendVerdict::Drop
            {
                internal.action.verdict = FrontendVerdict::Reject;
            }
        }),
    ),
    Mutant::new(
        "refusals-cluster-ips-other-ports-open",
        "rejects no packets to other ports of a cluster IP",
        "vip-ports",
        Hook::NftRules(|chain, rules| {
            if chain == "cluster-ips-check" {
                rules.remove(0);
            }
        }),
    )
    .only(&[Mode::Nftables]),
    Mutant::new(
        "refusals-source-ranges-ignored",
        "admits every source to a load balancer's address",
        "source-ranges",
        Hook::Plan(|_, plan| {
            if let Some(external) = &mut plan.external {
                external.allowed_sources = None;
            }
        }),
    ),
    Mutant::new(
        "refusals-source-ranges-of-one-family-shut-the-other",
        "admits nobody over IPv6 if all source ranges are of IPv4",
        "dual-stack",
        Hook::Change(|change| {
            if let Change::Service(_, Some(service)) = change
                && let Some(spec) = &mut Arc::make_mut(service).spec
                && let Some(ranges) = &mut spec.load_balancer_source_ranges
                && !ranges.iter().any(|range| range.contains(':'))
            {
                ranges.push("::1/128".to_owned());
            }
        }),
    ),
    Mutant::new(
        "refusals-sctp-not-refused",
        "neither relays SCTP nor refuses it",
        "sctp",
        Hook::Rules(|_, rules| {
            rules.retain(|rule| {
                let is_sctp = rule.matches.iter().any(|one| matches!(one, Match::Port(Protocol::Sctp, _)));
                !(is_sctp && matches!(rule.target, RuleTarget::Reject(_)))
            });
        }),
    )
    .only(&[Mode::Userspace]),
    Mutant::new(
        "refusals-annotated-ranges-ignored",
        "does not know the annotation svcproxy/source-ranges",
        "annotated-source-ranges",
        Hook::ServicePort(|_, port| port.annotated_ranges = None),
    ),
    Mutant::new(
        "refusals-annotated-ranges-not-for-node-ports",
        "admits every source to node ports of a Service with the annotation svcproxy/source-ranges (nftables)",
        "annotated-source-ranges",
        Hook::NftRules(|chain, rules| {
            if chain == "firewall-check" {
                rules.truncate(1);
            }
        }),
    )
    .only(&[Mode::Nftables]),
    Mutant::new(
        "refusals-annotated-ranges-for-load-balancer-ips",
        "applies the annotation svcproxy/source-ranges to load-balancer IPs, too",
        "annotated-source-ranges",
        Hook::Plan(|_, plan| {
            if let Some(external) = &mut plan.external {
                external.allowed_sources.clone_from(&external.annotated_sources);
            }
        }),
    ),
    Mutant::new(
        "refusals-annotated-ranges-of-one-family-leave-the-other-open",
        "admits every source over IPv6 if the annotation svcproxy/source-ranges lists IPv4 only",
        "annotated-source-ranges",
        Hook::ServicePort(|_, port| port.annotated_ranges = port.annotated_ranges.take().filter(|all| !all.is_empty())),
    ),
    Mutant::new(
        "refusals-first-source-range-only",
        "admits only the first of several source ranges",
        "source-ranges",
        Hook::Plan(|_, plan| {
            if let Some(allowed) = plan.external.as_mut().and_then(|external| external.allowed_sources.as_mut()) {
                allowed.ranges.truncate(1);
            }
        }),
    ),
];

fn each(plan: &mut ServicePortPlan, from: FrontendVerdict, to: FrontendVerdict) {
    let internal = plan.internal.as_mut().map(|internal| &mut internal.action);
    let external = plan.external.as_mut().map(|external| &mut external.action);
    for action in internal.into_iter().chain(external).filter(|action| action.verdict == from) {
        action.verdict = to;
    }
}
