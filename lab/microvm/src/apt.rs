//! Downloads Debian packages without installing them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::VmError;
use super::cache::Cache;

/// `apt-get` with the host's keys and sources, and its own state in the cache.
pub struct Apt {
    options: Vec<String>,
    downloads: tempfile::TempDir,
    report: fn(&str),
}

impl Apt {
    /// Updates the package lists if possible. Fails without apt.
    pub fn open(cache: &Cache) -> Result<Apt, VmError> {
        let state = cache.folder("apt")?;
        let failed = || VmError::io(format!("preparing {}", state.display()));
        for folder in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(state.join(folder)).map_err(failed())?;
        }
        // No package counts as installed, so downloads include every dependency.
        fs::write(state.join("status"), "").map_err(failed())?;
        let downloads = tempfile::Builder::new().prefix("download-").tempdir_in(&state).map_err(failed())?;
        fs::create_dir(downloads.path().join("partial")).map_err(failed())?;
        let apt = Apt { options: options(&state, downloads.path()), downloads, report: cache.report };
        // Old lists may suffice; otherwise the next command reports the missing package.
        apt.run("apt-get", ["update"])?;
        Ok(apt)
    }

    /// Returns the first existing meta package's dependency with prefix `wanted`.
    pub fn resolve(&self, metas: &[&str], wanted: &str) -> Result<String, VmError> {
        for meta in metas {
            let output = self.run("apt-cache", ["depends", meta])?;
            let text = String::from_utf8_lossy(&output.stdout);
            if let Some(package) = dependencies(&text).find(|package| package.starts_with(wanted)) {
                return Ok(package.to_owned());
            }
        }
        let metas = metas.join(" and ");
        Err(VmError::Package(format!(
            "this machine's package sources have no package {wanted}* (looked through {metas}): without a network? \
             `--kernel host` needs no package"
        )))
    }

    /// Downloads packages and returns their files.
    pub fn download(&self, packages: &[&str], with_dependencies: bool) -> Result<Vec<PathBuf>, VmError> {
        let how: &[&str] = if with_dependencies {
            &["install", "--download-only", "--no-install-recommends", "--yes"]
        } else {
            &["download"]
        };
        let listed = self.run("apt-get", how.iter().chain(&["--print-uris"]).chain(packages))?;
        let (files, bytes) = to_download(&String::from_utf8_lossy(&listed.stdout));
        if files > 0 {
            let megabytes = bytes.div_ceil(1_000_000);
            (self.report)(&format!("downloading {} ({files} packages, {megabytes} MB)", packages.join(", ")));
        }
        let output = self.run("apt-get", how.iter().chain(packages))?;
        if !output.status.success() {
            return Err(VmError::Package(format!(
                "cannot download {}: {}; `--kernel host` needs no package",
                packages.join(", "),
                complaint(&String::from_utf8_lossy(&output.stderr))
            )));
        }
        let failed = || VmError::io("reading the downloaded packages");
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(self.downloads.path()).map_err(failed())? {
            let path = entry.map_err(failed())?.path();
            files.extend(Some(path).filter(|path| path.extension() == Some(OsStr::new("deb"))));
        }
        files.sort();
        Ok(files)
    }

    fn run<S: AsRef<OsStr>>(&self, program: &str, args: impl IntoIterator<Item = S>) -> Result<Output, VmError> {
        let mut command = Command::new(program);
        command.args(&self.options).args(args).env("LC_ALL", "C").current_dir(self.downloads.path());
        command.output().map_err(|error| {
            VmError::Package(format!(
                "cannot run {program} ({error}): the microVM's kernel and tools are Debian packages; \
                 `--kernel host` needs none"
            ))
        })
    }
}

/// Unpacks a package into `folder`.
pub fn unpack(package: &Path, folder: &Path) -> Result<(), VmError> {
    let name = package.file_name().unwrap_or_default().to_string_lossy();
    let output = Command::new("dpkg-deb").arg("--extract").arg(package).arg(folder).env("LC_ALL", "C").output();
    let output = output.map_err(|error| VmError::Package(format!("cannot run dpkg-deb ({error}) on {name}")))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(VmError::Package(format!("cannot unpack {name}: {complaint}")))
}

fn options(state: &Path, downloads: &Path) -> Vec<String> {
    let at = |name: &str| state.join(name).display().to_string();
    let mut options = Vec::new();
    for setting in [
        format!("Dir::State::lists={}", at("lists")),
        format!("Dir::State::status={}", at("status")),
        format!("Dir::State::extended_states={}", at("extended_states")),
        format!("Dir::Cache={}", at("cache")),
        format!("Dir::Cache::archives={}", downloads.display()),
        "Debug::NoLocking=1".to_owned(),
        "Acquire::Languages=none".to_owned(),
        // As another user apt could not write to the cache.
        "APT::Sandbox::User=root".to_owned(),
    ] {
        options.extend(["-o".to_owned(), setting]);
    }
    options.push("--quiet".to_owned());
    options
}

fn to_download(text: &str) -> (usize, u64) {
    let sizes = text.lines().filter(|line| line.starts_with('\'')).map(|line| line.split(' ').nth(2)?.parse().ok());
    sizes.flatten().fold((0, 0), |(files, bytes), size: u64| (files + 1, bytes + size))
}

fn dependencies(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim_start().trim_start_matches('|').strip_prefix("Depends: ")).map(str::trim)
}

fn complaint(stderr: &str) -> &str {
    stderr.lines().find_map(|line| line.strip_prefix("E: ")).unwrap_or("apt-get does not say why").trim()
}

/// Returns the package's name from `NAME_VERSION_ARCHITECTURE.deb`.
pub fn package_of(file: &Path) -> &str {
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.split('_').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abi_name_is_read_from_what_its_meta_package_depends_on() {
        let text =
            "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n |Depends: one\n  Depends: <two>\n";
        assert_eq!(dependencies(text).collect::<Vec<_>>(), ["linux-image-6.1.0-56-cloud-amd64", "one", "<two>"]);
        assert_eq!(dependencies("").count(), 0);
    }

    #[test]
    fn the_size_of_a_download_is_known_before() {
        let text = "Reading package lists...\n'http://a/b_1.deb' b_1.deb 1500000 SHA256:0\n'http://a/c.deb' c.deb 7 MD5Sum:1\n";
        assert_eq!(to_download(text), (2, 1_500_007));
        assert_eq!(to_download("E: Unable to locate package nope\n"), (0, 0));
    }

    #[test]
    fn the_first_error_is_told() {
        let stderr = "W: old lists\nE: Unable to locate package nope\nE: more\n";
        assert_eq!(complaint(stderr), "Unable to locate package nope");
        assert_eq!(complaint(""), "apt-get does not say why");
    }

    #[test]
    fn the_hosts_own_state_is_left_alone() {
        let options = options(Path::new("/cache/apt"), Path::new("/cache/apt/d"));
        for key in ["State::lists", "State::status", "State::extended_states", "Cache"] {
            assert!(options.iter().any(|option| option.starts_with(&format!("Dir::{key}=/cache/apt"))), "{key}");
        }
    }

    #[test]
    fn a_file_tells_its_package() {
        assert_eq!(package_of(Path::new("/x/busybox-static_1%3a1.35.0-4_amd64.deb")), "busybox-static");
    }
}
