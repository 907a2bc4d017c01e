//! `.ci/set-repository` writes repository, registry and version wherever they are named.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::kustomize::build;

/// What the script reads and writes.
const NAMED: [&str; 5] = [".ci", "Cargo.toml", "deploy", "docs", "install.sh"];

fn copy() -> tempfile::TempDir {
    let (copy, root) = (tempfile::tempdir().unwrap(), super::deploy().join(".."));
    let status =
        Command::new("cp").arg("-r").args(NAMED.map(|name| root.join(name))).arg(copy.path()).status().unwrap();
    assert!(status.success());
    copy
}

fn set(root: &Path, arguments: &[&str]) -> bool {
    Command::new(root.join(".ci/set-repository")).args(arguments).status().unwrap().success()
}

/// Returns all files but the script, with their texts.
fn files(root: &Path) -> Vec<(PathBuf, String)> {
    let (mut files, mut folders) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with(".ci/set-repository") {
                files.push((path.strip_prefix(root).unwrap().to_path_buf(), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

fn images(root: &Path) -> Vec<String> {
    let folders =
        ["overlays", "auditor"].map(|name| root.join("deploy").join(name).read_dir().unwrap()).into_iter().flatten();
    let mut images = Vec::new();
    for folder in folders {
        let built = build(&folder.unwrap().path());
        let spec = &built.only("DaemonSet")["spec"]["template"]["spec"];
        let containers = ["initContainers", "containers"].map(|key| spec[key].as_array().cloned().unwrap_or_default());
        images.extend(containers.concat().iter().map(|container| container["image"].as_str().unwrap().to_owned()));
    }
    images
}

#[test]
fn the_files_name_the_repository_and_the_version_of_the_program() {
    let copy = copy();
    let before = files(copy.path());
    assert!(set(copy.path(), &[]));
    assert_eq!(files(copy.path()), before, "run .ci/set-repository");
}

#[test]
fn a_repository_is_written_everywhere_and_can_be_changed() {
    let copy = copy();
    let manifest = copy.path().join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let version = concat!("\nversion = \"", env!("CARGO_PKG_VERSION"), "\"");
    assert!(text.contains(version));
    std::fs::write(&manifest, text.replace(version, "\nversion = \"97.98.99\"")).unwrap();
    for (repository, registry) in [("first/one", "registry.example:5000/first"), ("second/two", "ghcr.io/second")] {
        assert!(set(copy.path(), &[repository, registry]));
        let images = images(copy.path());
        assert!(images.len() > 15);
        for image in images {
            assert!(image.starts_with(&format!("{registry}/svc")) && image.ends_with(":97.98.99"), "{image}");
        }
        for (file, text) in files(copy.path()) {
            assert!(!text.contains("OWNER/REPOSITORY"), "{}", file.display());
        }
        let install = std::fs::read_to_string(copy.path().join("docs/install.md")).unwrap();
        assert!(
            install.contains(&format!("https://github.com/{repository}/releases/download/v97.98.99 ")),
            "{install}"
        );
        assert!(
            install.contains(&format!("- uses: {repository}@v97.98.99"))
                && !install.contains("Before the first release")
        );
    }
    for wrong in [&["no-slash"][..], &["a/b/c"], &["a/b", "Upper/case"], &["a/b", "slash/"]] {
        assert!(!set(copy.path(), wrong), "{wrong:?}");
    }
}
