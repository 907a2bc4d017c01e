use std::path::{Path, PathBuf};
use std::process::Command;

use semver::Version;

use crate::ControlPlaneError;

/// The first release with ServiceCIDRs as `networking.k8s.io/v1`, which proxies watch.
const OLDEST: Version = Version::new(1, 33, 0);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    directory: PathBuf,
    version: Version,
    has_controllers: bool,
}

impl Programs {
    pub fn find(directory: &Path) -> Result<Self, ControlPlaneError> {
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        for program in ["etcd", "kube-apiserver"] {
            if !directory.join(program).exists() {
                return Err(ControlPlaneError::Missing { directory, program });
            }
        }
        let program = directory.join("kube-apiserver");
        let result = Command::new(&program).arg("--version").output();
        let result = result.map_err(ControlPlaneError::io(format!("starting {}", program.display())))?;
        let output = String::from_utf8_lossy(&result.stdout).trim().to_owned();
        let Some(version) = version(&output) else { return Err(ControlPlaneError::Version { program, output }) };
        if Version::new(version.major, version.minor, version.patch) < OLDEST {
            return Err(ControlPlaneError::TooOld { program, found: version, oldest: OLDEST });
        }
        let has_controllers = directory.join("kube-controller-manager").exists();
        Ok(Programs { directory, version, has_controllers })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
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
        let find = || Programs::find(directory.path()).map_err(|error| error.to_string());
        assert!(find().unwrap_err().contains("has no etcd: a control plane needs etcd and kube-apiserver"));
        write("etcd", "");
        assert!(find().unwrap_err().contains("has no kube-apiserver"));
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
