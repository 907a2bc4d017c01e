use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_saphyr::{Location, Spanned};
use svclab_apiserver::objects::StoreOptions;
use svclab_spec::ClusterSpec;

use super::dry_run::Incomplete;
use super::error::{FileError, LoadError, Problem};
use super::file::{Action, CommonKeys, Manifests, STEP_KEYS, ScenarioFile, StepFile};
use super::mistakes::ParsedFile;
use super::values::{NodeChoice, position};
use super::{Scenario, Step, configuration, dry_run, manifests, mistakes, refused, topology};
use crate::input::{InputFiles, STANDARD_INPUT};
use crate::mode::{Mode, Need};
use crate::promises::Promise;

const IN_BUNDLE: &str = "scenario";
/// The default of upstream's EndpointSlice controller.
const ENDPOINTS_PER_SLICE: usize = 100;

/// Loads a scenario. `seed` decides addresses and ports that the scenario leaves open.
///
/// # Errors
/// Every mistake, each with its line.
pub fn load(path: &Path, seed: u64) -> Result<Scenario, LoadError> {
    load_from(&InputFiles::default(), path, seed)
}

pub fn load_from(files: &InputFiles, path: &Path, seed: u64) -> Result<Scenario, LoadError> {
    let text = files.text(path).map_err(|error| {
        let message = format!("cannot read the scenario: {error}");
        LoadError { errors: vec![FileError { file: path.display().to_string(), line: 1, column: 1, message }] }
    })?;
    parse(files, path, &text, seed)
}

pub(super) fn parse(files: &InputFiles, path: &Path, text: &str, seed: u64) -> Result<Scenario, LoadError> {
    let name = path.display().to_string();
    let mut parsed = mistakes::read(path, text);
    let errors = std::mem::take(&mut parsed.errors);
    let Some(file) = parsed.file.take() else { return Err(LoadError { errors }) };
    Loader { files, path, name: &name, text, manifest_texts: BTreeMap::new(), errors }.scenario(file, &parsed, seed)
}

struct Loader<'a> {
    files: &'a InputFiles,
    path: &'a Path,
    name: &'a str,
    text: &'a str,
    manifest_texts: BTreeMap<String, String>,
    errors: Vec<FileError>,
}

impl Loader<'_> {
    fn report(&mut self, problems: Vec<Problem>, fallback: Location) {
        for problem in problems {
            let problem = problem.or_at(fallback);
            let (line, column) = position(problem.at);
            let (file, message) = (self.name.to_owned(), problem.message);
            self.errors.push(FileError { file, line, column, message });
        }
    }

    fn problem(&mut self, at: Location, message: impl Into<String>) {
        self.report(vec![Problem::new(at, message)], at);
    }

    fn scenario(mut self, file: ScenarioFile, parsed: &ParsedFile, seed: u64) -> Result<Scenario, LoadError> {
        let errors_of_form = self.errors.len();
        self.check_head(&file, !parsed.left_out.is_empty());
        let promise = file.promise.as_ref().and_then(|id| self.promise(id));
        let top = file.name.referenced;
        let (cluster_at, cluster_file) = split(file.cluster, top);
        let (proxy_at, proxy_file) = split(file.proxy, top);
        let mut problems = Vec::new();
        let (cluster, vip_ranges) = topology::build(&cluster_file, &mut problems);
        self.report(std::mem::take(&mut problems), cluster_at);
        let proxy = configuration::of(&proxy_file, &cluster, &mut problems);
        self.report(problems, proxy_at);
        let manifests = file.manifests.map(|written| self.manifests(&written)).unwrap_or_default();
        let per_slice = cluster_file.max_endpoints_per_slice.map(|number| {
            if !(1..=1000).contains(&number.value) {
                self.problem(number.referenced, "expected 1 to 1000 endpoints per slice");
            }
            number.value
        });
        let api_server = cluster_file.api_server.map(|name| {
            if !cluster.clients.iter().any(|client| client.name == name.value) {
                self.problem(name.referenced, format!("apiServer: {:?} is none of `clients`", name.value));
            }
            name.value
        });
        let is_sound = parsed.is_whole && self.errors.len() == errors_of_form;
        let (steps, incomplete) = self.steps(file.steps.value, parsed, &cluster);
        let written = manifests.iter().chain(steps.iter().flat_map(|step| &step.documents));
        let meant = file.invalid.map(|objects| objects.0).unwrap_or_default();
        refused::check(written, &meant, self.name, &mut self.errors);
        let mut needs: BTreeSet<Need> = file.needs.into_iter().collect();
        needs.extend(steps.iter().flat_map(|step| step.action.needs()));
        let scenario = Scenario {
            needs,
            path: self.path.to_owned(),
            text: self.text.to_owned(),
            files: std::mem::take(&mut self.manifest_texts),
            name: file.name.value,
            about: file.about.split_whitespace().collect::<Vec<_>>().join(" "),
            promise,
            is_for_every_mode: file.modes.is_none(),
            modes: file.modes.map_or_else(|| Mode::ALL.to_vec(), |modes| modes.value),
            variant: file.variant,
            cluster,
            options: StoreOptions {
                seed,
                max_endpoints_per_slice: per_slice.unwrap_or(ENDPOINTS_PER_SLICE),
                vip_ranges,
            },
            api_server,
            proxy,
            manifests,
            steps,
        };
        // The dry run looks up names in the objects, so the objects must be valid.
        if is_sound {
            dry_run::check(&scenario, &incomplete, &mut self.errors);
        }
        self.errors.sort_by_key(|error| (error.file != self.name, error.line, error.column));
        self.errors.dedup();
        if self.errors.is_empty() { Ok(scenario) } else { Err(LoadError { errors: self.errors }) }
    }

    fn check_head(&mut self, file: &ScenarioFile, has_left_out: bool) {
        let stem = self.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if file.name.value != stem && ![IN_BUNDLE, STANDARD_INPUT].contains(&stem) {
            self.problem(file.name.referenced, format!("expected `{stem}`: a scenario is named as its file is"));
        }
        if file.about.trim().is_empty() {
            self.problem(
                file.name.referenced,
                "`about` is empty: expected a sentence that says what the scenario shows",
            );
        }
        if file.steps.value.is_empty() && !has_left_out {
            self.problem(file.steps.referenced, mistakes::NO_STEPS);
        }
        if let Some(modes) = file.modes.as_ref().filter(|modes| modes.value.is_empty()) {
            self.problem(modes.referenced, "expected at least one mode");
        }
        let mut names = BTreeSet::new();
        for step in &file.steps.value {
            if !names.insert(&step.value.common.name) {
                self.problem(step.referenced, format!("there is a step named {:?} already", step.value.common.name));
            }
        }
    }

    fn promise(&mut self, id: &Spanned<String>) -> Option<&'static Promise> {
        let promise = Promise::of_id(&id.value);
        if promise.is_none() {
            self.problem(id.referenced, mistakes::no_promise(&id.value));
        }
        promise
    }

    fn manifests(&mut self, written: &Manifests) -> Vec<super::PlacedDocument> {
        manifests::read(written, self.path, self.files, &mut self.manifest_texts, &mut self.errors)
    }

    fn steps(
        &mut self,
        files: Vec<Spanned<StepFile>>,
        parsed: &ParsedFile,
        cluster: &ClusterSpec,
    ) -> (Vec<Step>, Incomplete) {
        let (mut steps, mut incomplete) = (Vec::new(), Incomplete::default());
        for (line, changes) in &parsed.left_out {
            incomplete.left_out(*line, *changes);
        }
        for file in files {
            let (line, errors_before) = (position(file.referenced).0, self.errors.len());
            match self.step(file, cluster) {
                None => incomplete.left_out(line, true),
                Some(step) => {
                    if self.errors.len() > errors_before {
                        incomplete.has_errors.insert(line);
                    }
                    steps.push(step);
                }
            }
        }
        (steps, incomplete)
    }

    fn step(&mut self, file: Spanned<StepFile>, cluster: &ClusterSpec) -> Option<Step> {
        let at = file.referenced;
        let StepFile { common: CommonKeys { name, promise, modes, expect, eventually, every }, mut actions } =
            file.value;
        let promise = promise.and_then(|id| self.promise(&id));
        if every.is_some() && eventually.is_none() {
            self.problem(at, format!("step {name:?}: `every` goes with `eventually`"));
        }
        if actions.len() != 1 {
            let all: Vec<&str> = STEP_KEYS.iter().map(|row| row.key).collect();
            let found: Vec<&str> = actions.iter().map(|(row, _)| row.key).collect();
            let found = if found.is_empty() { "none".to_owned() } else { found.join(" and ") };
            self.problem(at, format!("step {name:?}: expected exactly one of {}; found {found}", all.join(", ")));
            return None;
        }
        let (key, action) = actions.remove(0);
        self.report(action.mistake().into_iter().collect(), at);
        let nodes = self.nodes(action.nodes(), at, cluster);
        let documents = match &action {
            Action::Apply(written) => self.manifests(written),
            _ => Vec::new(),
        };
        let (expect_at, expect) = split(expect, at);
        for row in expect.keys().filter(|row| !key.expects.contains(&row.key)) {
            let message = format!(
                "`{}` says nothing about `{}`; it goes with {}",
                row.key,
                key.key,
                row.goes_with().join(" or ")
            );
            self.problem(expect_at, message);
        }
        if key.needs_expect && expect.keys().next().is_none() {
            let message =
                format!("step {name:?}: `{}` without `expect` promises nothing: say what is to be there", key.key);
            self.problem(at, message);
        }
        Some(Step {
            line: position(at).0,
            name,
            promise,
            modes: modes.unwrap_or_else(|| Mode::WITH_OTHER.to_vec()),
            key,
            action,
            nodes,
            documents,
            expect,
            eventually: eventually.map(|span| span.0),
            every: every.map(|span| span.0),
        })
    }

    fn nodes(&mut self, choices: &[Spanned<NodeChoice>], at: Location, cluster: &ClusterSpec) -> Vec<String> {
        let mut chosen = Vec::new();
        for choice in choices {
            match choice.value.among(cluster.nodes.iter().map(|node| node.name.as_str())) {
                Ok(names) => chosen.extend(names),
                Err(message) => self.report(vec![Problem::new(choice.referenced, message)], at),
            }
        }
        chosen
    }
}

fn split<T: Default>(part: Option<Spanned<T>>, fallback: Location) -> (Location, T) {
    part.map_or_else(|| (fallback, T::default()), |part| (part.referenced, part.value))
}
