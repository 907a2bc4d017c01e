use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use svclab::mode::Mode;
use svclab::report::{ScenarioReport, StepVerdict};
use svclab::scenario::Scenario;
use svclab::scenario::simulated::render::{RenderError, RuleSource};
use svclab::scenario::simulated::rendered::Rendered;
use svclab::scenario::simulated::run::run;
use svclab_properties::mutants::{Expectation, Mutant};
use svcproxy::cli::render::render_to_string;

const ENOUGH: usize = 3;

#[derive(Default)]
pub struct CachedRenderer {
    known: Mutex<BTreeMap<String, Rendered>>,
}

impl RuleSource for CachedRenderer {
    fn render(
        &self,
        node: &str,
        configuration: &Path,
        flags: &[String],
        manifests: &Path,
    ) -> Result<Rendered, RenderError> {
        let settings = std::fs::read_to_string(configuration).unwrap_or_default();
        let key = format!("{node} {settings} {flags:?} {}", texts(manifests));
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rendered) = known().get(&key) {
            return Ok(rendered.clone());
        }
        let rendered = render(node, configuration, flags, manifests)?;
        known().insert(key, rendered.clone());
        Ok(rendered)
    }
}

/// Returns the rules of svcproxy's library.
pub fn render(node: &str, configuration: &Path, flags: &[String], manifests: &Path) -> Result<Rendered, RenderError> {
    let fixed = [format!("--manifests={}", manifests.display()), format!("--hostname-override={node}")];
    let all = fixed.into_iter().chain([format!("--config={}", configuration.display())]).chain(flags.iter().cloned());
    let refused = |error| RenderError::Refused { node: node.to_owned(), complaint: format!("{error:#}") };
    Ok(Rendered::read(node, &render_to_string(all).map_err(refused)?)?)
}

/// Skips unreadable files, which the proxy reports.
fn texts(directory: &Path) -> String {
    let files = std::fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<_> = files.collect();
    files.sort();
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect()
}

struct MutatingRenderer {
    other: Arc<CachedRenderer>,
    mutant: Mutant,
    changed: AtomicBool,
}

impl RuleSource for MutatingRenderer {
    fn render(
        &self,
        node: &str,
        configuration: &Path,
        flags: &[String],
        manifests: &Path,
    ) -> Result<Rendered, RenderError> {
        let mut rendered = self.other.render(node, configuration, flags, manifests)?;
        if self.mutant.apply(&mut rendered.state) {
            self.changed.store(true, Ordering::Relaxed);
        }
        Ok(rendered)
    }
}

pub struct ScenarioScore {
    mutant: Mutant,
    changed: usize,
    noticed: Vec<String>,
}

impl ScenarioScore {
    pub fn is_noticed(&self) -> bool {
        !self.noticed.is_empty()
    }

    pub fn is_broken(&self) -> bool {
        self.mutant.expectation == Expectation::Broken
    }
}

pub fn score(mutant: Mutant, proxy: &Arc<CachedRenderer>, scenarios: &[Scenario], mode: Mode) -> ScenarioScore {
    let mut score = ScenarioScore { mutant, changed: 0, noticed: Vec::new() };
    for scenario in scenarios.iter().filter(|scenario| scenario.modes.contains(&mode)) {
        let breaking = Arc::new(MutatingRenderer { other: Arc::clone(proxy), mutant, changed: AtomicBool::new(false) });
        let programmer: Arc<dyn RuleSource> = breaking.clone();
        let report = run(scenario, programmer, mode, false);
        score.changed += usize::from(breaking.changed.load(Ordering::Relaxed));
        if is_red(&report) {
            score.noticed.push(scenario.name.clone());
        }
        if score.noticed.len() == ENOUGH {
            break;
        }
    }
    score
}

/// Whether a scenario noticed the mutant; rules that do not load also count.
fn is_red(report: &ScenarioReport) -> bool {
    let red = |verdict: &StepVerdict| matches!(verdict, StepVerdict::Failed(_) | StepVerdict::Error(_));
    report.not_started.is_some() || report.steps.iter().any(|step| red(&step.verdict))
}

impl fmt::Display for ScenarioScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {:<64} ", self.mutant.name)?;
        match (self.noticed.is_empty(), self.mutant.expectation) {
            (false, _) => f.write_str(&self.noticed.join(", ")),
            (true, Expectation::Equivalent(_)) => f.write_str("equivalent"),
            (true, Expectation::Broken) if self.changed == 0 => f.write_str("no scenario has it"),
            (true, Expectation::Broken) => write!(f, "none of {}", self.changed),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use svclab::scenario::load;
    use svclab_oracle::Mode as Catalogued;
    use svclab_properties::mutants::catalogue;

    use super::*;

    #[test]
    fn a_scenario_notices_what_it_is_about_and_nothing_else() {
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let hairpin = [load(&files.join("hairpin.yaml"), 0).unwrap()];
        let proxy = Arc::new(CachedRenderer::default());
        let noticed = |name: &str, mode, catalogued| {
            let mutant = catalogue(catalogued).into_iter().find(|mutant| mutant.name == name).unwrap();
            score(mutant, &proxy, &hairpin, mode).is_noticed()
        };
        assert!(noticed("nothing is masqueraded", Mode::Iptables, Catalogued::Iptables));
        assert!(noticed("hairpin is not masqueraded", Mode::Ipvs, Catalogued::Ipvs));
        assert!(noticed("the hairpin set is empty", Mode::Nftables, Catalogued::Nftables));
        assert!(noticed("no port listens", Mode::Userspace, Catalogued::Userspace));
        assert!(!noticed("the firewall accepts", Mode::Userspace, Catalogued::Userspace));
    }
}
