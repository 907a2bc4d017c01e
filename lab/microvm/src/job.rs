//! A job: a second archive, unpacked over the image's, so the image stays unchanged.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::cpio::Archive;

pub(super) const PLACE: &str = "job.json";
const DIRECTORY: &str = "job";

/// The work of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestJob {
    /// A program of the image, and the guest's first process. It must call [`super::guest::init`] if its only argument
    /// is [`super::guest::INIT`], and runs again for the work.
    pub program: String,
    /// Arguments for the work.
    pub args: Vec<String>,
    /// Result files by name; missing ones are skipped.
    pub results: BTreeMap<String, String>,
    /// Whether to load IPVS, which wakes the machine several times a second per network namespace and slows virtual
    /// time.
    pub ipvs: bool,
    /// Symbolic links by path.
    #[serde(skip)]
    pub links: BTreeMap<String, String>,
    /// Files by path, absolute or relative to the working directory.
    #[serde(skip)]
    pub files: BTreeMap<String, Vec<u8>>,
}

impl GuestJob {
    /// Returns the archive. Fails for too large files.
    pub fn archive(&self) -> io::Result<Vec<u8>> {
        let mut archive = Archive::default();
        archive.directory(DIRECTORY);
        for (path, content) in &self.files {
            let inside = path.strip_prefix('/').map_or_else(|| format!("{DIRECTORY}/{path}"), str::to_owned);
            archive.file(&inside, content.clone(), false);
        }
        for (path, target) in &self.links {
            archive.link(path.trim_start_matches('/'), target);
        }
        archive.file(PLACE, serde_json::to_vec(self)?, false);
        let mut bytes = Vec::new();
        archive.write(&mut bytes)?;
        Ok(bytes)
    }

    /// The guest's working directory.
    pub fn directory() -> String {
        format!("/{DIRECTORY}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lie_where_their_paths_lead() {
        let mut job = GuestJob {
            program: "svclab".to_owned(),
            args: vec!["run".to_owned(), "s/x.yaml".to_owned()],
            ..GuestJob::default()
        };
        job.files.insert("s/x.yaml".to_owned(), b"name: x".to_vec());
        job.files.insert("/home/me/y.yaml".to_owned(), b"name: y".to_vec());
        let bytes = job.archive().unwrap();
        assert_eq!(bytes, job.archive().unwrap());
        let text = String::from_utf8_lossy(&bytes);
        for part in [
            "job/s/x.yaml\0",
            "home/me/y.yaml\0",
            "name: x",
            r#"{"program":"svclab","args":["run","s/x.yaml"],"results":{},"ipvs":false}"#,
        ] {
            assert!(text.contains(part), "{part}");
        }
    }
}
