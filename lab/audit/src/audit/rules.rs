//! Counts of kept and broken rules of Kubernetes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use svclab_oracle::{Promise, PromisePart, Rule};

use super::finding::FindingKind;
use crate::judge::FaultKind;

/// The counts of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RuleTally {
    /// Calls with the promised outcome.
    pub held: usize,
    /// Calls that break the rule.
    pub broken: usize,
    /// Calls that break the rule by a known difference of kube-proxy.
    pub known: usize,
}

impl RuleTally {
    /// Adds two counts.
    #[must_use]
    pub fn and(self, other: RuleTally) -> RuleTally {
        RuleTally { held: self.held + other.held, broken: self.broken + other.broken, known: self.known + other.known }
    }
}

/// Counts by the rule's short name ([`Rule::id`]).
pub type RuleTallies = BTreeMap<&'static str, RuleTally>;

/// Returns the promise's rules that this kind of finding breaks: a wrong source address breaks no rule on endpoints.
/// All rules if none fits.
pub(super) fn broken_by(kind: FindingKind, promise: &Promise) -> Vec<Rule> {
    let FindingKind::Broken(kind) = kind else { return vec![Rule::NoService] };
    let all = || promise.because.iter().map(|reason| reason.rule);
    let of = |part: PromisePart| all().filter(|rule| rule.part() == part).collect::<Vec<_>>();
    let candidates = match kind {
        FaultKind::NotTranslated => vec![of(PromisePart::Frontend)],
        FaultKind::Dropped | FaultKind::Rejected => vec![
            all()
                .filter(|rule| matches!(rule.part(), PromisePart::Endpoints | PromisePart::Refusal) && !is_usual(*rule))
                .collect(),
            of(PromisePart::Frontend),
        ],
        FaultKind::WrongEndpoint | FaultKind::MissingEndpoint => vec![of(PromisePart::Endpoints)],
        FaultKind::Share | FaultKind::Affinity => {
            vec![of(PromisePart::Choice).into_iter().filter(|rule| *rule != Rule::AffinityAcrossPorts).collect()]
        }
        FaultKind::AffinityAcrossPorts => vec![vec![Rule::AffinityAcrossPorts]],
        FaultKind::Source | FaultKind::Answer => vec![of(PromisePart::Source)],
        FaultKind::Delivered | FaultKind::Refusal => vec![of(PromisePart::Refusal), of(PromisePart::Frontend)],
    };
    candidates.into_iter().find(|rules| !rules.is_empty()).unwrap_or_else(|| all().collect())
}

fn is_usual(rule: Rule) -> bool {
    matches!(rule, Rule::Ready | Rule::TargetPort | Rule::ClusterPolicy)
}

#[cfg(test)]
mod tests {
    use svclab_oracle::{PromisedVerdict, Reason};

    use super::*;

    fn promise(rules: &[Rule]) -> Promise {
        let because = rules.iter().map(|rule| Reason { rule: *rule, about: String::new() }).collect();
        Promise { verdict: PromisedVerdict::Drop, because }
    }

    #[test]
    fn a_fault_breaks_the_rules_that_it_is_about() {
        let usual = promise(&[Rule::ClusterIp, Rule::Ready, Rule::ClusterPolicy, Rule::Even, Rule::OffCluster]);
        let of = |kind, promise: &Promise| broken_by(FindingKind::Broken(kind), promise);
        assert_eq!(of(FaultKind::Source, &usual), [Rule::OffCluster]);
        assert_eq!(of(FaultKind::Share, &usual), [Rule::Even]);
        assert_eq!(of(FaultKind::WrongEndpoint, &usual), [Rule::Ready, Rule::ClusterPolicy]);
        assert_eq!(of(FaultKind::Dropped, &usual), [Rule::ClusterIp]);
        let fallback = promise(&[Rule::NodePort, Rule::Terminating, Rule::ClusterPolicy]);
        assert_eq!(of(FaultKind::Rejected, &fallback), [Rule::Terminating]);
        assert_eq!(of(FaultKind::Delivered, &promise(&[Rule::ClusterIp, Rule::NoEndpoints])), [Rule::NoEndpoints]);
        assert_eq!(of(FaultKind::Delivered, &promise(&[Rule::UnusedClusterIp])), [Rule::UnusedClusterIp]);
        assert_eq!(broken_by(FindingKind::StaleFrontend, &usual), [Rule::NoService]);
    }

    #[test]
    fn where_none_fits_every_rule_is_broken() {
        let odd = promise(&[Rule::Headless]);
        assert_eq!(broken_by(FindingKind::Broken(FaultKind::Share), &odd), [Rule::Headless]);
    }
}
