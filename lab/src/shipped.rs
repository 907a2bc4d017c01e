//! Embedded scenarios and descriptions of proxies: `scenarios/NAME.yaml` and `proxies/NAME.yaml`.

use std::path::{Component, Path, PathBuf};

include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

pub const SCENARIOS: &str = "scenarios";
pub const PROXIES: &str = "proxies";

pub fn text(path: &Path) -> Option<&'static str> {
    let path = normal(path)?;
    FILES.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| *text)
}

pub fn scenarios() -> impl Iterator<Item = &'static Path> {
    FILES.iter().map(|(name, _)| Path::new(*name)).filter(|path| path.starts_with(SCENARIOS))
}

/// Returns the names of the embedded scenarios, without their folders.
pub fn scenario_names() -> impl Iterator<Item = &'static str> {
    scenarios().filter_map(|path| path.file_stem()?.to_str())
}

/// Returns the descriptions of proxies as `--proxy` takes them, such as `kube-proxy.yaml`.
pub fn proxies() -> impl Iterator<Item = &'static str> {
    FILES.iter().filter_map(|(name, _)| Path::new(*name).strip_prefix(PROXIES).ok()?.to_str())
}

/// Removes `.` and `..`; `None` if the path leaves the current folder.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if normal.pop() => {}
            Component::Normal(name) => normal.push(name),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(normal)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_program_contains_every_file_of_the_repository() {
        for (folder, name) in [("../scenarios", SCENARIOS), ("proxies", PROXIES)] {
            let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml")) {
                let carried = text(&Path::new(name).join(file.file_name().unwrap()));
                assert_eq!(carried, Some(std::fs::read_to_string(&file).unwrap().as_str()), "{}", file.display());
            }
        }
        assert!(scenarios().any(|path| path == Path::new("scenarios/microvm/sctp.yaml")));
    }

    #[test]
    fn paths_outside_the_folders_are_not_found() {
        assert!(text(Path::new("./scenarios/seeds/../hairpin.yaml")).is_some());
        for other in ["hairpin.yaml", "/scenarios/hairpin.yaml", "../scenarios/hairpin.yaml", "scenarios"] {
            assert_eq!(text(Path::new(other)), None, "{other}");
        }
    }
}
