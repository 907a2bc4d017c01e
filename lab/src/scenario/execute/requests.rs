use svclab_cluster::traffic::probe::{ProbeAnswer, ProbeOutcome, RESET};

use super::{Backend, Executor, StepOutcome};
use crate::expect::{Mismatch, OutcomeTally, ProbePromise, StepAnswers, bounds, judge, smallest_skew};
use crate::scenario::file::{Action, ConnectFile, DSCPS, DURATIONS, ExpectFile, ProbeFile, RuleFile, SIZES};
use crate::scenario::resolve::ProbePlan;
use crate::scenario::rule_checks::{self, NodeRulesets};
use crate::scenario::{Step, relayed, resolve};

struct CountersBefore {
    rules: Vec<RuleFile>,
    before: NodeRulesets,
}

impl CountersBefore {
    async fn begin<B: Backend>(backend: &B, step: &Step) -> Result<CountersBefore, B::Error> {
        let rules = rule_checks::counters(&step.expect);
        let before = backend.saved(&rules).await?;
        Ok(CountersBefore { rules, before })
    }

    async fn compare<B: Backend>(&self, backend: &B, tally: &OutcomeTally) -> Result<Vec<Mismatch>, B::Error> {
        let now = backend.saved(&self.rules).await?;
        let answers = |pod: &str| rule_checks::answers_of(tally, pod);
        Ok(rule_checks::compare(&backend.modes(), &self.rules, Some(&self.before), &now, &answers)?)
    }
}

impl Executor {
    pub(super) async fn probe<B: Backend>(
        &mut self,
        backend: &mut B,
        step: &Step,
        file: &ProbeFile,
    ) -> Result<StepOutcome, B::Error> {
        let mut plan = backend.read(|store| resolve::probe(store, file, &step.expect))?;
        let modes = backend.modes();
        let not_promised = backend.read(|store| relayed::probe(store, &modes, &file.to.value, &mut plan));
        let not_simulated = if backend.is_kernel() { Vec::new() } else { leave_out_contents(&mut plan) };
        if file.timeout.is_none() {
            plan.probe.timeout = backend.limit(plan.probe.timeout);
        }
        let counted = CountersBefore::begin(backend, step).await?;
        let outcomes = backend.send_all(&plan, &file.to.value).await?;
        let broken = judge(&plan.wanted, &outcomes);
        let given_up = plan.count - if plan.pair { outcomes.len() / 2 } else { outcomes.len() };
        let given_up = (given_up > 0).then(|| format!("{given_up} more were not sent"));
        let skew = smallest_skew(&plan.wanted, outcomes.len());
        let notes = skew.into_iter().chain(given_up).chain(not_promised).chain(not_simulated).collect();
        let mut seen = self.judged(backend, step, &counted, &outcomes, (broken, plan.drawn, notes)).await?;
        if let Some(answers) = &mut seen.answers {
            answers.bounds = bounds(&plan.wanted, outcomes.len());
        }
        Ok(seen)
    }

    pub(super) async fn connect<B: Backend>(
        &mut self,
        backend: &mut B,
        step: &Step,
        file: &ConnectFile,
    ) -> Result<StepOutcome, B::Error> {
        let mut plan = backend.read(|store| resolve::connect(store, file, &step.expect))?;
        let modes = backend.modes();
        let not_promised = backend.read(|store| relayed::probe(store, &modes, &file.to.value, &mut plan));
        plan.probe.timeout = backend.limit(plan.probe.timeout);
        let counted = CountersBefore::begin(backend, step).await?;
        let outcomes = [backend.open(&file.name.value, &plan, &file.to.value).await?];
        let broken = judge(&plan.wanted, &outcomes);
        let notes = not_promised.into_iter().collect();
        self.judged(backend, step, &counted, &outcomes, (broken, plan.drawn, notes)).await
    }

    pub(super) async fn send<B: Backend>(
        &mut self,
        backend: &mut B,
        step: &Step,
        name: &str,
    ) -> Result<StepOutcome, B::Error> {
        let mut wanted = backend.read(|store| resolve::send(store, &step.expect))?;
        let modes = backend.modes();
        let not_promised = backend.read(|store| relayed::send(store, &modes, &mut wanted));
        let counted = CountersBefore::begin(backend, step).await?;
        if matches!(step.action, Action::SendStray(_)) {
            backend.special(step).await?;
        }
        let Some(outcome) = backend.ask(name, wanted.is_some()).await? else {
            return Ok(StepOutcome::new("", [Mismatch::new(format!("connection {name} was opened"), "it was not")]));
        };
        let mut broken = alive(name, wanted.as_ref(), &outcome);
        if step.expect.reset == Some(true) && !is_reset(&outcome.answer) {
            let summary = OutcomeTally::of(std::slice::from_ref(&outcome)).summary();
            broken.push(Mismatch::new(format!("connection {name} was reset"), summary));
        }
        let notes = not_promised.into_iter().collect();
        self.judged(backend, step, &counted, &[outcome], (broken, false, notes)).await
    }

    /// Judges the common promises of all requests, in addition to `broken`. `drawn`: requests are independent draws.
    async fn judged<B: Backend>(
        &mut self,
        backend: &B,
        step: &Step,
        counted: &CountersBefore,
        outcomes: &[ProbeOutcome],
        (mut broken, drawn, mut notes): (Vec<Mismatch>, bool, Vec<String>),
    ) -> Result<StepOutcome, B::Error> {
        let tally = OutcomeTally::of(outcomes);
        if backend.is_kernel() {
            broken.extend(times(&step.expect, outcomes));
        } else if step.expect.took.is_some() {
            notes.push(format!("not simulated: {}", DURATIONS.words));
        }
        broken.extend(counted.compare(backend, &tally).await?);
        broken.extend(self.answered_by.compare(step, &tally));
        let summary = [tally.brief()].into_iter().chain(notes).collect::<Vec<_>>().join("; ");
        let not_judged = self.answered_by.missing(step);
        Ok(StepOutcome {
            summary,
            broken,
            answers: Some(StepAnswers { tally, drawn, ..StepAnswers::default() }),
            not_judged,
            audited: None,
        })
    }
}

/// Leaves out what the simulator does not know of a packet. Returns notes for the report.
fn leave_out_contents(plan: &mut ProbePlan) -> Vec<String> {
    let dscp = match &mut plan.wanted {
        ProbePromise::Answered { dscp, .. } => dscp.take().map(|_| DSCPS),
        _ => None,
    };
    let size = (plan.probe.bytes > 0).then_some(SIZES);
    let lacking = dscp.into_iter().chain(size);
    lacking.map(|lacking| format!("not simulated: {}", lacking.words)).collect()
}

/// Judges a request over an open connection. `wanted` is `None` if the connection must be dead.
fn alive(name: &str, wanted: Option<&ProbePromise>, outcome: &ProbeOutcome) -> Vec<Mismatch> {
    let outcomes = std::slice::from_ref(outcome);
    match wanted {
        Some(wanted) => judge(wanted, outcomes),
        None if matches!(outcome.answer, ProbeAnswer::Replied { .. }) => {
            vec![Mismatch::new(format!("connection {name} is dead"), OutcomeTally::of(outcomes).summary())]
        }
        None => Vec::new(),
    }
}

/// The simulator tells a reset by the packet that answers.
fn is_reset(answer: &ProbeAnswer) -> bool {
    matches!(answer, ProbeAnswer::Refused) || matches!(answer, ProbeAnswer::Broken(why) if why == RESET)
}

fn times(expect: &ExpectFile, outcomes: &[ProbeOutcome]) -> Vec<Mismatch> {
    let times = outcomes.iter().map(|outcome| outcome.took);
    let (Some(least), Some(most)) = (times.clone().min(), times.clone().max()) else { return Vec::new() };
    let bounds = expect.took.iter().flat_map(|bounds| &bounds.0).map(|bound| bound.value);
    let broken = bounds.filter(|bound| !times.clone().all(|time| bound.accepts(time)));
    let mismatch = |bound| Mismatch::new(format!("every request takes {bound}"), format!("from {least:?} to {most:?}"));
    broken.map(mismatch).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_saphyr::{Location, Spanned};

    use super::*;
    use crate::scenario::values::{OneOrMany, TimeBound};
    use svclab_cluster::traffic::probe::ProbeAnswer;

    #[test]
    fn a_request_outside_the_bounds_breaks_the_promise() {
        let took =
            |millis| ProbeOutcome { answer: ProbeAnswer::Refused, client: None, took: Duration::from_millis(millis) };
        let bounds = [TimeBound::AtLeast(Duration::from_millis(50)), TimeBound::AtMost(Duration::from_millis(60))];
        let bounds = bounds.map(|bound| Spanned::new(bound, Location::UNKNOWN, Location::UNKNOWN));
        let expect = ExpectFile { took: Some(OneOrMany(bounds.into())), ..ExpectFile::default() };
        assert_eq!(times(&expect, &[took(50), took(60)]), []);
        let slow = Mismatch::new("every request takes at most 60ms", "from 50ms to 61ms");
        assert_eq!(times(&expect, &[took(50), took(61)]), [slow]);
        assert_eq!(times(&expect, &[took(49), took(61)]).len(), 2);
        assert_eq!(times(&ExpectFile::default(), &[took(5)]), []);
    }
}
