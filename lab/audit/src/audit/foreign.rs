//! Sources that rules of other programs change, such as a CNI's masquerade to addresses outside the pods' ranges.

use svclab_oracle::{Promise, Rule};
use svclab_sim::network::Outcomes;

use crate::decider::{journey_of, masquerader as masquerading_rule};
use crate::judge::{Fault, FaultKind};
use crate::owner::{ProxyTables, RuleOwner};

/// Returns another program's rule that changed the source, unless policy Local promises to keep it.
pub(super) fn masquerader(fault: &Fault, promise: &Promise, found: &Outcomes, tables: &ProxyTables) -> Option<String> {
    if fault.kind != FaultKind::Source || promise.rests_on(Rule::ExternalLocal) {
        return None;
    }
    let rule = masquerading_rule(journey_of(found, fault.found.as_ref())?, tables)?;
    (!matches!(rule.program, RuleOwner::Proxy(_))).then_some(rule.text)
}
