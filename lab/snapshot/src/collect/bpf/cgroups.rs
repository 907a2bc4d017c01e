//! The hierarchy of cgroups: programs attach to cgroups of version 2 only.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::MountInfo;

use crate::collect::files;

/// The most cgroups that are asked for programs; a node with 500 pods has about 2,500.
const CGROUPS: usize = 20_000;

/// The cgroups with their paths, and whether there are more than [`CGROUPS`].
pub(super) struct Cgroups {
    pub(super) paths: Vec<(String, PathBuf)>,
    pub(super) has_more: bool,
}

/// Returns the mount point that shows most of the hierarchy; `None` without cgroups of version 2.
pub(super) fn mount_point() -> Option<PathBuf> {
    let text = files::proc("/proc/thread-self/mountinfo").ok()?;
    let mounts: Vec<MountInfo> = text.lines().filter_map(|line| MountInfo::from_line(line).ok()).collect();
    // Another mount may hide one of them.
    topmost(mounts.iter().filter(|mount| mount.mount_point.join("cgroup.controllers").exists()))
}

/// In a cgroup namespace, the root of a mount above the namespace's root begins with `/..`.
fn topmost<'a>(mounts: impl Iterator<Item = &'a MountInfo>) -> Option<PathBuf> {
    let of_version_2 = mounts.filter(|mount| mount.fs_type == "cgroup2");
    let depth = |root: &str| {
        let parts = root.split('/').filter(|part| !part.is_empty());
        parts.map(|part| if part == ".." { -1 } else { 1 }).sum::<i32>()
    };
    let best = of_version_2.min_by_key(|mount| (depth(&mount.root), mount.mount_point.as_os_str().len()))?;
    Some(best.mount_point.clone())
}

/// Walks the hierarchy level by level, so that a bound cuts off the lowest cgroups.
pub(super) fn below(mount_point: &Path) -> Cgroups {
    let mut found = Cgroups { paths: Vec::new(), has_more: false };
    let mut next = VecDeque::from([("/".to_owned(), mount_point.to_owned())]);
    while let Some((name, path)) = next.pop_front() {
        if found.paths.len() == CGROUPS {
            found.has_more = true;
            break;
        }
        let mut children: Vec<String> = fs::read_dir(&path)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        children.sort_unstable();
        let above = name.trim_end_matches('/');
        next.extend(children.into_iter().map(|child| (format!("{above}/{child}"), path.join(child))));
        found.paths.push((name, path));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_with_the_highest_root_is_taken() {
        let lines = [
            "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate",
            "31 24 0:26 /../.. /host/sys/fs/cgroup rw,nosuid shared:5 - cgroup2 cgroup2 rw",
            "32 24 0:27 / /sys/fs/cgroup/cpu rw,nosuid - cgroup cgroup rw,cpu",
            "33 24 0:26 /kubepods.slice /tmp/pods rw,nosuid - cgroup2 cgroup2 rw",
        ];
        let mounts: Vec<MountInfo> = lines.iter().map(|line| MountInfo::from_line(line).unwrap()).collect();
        assert_eq!(topmost(mounts.iter()), Some(PathBuf::from("/host/sys/fs/cgroup")));
        assert_eq!(topmost(mounts[2..3].iter()), None);
        assert_eq!(topmost(mounts[..1].iter().chain(&mounts[3..])), Some(PathBuf::from("/sys/fs/cgroup")));
    }

    #[test]
    fn cgroups_are_listed_from_above() {
        let root = tempfile::tempdir().unwrap();
        for path in ["system.slice/kubelet.service", "kubepods.slice/pod1", "a"] {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        fs::write(root.path().join("cgroup.procs"), "").unwrap();
        let found = below(root.path());
        let names: Vec<&str> = found.paths.iter().map(|(name, _)| name.as_str()).collect();
        let expected =
            ["/", "/a", "/kubepods.slice", "/system.slice", "/kubepods.slice/pod1", "/system.slice/kubelet.service"];
        assert_eq!(names, expected);
        assert!(!found.has_more);
    }
}
