//! For the build scripts of both programs: sets the version that `--version` prints, with the commit if known.

use std::process::Command;

/// Sets `PROGRAM_VERSION` for the compiler, and `PROGRAM_COMMIT` if the commit is known from that variable or from git.
/// `always`: also in debug builds, which are then rebuilt after each commit.
pub fn emit(program: &str, always: bool) {
    let variable = format!("{program}_COMMIT");
    println!("cargo::rerun-if-env-changed={variable}");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let told = std::env::var(&variable).ok().filter(|commit| !commit.is_empty());
    // `PROFILE` is "release" for every profile that inherits from it (Cargo's reference, "Environment variables").
    let asked = always || std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    match told.or_else(|| asked.then(git_commit).flatten()) {
        Some(commit) => {
            println!("cargo::rustc-env={variable}={commit}");
            println!("cargo::rustc-env={program}_VERSION={version} ({commit})");
        }
        None => println!("cargo::rustc-env={program}_VERSION={version}"),
    }
}

/// `None` without git or a repository.
fn git_commit() -> Option<String> {
    // These files change when another commit is checked out or created.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
