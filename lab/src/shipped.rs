//! The scenarios and the descriptions of proxies that the program carries: `scenarios/NAME.yaml` and `proxies/NAME.yaml`.

use std::path::{Component, Path, PathBuf};

include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// The folder of the scenarios, in the program and on disk.
pub const SCENARIOS: &str = "scenarios";
/// The folder of the descriptions of proxies.
pub const PROXIES: &str = "proxies";

/// The text of a file by its path in the program.
pub fn text(path: &Path) -> Option<&'static str> {
    let path = normal(path)?;
    FILES.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| *text)
}

/// The paths of all scenarios, sorted.
pub fn scenarios() -> impl Iterator<Item = &'static Path> {
    FILES.iter().map(|(name, _)| Path::new(*name)).filter(|path| path.starts_with(SCENARIOS))
}

/// `path` without `.` and `..`; `None` where it leads out of the current folder.
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
    fn every_file_of_the_repository_is_there() {
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
    fn a_path_may_have_detours_but_leads_nowhere_else() {
        assert!(text(Path::new("./scenarios/seeds/../hairpin.yaml")).is_some());
        for other in ["hairpin.yaml", "/scenarios/hairpin.yaml", "../scenarios/hairpin.yaml", "scenarios"] {
            assert_eq!(text(Path::new(other)), None, "{other}");
        }
    }
}
