//! What a workflow of GitHub's shows of a run.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{finish, said};

const WRONG: &str = "name: wrong
about: A promise that nobody keeps.
manifests: |
  apiVersion: v1
  kind: Pod
  metadata: {name: web, labels: {app: web}}
  spec: {nodeName: node-a, containers: [{name: web, ports: [{containerPort: 80}]}]}
  ---
  apiVersion: v1
  kind: Service
  metadata: {name: web}
  spec: {selector: {app: web}, ports: [{port: 80}]}
steps:
- name: nothing answers
  probe: {from: node/node-b, to: service/web}
  expect: {refused: true}
";

fn run(folder: &Path, in_workflow: bool) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(["run", "wrong.yaml", "--simulate", "--mode", "iptables,ipvs", "--keep-going"]);
    command.args(["--markdown", "summary.md", "--json", "report.json"]).current_dir(folder);
    command.env_remove("GITHUB_ACTIONS").env("GITHUB_WORKSPACE", folder);
    command.envs(in_workflow.then_some(("GITHUB_ACTIONS", "true")));
    let output = finish(command, Duration::from_secs(60));
    (output.status.code(), said(&output))
}

#[test]
fn a_failed_step_is_annotated_at_its_line_and_in_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("wrong.yaml"), WRONG).unwrap();
    let (status, text) = run(folder.path(), true);
    assert_eq!(status, Some(1), "{text}");
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("::error ")).collect();
    assert_eq!(errors.len(), 2, "a line per mode: {text}");
    let error = "::error file=wrong.yaml,line=14,title=wrong (iptables)::nothing answers: expected: ";
    assert!(errors.iter().any(|line| line.starts_with(error)), "{errors:?}");
    let summary = std::fs::read_to_string(folder.path().join("summary.md")).unwrap();
    assert!(summary.contains("- `wrong.yaml:14` nothing answers: expected: "), "{summary}");
    assert!(summary.contains("| wrong | **failed** | **failed** |"), "{summary}");
    let (_, text) = run(folder.path(), false);
    assert!(!text.contains("::error "), "{text}");
}
