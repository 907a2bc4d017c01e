//! `--tag` and `--skip`.

use std::collections::BTreeSet;

use clap::Args;

use crate::exit::Exit;
use crate::scenario::{Scenario, alike};

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ChoiceArgs {
    /// Only scenarios with one of these tags: a word of the name (affinity-ipvs has two), a promise of the scenario or a step
    /// (`svclab conformance --promises`), one of its `needs`, or udp or sctp for what its manifests have.
    #[arg(long, value_delimiter = ',', value_name = "TAG")]
    tag: Vec<String>,
    /// No scenarios with one of these tags.
    #[arg(long, value_delimiter = ',', value_name = "TAG")]
    skip: Vec<String>,
}

impl ChoiceArgs {
    pub(super) fn choose(&self, mut scenarios: Vec<Scenario>) -> Result<Vec<Scenario>, Exit> {
        if self.tag.is_empty() && self.skip.is_empty() {
            return Ok(scenarios);
        }
        let tags: BTreeSet<String> = scenarios.iter().flat_map(Scenario::tags).collect();
        if let Some(unknown) = self.tag.iter().chain(&self.skip).find(|tag| !tags.contains(*tag)) {
            let names: Vec<&str> = tags.iter().map(String::as_str).collect();
            let meant = alike(unknown, &names).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            return Err(Exit::usage(format!("none of these scenarios has the tag {unknown}{meant}")));
        }
        let has = |scenario: &Scenario, wanted: &[String]| {
            let tags = scenario.tags();
            wanted.iter().any(|tag| tags.contains(tag))
        };
        scenarios.retain(|one| (self.tag.is_empty() || has(one, &self.tag)) && !has(one, &self.skip));
        if scenarios.is_empty() {
            return Err(Exit::usage("--tag and --skip leave nothing to run"));
        }
        Ok(scenarios)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn chosen(tag: &[&str], skip: &[&str]) -> Result<String, String> {
        let files = ["hairpin", "udp", "affinity", "microvm/sctp"];
        let load = |name: &str| crate::scenario::load(&Path::new("../scenarios").join(name).with_extension("yaml"), 0);
        let scenarios = files.into_iter().map(|name| load(name).unwrap()).collect();
        let owned = |tags: &[&str]| tags.iter().map(ToString::to_string).collect();
        let chosen = ChoiceArgs { tag: owned(tag), skip: owned(skip) }.choose(scenarios);
        let names = |all: Vec<Scenario>| all.into_iter().map(|one| one.name).collect::<Vec<_>>().join(" ");
        chosen.map(names).map_err(|exit| exit.message)
    }

    #[test]
    fn tags_choose_scenarios() {
        let error = |text: &str| Err(text.to_owned());
        for (tag, skip, expected) in [
            (&[][..], &[][..], Ok("hairpin udp affinity sctp")),
            (&["udp"], &[], Ok("udp affinity")),
            (&["udp", "sctp"], &[], Ok("udp affinity sctp")),
            (&["cluster-ip"], &["sctp"], Ok("udp")),
            (&[], &["hairpin"], Ok("udp affinity sctp")),
            (&["hairpin"], &["hairpin"], Err("--tag and --skip leave nothing to run")),
            (&["afinity"], &[], Err("none of these scenarios has the tag afinity; did you mean affinity?")),
        ] {
            assert_eq!(chosen(tag, skip), expected.map(str::to_owned).or_else(error), "{tag:?} {skip:?}");
        }
    }
}
