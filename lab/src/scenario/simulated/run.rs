//! Carries a scenario out in the simulator: the same steps, the same judgement, no kernel.

use std::sync::Arc;
use std::time::Duration;

use super::lab::{SimError, SimLab};
use super::render::Programmer;
use super::{aim, notes};
use crate::expect::settle::{Looks, Next};
use crate::expect::{Answers, Mismatch, Tally, judge};
use crate::report::{SIMULATED, ScenarioReport, StepReport, Verdict};
use crate::scenario::answered::AnsweredBy;
use crate::scenario::error::Problem;
use crate::scenario::file::Mode;
use crate::scenario::look::{self, Saved};
use crate::scenario::{Action, Scenario, Step, relayed, resolve};
use crate::traffic::probe::Answer;

/// Runs `scenario` with a proxy in `mode`; after a broken step the others are left out, unless told to go on.
pub fn run(scenario: &Scenario, programmer: Arc<dyn Programmer>, mode: Mode, keep_going: bool) -> ScenarioReport {
    let mut report = ScenarioReport {
        name: scenario.name.clone(),
        path: scenario.path.display().to_string(),
        about: scenario.about.clone(),
        mode: mode.to_string(),
        variant: SIMULATED.to_owned(),
        seed: scenario.options.seed,
        machine: None,
        steps: Vec::new(),
        not_started: None,
        unable: false,
        figures: None,
        took: Duration::ZERO,
        logs: String::new(),
    };
    match SimLab::start(scenario, programmer, mode) {
        Ok(lab) => Run { lab, answered_by: AnsweredBy::default() }.steps(scenario, keep_going, &mut report),
        Err(error) => report.not_started = Some(error.to_string()),
    }
    report
}

/// Between two looks at something that is to come true.
const PAUSE: Duration = Duration::from_millis(50);

struct Run {
    lab: SimLab,
    answered_by: AnsweredBy,
}

/// What a step saw.
#[derive(Default)]
struct Seen {
    summary: String,
    broken: Vec<Mismatch>,
    answers: Option<Answers>,
    not_judged: Option<String>,
}

impl Run {
    fn steps(&mut self, scenario: &Scenario, keep_going: bool, report: &mut ScenarioReport) {
        let (mut broken, mut left_for_good) = (false, None);
        for step in &scenario.steps {
            if !self.lab.is_in_any(&step.modes) {
                continue;
            }
            let begin = self.lab.machines.network().now();
            let note = left_for_good.or_else(|| notes::on(&step.action)).or_else(|| self.proxied(step));
            let (verdict, seen) = match note {
                _ if broken && !keep_going => (Verdict::Skipped, Seen::default()),
                Some(note) => {
                    left_for_good = left_for_good.or(note.for_good.then_some(note));
                    (Verdict::NotSimulated(note.why.to_owned()), Seen::default())
                }
                None => match self.step(step) {
                    Ok(mut seen) if !seen.broken.is_empty() => {
                        (Verdict::Broken(std::mem::take(&mut seen.broken)), seen)
                    }
                    Ok(mut seen) => (seen.not_judged.take().map_or(Verdict::Passed, Verdict::NotJudged), seen),
                    Err(error) => (Verdict::Failed(error.to_string()), Seen::default()),
                },
            };
            broken |= matches!(verdict, Verdict::Broken(_) | Verdict::Failed(_));
            let took = self.lab.machines.network().now() - begin;
            report.took += took;
            report.steps.push(StepReport {
                name: step.name.clone(),
                line: step.line,
                action: step.action.key(),
                verdict,
                summary: seen.summary,
                answers: seen.answers,
                took,
            });
        }
    }

    /// A load balancer that opens connections of its own is no router.
    fn proxied(&self, step: &Step) -> Option<notes::Note> {
        let target = match &step.action {
            Action::Probe(file) => &file.to.value,
            Action::Connect(file) => &file.to.value,
            _ => return None,
        };
        let why = "the load balancer is a program there (ipMode: Proxy)";
        aim::is_proxied(&self.lab.store, target).then_some(notes::Note { why, for_good: false })
    }

    /// Carries a step out. Promises that may come true eventually are looked at until they have settled; one look more is the
    /// verdict, as on the kernel.
    fn step(&mut self, step: &Step) -> Result<Seen, SimError> {
        let end = self.lab.machines.network().now() + step.eventually.unwrap_or_default();
        let mut looks = Looks::default();
        loop {
            let mut seen = self.once(step)?;
            let in_time = self.lab.machines.network().now() < end;
            match looks.after(seen.broken.is_empty(), in_time) {
                Next::Wait => self.lab.machines.network_mut().advance(step.every.unwrap_or(PAUSE)),
                Next::Judge if !step.action.can_be_repeated() => return Ok(seen),
                Next::Judge => {}
                Next::Done => {
                    seen.summary = looks.summary(seen.summary);
                    return Ok(seen);
                }
            }
        }
    }

    fn once(&mut self, step: &Step) -> Result<Seen, SimError> {
        let wrong = |problem: Problem| SimError::Step(problem.message);
        match &step.action {
            Action::Probe(file) => {
                let mut plan = resolve::probe(&self.lab.store, file, &step.expect).map_err(wrong)?;
                let not_promised =
                    relayed::probe(&self.lab.store, &|node| self.lab.mode_of(node), &file.to.value, &mut plan);
                let before = self.lab.saved(&look::counters(&step.expect))?;
                let outcomes = self.lab.send_all(&plan, &file.to.value)?;
                let tally = Tally::of(&outcomes);
                let mut broken = judge(&plan.wanted, &outcomes);
                broken.extend(self.counted(step, &before, &tally)?);
                broken.extend(self.answered_by.compare(step, &tally));
                let answers = Some(Answers { tally: tally.clone(), drawn: plan.drawn });
                let summary = relayed::summary(tally.summary(), not_promised);
                Ok(Seen { summary, broken, answers, not_judged: self.answered_by.missing(step) })
            }
            Action::Connect(file) => {
                let mut plan = resolve::connect(&self.lab.store, file, &step.expect).map_err(wrong)?;
                let not_promised =
                    relayed::probe(&self.lab.store, &|node| self.lab.mode_of(node), &file.to.value, &mut plan);
                let before = self.lab.saved(&look::counters(&step.expect))?;
                let outcome = [self.lab.connect(&file.name.value, &plan, &file.to.value)?];
                let tally = Tally::of(&outcome);
                let mut broken = judge(&plan.wanted, &outcome);
                broken.extend(self.counted(step, &before, &tally)?);
                broken.extend(self.answered_by.compare(step, &tally));
                let not_judged = self.answered_by.missing(step);
                let summary = relayed::summary(tally.summary(), not_promised);
                Ok(Seen { summary, broken, answers: None, not_judged })
            }
            Action::Send(name) => self.send(name, step),
            Action::Rules(rules) => {
                let mode_of = |node: &str| self.lab.mode_of(node);
                let (nodes, now) = (self.lab.nodes(&mode_of), self.lab.saved(rules)?);
                let broken = look::compare(&nodes, rules, None, &now, &|_| 0).map_err(SimError::Step)?;
                let not_judged = look::left_out(&nodes, rules).map_err(SimError::Step)?;
                Ok(Seen { broken, not_judged, ..Seen::default() })
            }
            Action::HealthCheck(node, service, family) => {
                let address = resolve::health_check(&self.lab.store, node, service, family.as_ref()).map_err(wrong)?;
                let Some(local) = self.lab.health(node, address.ip(), address.port()) else {
                    let broken = vec![Mismatch::new(format!("{address} answers"), "nobody listens there")];
                    return Ok(Seen { broken, ..Seen::default() });
                };
                let (status, body) = (if local > 0 { 200 } else { 503 }, format!("localEndpoints: {local}"));
                let broken = look::health(&step.expect, status, u64::try_from(local).ok(), &body);
                Ok(Seen { summary: format!("{status} {body}"), broken, ..Seen::default() })
            }
            Action::LoadBalancer(service) => {
                let (address, nodes) = self.lab.balanced(service)?;
                let wanted = step.expect.healthy_nodes.iter().flatten().map(|node| node.value.clone());
                let wanted: Vec<String> = wanted.collect();
                let wrong = step.expect.healthy_nodes.is_some() && wanted != nodes;
                let (wanted, nodes) = (wanted.join(", "), nodes.join(", "));
                let broken =
                    wrong.then(|| Mismatch::new(format!("{address} goes to {wanted}"), format!("it goes to {nodes}")));
                let summary = format!("{address} goes to {nodes}");
                Ok(Seen { summary, broken: broken.into_iter().collect(), ..Seen::default() })
            }
            Action::Scan(file) => {
                let plan = resolve::scan(&self.lab.store, file, &step.expect).map_err(wrong)?;
                let open = self.lab.scan(&plan)?;
                let (summary, wrong) = resolve::judge_scan(&plan, &open);
                Ok(Seen { summary, broken: wrong.into_iter().collect(), ..Seen::default() })
            }
            Action::Advance(time) => {
                self.lab.machines.network_mut().advance(*time);
                Ok(Seen { summary: format!("{} s later", time.as_secs_f64()), ..Seen::default() })
            }
            Action::Proxy(action, nodes) => {
                self.lab.proxies(*action, nodes)?;
                Ok(Seen { summary: nodes.join(", "), ..Seen::default() })
            }
            change => {
                self.lab.change(change)?;
                Ok(Seen::default())
            }
        }
    }

    /// What is wrong with the packets that rules have matched in this step.
    fn counted(&self, step: &Step, before: &Saved, tally: &Tally) -> Result<Vec<Mismatch>, SimError> {
        let rules = look::counters(&step.expect);
        let mode_of = |node: &str| self.lab.mode_of(node);
        let (nodes, now) = (self.lab.nodes(&mode_of), self.lab.saved(&rules)?);
        let answers = |pod: &str| look::answers_of(tally, pod);
        look::compare(&nodes, &rules, Some(before), &now, &answers).map_err(SimError::Step)
    }

    fn send(&mut self, name: &str, step: &Step) -> Result<Seen, SimError> {
        let wanted = resolve::send(&self.lab.store, &step.expect);
        let mut wanted = wanted.map_err(|problem| SimError::Step(problem.message))?;
        let not_promised = relayed::send(&self.lab.store, &|node| self.lab.mode_of(node), &mut wanted);
        let before = self.lab.saved(&look::counters(&step.expect))?;
        let Some(outcome) = self.lab.ask(name) else {
            return Err(SimError::Step(format!("connection {name} was not opened")));
        };
        let alive = matches!(outcome.answer, Answer::Replied { .. });
        let outcomes = [outcome];
        let tally = Tally::of(&outcomes);
        let mut broken = match wanted {
            Some(wanted) => judge(&wanted, &outcomes),
            None if alive => vec![Mismatch::new(format!("connection {name} is dead"), tally.summary())],
            None => Vec::new(),
        };
        broken.extend(self.counted(step, &before, &tally)?);
        broken.extend(self.answered_by.compare(step, &tally));
        let not_judged = self.answered_by.missing(step);
        let summary = relayed::summary(tally.summary(), not_promised);
        Ok(Seen { summary, broken, answers: None, not_judged })
    }
}
