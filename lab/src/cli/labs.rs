use clap::Args;
use svclab_netns::labs::{self, RunningLab};

use crate::complete;
use crate::exit::Exit;

#[derive(Args)]
pub(super) struct LabChoice {
    /// The lab, if more than one is up: its name in `svclab ps`.
    #[arg(long, value_name = "NAME", add = complete::labs())]
    name: Option<String>,
    /// The lab by its process id; finds runs of scenarios as well.
    #[arg(long, conflicts_with = "name")]
    pid: Option<i32>,
}

impl LabChoice {
    pub(super) fn named(name: Option<String>) -> LabChoice {
        LabChoice { name, pid: None }
    }

    pub(super) fn find(&self) -> Result<RunningLab, Exit> {
        self.among(labs::labs()).map_err(Exit::usage)
    }

    fn among(&self, labs: Vec<RunningLab>) -> Result<RunningLab, String> {
        const BUILD: &str = "`svclab up FILE` builds one";
        if let Some(pid) = self.pid {
            let found = labs.into_iter().find(|lab| lab.pid == pid || lab.outer == pid);
            return found
                .ok_or_else(|| format!("no lab with process id {pid} that this user has started is up here; {BUILD}"));
        }
        let mut labs: Vec<RunningLab> = labs.into_iter().filter(|lab| lab.about.is_some()).collect();
        let names = names(&labs);
        if labs.is_empty() {
            return Err(format!("no lab that this user has started is up here; {BUILD}"));
        }
        if let Some(name) = &self.name {
            labs.retain(|lab| name_of(lab) == name);
        }
        match (labs.len(), &self.name) {
            (1, _) => Ok(labs.remove(0)),
            (0, Some(name)) => Err(format!("no lab {name:?} is up (there is: {names})")),
            (_, Some(name)) => {
                let pids: Vec<String> = labs.iter().map(|lab| lab.outer.to_string()).collect();
                Err(format!("more than one lab is called {name}: choose with --pid {}", pids.join(" or ")))
            }
            (_, None) => Err(format!("more than one lab is up ({names}): choose with --name")),
        }
    }
}

/// Returns the lab's name, which is empty for a run of scenarios.
pub(super) fn name_of(lab: &RunningLab) -> &str {
    lab.about.as_ref().map_or("", |about| &about.name)
}

fn names(labs: &[RunningLab]) -> String {
    labs.iter().map(name_of).collect::<Vec<_>>().join(", ")
}

/// Returns `asked`, or the scenario's name, with a number if another lab has that name.
pub(super) fn new_name(asked: Option<&str>, scenario: &str) -> Result<String, Exit> {
    let labs = labs::labs();
    let holder = |name: &str| labs.iter().find(|lab| name_of(lab) == name);
    if let Some(name) = asked {
        if name.is_empty() || name.contains(|sign: char| sign.is_whitespace() || sign.is_control()) {
            return Err(Exit::usage(format!("--name {name:?}: expected a word")));
        }
        return match holder(name) {
            Some(lab) => Err(Exit::usage(format!(
                "a lab {name} is up already, with process id {}; choose another --name, or end it with `svclab down {name}`",
                lab.outer
            ))),
            None => Ok(name.to_owned()),
        };
    }
    let numbered = (2_u32..).map(|number| format!("{scenario}-{number}"));
    let mut candidates = std::iter::once(scenario.to_owned()).chain(numbered);
    Ok(candidates.find(|name| holder(name).is_none()).unwrap_or_else(|| scenario.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::time::SystemTime;

    use svclab_netns::labs::LabDescription;

    use super::*;

    fn lab(pid: i32, name: Option<&str>) -> RunningLab {
        let about = name.map(|name| LabDescription {
            name: name.to_owned(),
            scenario: "s.yaml".to_owned(),
            mode: "iptables".to_owned(),
        });
        RunningLab { pid, outer: pid - 1, about, since: SystemTime::UNIX_EPOCH, places: Vec::new() }
    }

    fn choose(name: Option<&str>, pid: Option<i32>, labs: &[RunningLab]) -> Result<i32, String> {
        LabChoice { name: name.map(str::to_owned), pid }.among(labs.to_vec()).map(|lab| lab.pid)
    }

    #[test]
    fn the_only_lab_needs_no_name_and_a_run_needs_its_process_id() {
        let (lab, run) = (lab(10, Some("a")), lab(20, None));
        let both = [lab, run.clone()];
        assert_eq!(choose(None, None, &both), Ok(10));
        assert_eq!(choose(None, Some(20), &both), Ok(20), "a run is found by its process id");
        assert_eq!(choose(None, Some(9), &both), Ok(10), "the outer process's will do as well");
        for nothing in [&[run][..], &[]] {
            assert!(choose(None, None, nothing).unwrap_err().contains("`svclab up FILE` builds one"));
        }
    }

    #[test]
    fn several_labs_need_a_name() {
        let two = [lab(10, Some("a")), lab(20, Some("b"))];
        assert_eq!(choose(None, None, &two).unwrap_err(), "more than one lab is up (a, b): choose with --name");
        assert_eq!(choose(Some("b"), None, &two), Ok(20));
        assert_eq!(choose(Some("c"), None, &two).unwrap_err(), "no lab \"c\" is up (there is: a, b)");
        let twins = [lab(10, Some("a")), lab(20, Some("a"))];
        assert!(choose(Some("a"), None, &twins).unwrap_err().ends_with("--pid 9 or 19"));
    }
}
