//! Failures as GitHub's workflow commands, which show them at the scenario's line.

use std::path::Path;

use super::markdown::problems;
use super::record::RunRecord;

/// `workspace`: the folder of the checked-out repository, to which GitHub's paths are relative.
pub fn render(run: &RunRecord, workspace: Option<&Path>) -> Vec<String> {
    let failed = run.scenarios.iter().filter(|one| !one.passed).flat_map(|one| {
        let path = Path::new(&one.path);
        let path = workspace.and_then(|folder| path.strip_prefix(folder).ok()).unwrap_or(path);
        let title = property(&format!("{} ({})", one.name, one.mode));
        let line = move |problem: super::markdown::Problem<'_>| {
            let (file, text) =
                (property(&path.display().to_string()), message(&format!("{}: {}", problem.step, problem.what)));
            format!("::error file={file},line={},title={title}::{text}", problem.line)
        };
        problems(one).into_iter().map(line).collect::<Vec<_>>()
    });
    let not_run = run.not_run.iter().flatten().filter(|one| one.is_failure).map(|one| {
        let title = property(&format!("{} ({})", one.scenario, one.mode));
        format!("::error title={title}::{}", message(&format!("not run: {}", one.why)))
    });
    failed.chain(not_run).collect()
}

fn message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::NotRunRecord;

    #[test]
    fn a_failure_names_file_and_line_and_is_one_line() {
        let mut run = RunRecord::of(&crate::report::sample());
        run.scenarios[0].path = "/home/runner/a, b/scenarios/hairpin.yaml".into();
        run.scenarios[0].steps[1].mismatches[0].seen = "50 %\nof all".into();
        let (scenario, mode, why) = ("sctp".to_owned(), "ipvs".to_owned(), "no network".to_owned());
        let mut not_run = vec![NotRunRecord { scenario, mode, why, is_failure: true }];
        not_run.push(NotRunRecord { is_failure: false, ..not_run[0].clone() });
        run.not_run = Some(not_run);
        let error = |file: &str| {
            format!(
                "::error file={file},line=7,title=hairpin (iptables)::it is masked: expected: servers see <node-a>; seen: 50 %25%0Aof all"
            )
        };
        let not_run = "::error title=sctp (ipvs)::not run: no network".to_owned();
        let inside = Path::new("/home/runner/a, b");
        assert_eq!(render(&run, Some(inside)), [error("scenarios/hairpin.yaml"), not_run.clone()]);
        assert_eq!(render(&run, None), [error("/home/runner/a%2C b/scenarios/hairpin.yaml"), not_run]);
    }
}
