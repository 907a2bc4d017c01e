use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use semver::Version;

use crate::ControlPlaneError;

/// The first release with ServiceCIDRs as `networking.k8s.io/v1`, which proxies watch.
const OLDEST: Version = Version::new(1, 33, 0);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    directory: PathBuf,
    etcd_directory: PathBuf,
    version: Version,
    has_controllers: bool,
}

impl Programs {
    /// Finds kube-apiserver in `directory`, and etcd there or in PATH.
    pub fn find(directory: &Path) -> Result<Self, ControlPlaneError> {
        Programs::find_with(directory, std::env::var_os("PATH").as_deref())
    }

    fn find_with(directory: &Path, path: Option<&OsStr>) -> Result<Self, ControlPlaneError> {
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        if !directory.join("kube-apiserver").exists() {
            return Err(ControlPlaneError::NoApiServer { directory });
        }
        let in_path = path.into_iter().flat_map(std::env::split_paths);
        let etcd = [directory.clone()].into_iter().chain(in_path).find(|folder| folder.join("etcd").is_file());
        let Some(etcd_directory) = etcd else { return Err(ControlPlaneError::NoEtcd { directory }) };
        let program = directory.join("kube-apiserver");
        let result = Command::new(&program).arg("--version").output();
        let result = result.map_err(ControlPlaneError::io(format!("starting {}", program.display())))?;
        let output = String::from_utf8_lossy(&result.stdout).trim().to_owned();
        let Some(version) = version(&output) else { return Err(ControlPlaneError::Version { program, output }) };
        if Version::new(version.major, version.minor, version.patch) < OLDEST {
            return Err(ControlPlaneError::TooOld { program, found: version, oldest: OLDEST });
        }
        let has_controllers = directory.join("kube-controller-manager").exists();
        Ok(Programs { directory, etcd_directory, version, has_controllers })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn etcd_directory(&self) -> &Path {
        &self.etcd_directory
    }

    pub fn version(&self) -> &Version {
        &self.version
    }

    pub fn has_controllers(&self) -> bool {
        self.has_controllers
    }
}

fn version(output: &str) -> Option<Version> {
    Version::parse(output.strip_prefix("Kubernetes v")?).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_missing_or_old_program_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let find = || Programs::find_with(directory.path(), None).map_err(|error| error.to_string());
        assert!(find().unwrap_err().contains("has no kube-apiserver"));
        write("kube-apiserver", "#!/bin/sh\necho Kubernetes v1.36.2\n");
        assert!(find().unwrap_err().contains("there is no etcd in"));
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("etcd"), "").unwrap();
        let found = Programs::find_with(directory.path(), Some(elsewhere.path().as_os_str())).unwrap();
        assert_eq!(found.etcd_directory(), elsewhere.path());
        write("etcd", "");
        for (says, wanted) in [
            ("Kubernetes v1.36.2", Ok(())),
            ("Kubernetes v1.37.0-alpha.1+0a1b", Ok(())),
            ("Kubernetes v1.32.9", Err("is 1.32.9; it must be 1.33.0 at least")),
            ("etcd 3", Err("which is no version of Kubernetes")),
        ] {
            write("kube-apiserver", &format!("#!/bin/sh\necho '{says}'\n"));
            match (find(), wanted) {
                (Ok(found), Ok(())) => assert!(!found.has_controllers()),
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (found, _) => panic!("{says}: {found:?}"),
            }
        }
        write("kube-apiserver", "#!/bin/sh\necho Kubernetes v1.36.2\n");
        write("kube-controller-manager", "");
        assert!(find().unwrap().has_controllers());
    }
}
