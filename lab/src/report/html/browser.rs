//! Renders pages in headless Chromium (Debian package `chromium`). Outside CI the test skips without Chromium.

use std::path::Path;
use std::process::{Command, Stdio};

use svclab_audit::audit::Report;

/// Returns the DOM of a page; `None` without a browser, which is a failure in CI.
fn dom_of(folder: &Path, name: &str, page: &str) -> Option<String> {
    let file = folder.join(name);
    std::fs::write(&file, page).unwrap();
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]);
    command.args(["--disable-background-networking", "--disable-component-update", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    command.arg(format!("file://{}", file.display())).stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "chromium: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_browser_shows_the_pages_of_a_run_and_of_an_audit() {
    let folder = tempfile::tempdir().unwrap();
    let run = super::render(&crate::report::RunRecord::of(&crate::report::sample()));
    let Some(dom) = dom_of(folder.path(), "run.html", &run) else { return };
    for heading in ["<h1>hairpin (iptables)</h1>", "<h3>Steps</h3>", "<h3>Repeat it</h3>", "<svg "] {
        assert!(dom.contains(heading), "{heading} in {dom}");
    }
    let audit = Report {
        node: "node-a".to_owned(),
        taken: "2026-01-02T03:04:05Z".to_owned(),
        mode: "iptables",
        service_ports: 1,
        frontends: 1,
        calls: 3,
        judged: 3,
        assumed: vec!["<script>alert(1)</script>".to_owned()],
        ..Report::default()
    };
    let dom = dom_of(folder.path(), "audit.html", &svclab_audit::report::html(&audit)).unwrap();
    assert!(dom.contains("<h1>Service proxy audit of ") && dom.contains("<h2>Assumed</h2>"), "{dom}");
    assert!(!dom.contains("<script"), "{dom}");
}
