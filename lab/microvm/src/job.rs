//! What one run adds to an image: a second archive behind it, which the kernel unpacks over the first. The image itself
//! never moves.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::cpio::Archive;

/// Where the guest finds the job.
pub(super) const PLACE: &str = "job.json";
/// The directory in which files with a relative path lie.
const DIRECTORY: &str = "job";

/// What the guest is to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Name of a program of the image. It is the guest's first process, as which it must call [`super::guest::init`] when its
    /// only argument is [`super::guest::INIT`]; and it is run once more, for the work.
    pub program: String,
    /// Its arguments then.
    pub args: Vec<String>,
    /// Results to send back, by name: files that the program writes. One that is missing is left out.
    pub results: BTreeMap<String, String>,
    /// IPVS is to be there. It wakes the machine up several times a second in every namespace, used or not, and hours of
    /// virtual time would cost minutes.
    pub ipvs: bool,
    /// Symbolic links, by path, with what each leads to.
    #[serde(skip)]
    pub links: BTreeMap<String, String>,
    /// Files that it reads, by path: relative to its working directory, or absolute.
    #[serde(skip)]
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Job {
    /// The archive.
    ///
    /// # Errors
    /// When a file is too large for it.
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

    /// The working directory in the guest.
    pub fn directory() -> String {
        format!("/{DIRECTORY}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lie_where_their_paths_lead() {
        let mut job =
            Job { program: "svclab".to_owned(), args: vec!["run".to_owned(), "s/x.yaml".to_owned()], ..Job::default() };
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
