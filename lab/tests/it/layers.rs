//! Modules use each other in one direction, so a reader can take them one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Crate folders, with modules that still form cycles.
const CRATES: [(&str, &[&str]); 13] = [
    ("benches", &[]),
    ("lab", &[]),
    ("lab/apiserver", &[]),
    ("lab/audit", &[]),
    ("lab/cluster", &[]),
    ("lab/control-plane", &[]),
    ("lab/kernel-properties", &[]),
    ("lab/microvm", &[]),
    ("lab/netns", &[]),
    ("lab/oracle", &[]),
    ("lab/properties", &[]),
    ("lab/sim", &[]),
    ("lab/snapshot", &[]),
];

/// Returns the modules that each module uses, by the paths in the code, without unit tests at a file's end.
fn uses(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let (mut uses, mut folders): (BTreeMap<String, BTreeSet<String>>, _) = (BTreeMap::new(), vec![source.to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in folder.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
            let parts: Vec<String> =
                path.strip_prefix(source).unwrap().iter().map(|part| part.to_string_lossy().into_owned()).collect();
            let module = parts[0].trim_end_matches(".rs").to_owned();
            let is_test = module == "tests" || path.file_stem().is_some_and(|stem| stem == "tests");
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") || is_test || parts == ["lib.rs"] {
                continue;
            }
            let depth = parts.len() - usize::from(path.ends_with("mod.rs"));
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
            let used = uses.entry(module).or_default();
            for line in code.filter(|line| !line.trim_start().starts_with("//")) {
                let roots = ["crate::".to_owned(), "super::".repeat(depth)];
                for root in roots {
                    let ends = line.match_indices(&root).filter_map(|(at, _)| line.get(at + root.len()..));
                    let name = |rest: &str| {
                        rest.split(|next: char| !next.is_ascii_alphanumeric() && next != '_').next().map(str::to_owned)
                    };
                    used.extend(ends.filter_map(name));
                }
            }
        }
    }
    let all: BTreeSet<String> = uses.keys().cloned().collect();
    uses.iter_mut().for_each(|(module, used)| used.retain(|other| all.contains(other) && other != module));
    uses
}

fn circles(uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let reached = |from: &str| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(module) = next.pop() {
            for other in uses.get(&module).into_iter().flatten() {
                if reached.insert(other.clone()) {
                    next.push(other.clone());
                }
            }
        }
        reached
    };
    uses.keys().filter(|module| reached(module).contains(*module)).cloned().collect()
}

#[test]
fn modules_of_a_crate_use_each_other_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (folder, left) in CRATES {
        let source = [root.join(folder).join("src"), root.join(folder)]
            .into_iter()
            .find(|source| source.join("lib.rs").exists());
        let found = circles(&uses(&source.unwrap()));
        assert_eq!(found, left, "{folder}: a circle that is gone is taken off the list, and none is added");
    }
}

#[test]
fn a_circle_is_found() {
    let uses = |pairs: &[(&str, &[&str])]| {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        pairs.iter().map(|(module, used)| ((*module).to_owned(), owned(used))).collect()
    };
    assert_eq!(circles(&uses(&[("a", &["b"]), ("b", &["c"]), ("c", &[])])), [""; 0]);
    assert_eq!(circles(&uses(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])])), ["b", "c"]);
}
