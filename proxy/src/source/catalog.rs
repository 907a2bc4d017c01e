//! A faulty edit must not remove a live Service:
//! - An invalid object keeps its last valid version.
//! - A file with an unidentifiable document keeps every object that it no longer shows.
//! - An unreadable file keeps all objects.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use sha2::{Digest, Sha256};

use super::directory::FileStamp;
use super::documents::{self, FileContents, MOST_FAULTS};
use super::object::{Object, ObjectId};
use super::problem::DocumentError;
use super::{Batch, Change};

#[derive(Debug, Default)]
struct CatalogFile {
    /// The content's digest; `None` if reading failed.
    digest: Option<[u8; 32]>,
    /// The file's stamp; `None` if the file must be read again.
    stamp: Option<FileStamp>,
    contents: FileContents,
}

#[derive(Debug, Default)]
pub(super) struct Catalog {
    files: BTreeMap<String, CatalogFile>,
    reported: BTreeMap<ObjectId, Object>,
    reported_version: Option<u64>,
    has_reported: bool,
    news: bool,
    duplicates: Vec<DocumentError>,
    closed: Vec<DocumentError>,
}

impl Catalog {
    pub(super) fn file(&mut self, name: &str, bytes: Result<&[u8], String>) {
        let file = self.files.entry(name.to_owned()).or_default();
        file.stamp = None;
        match bytes {
            Ok(bytes) => {
                let digest = Sha256::digest(bytes).into();
                if file.digest != Some(digest) {
                    self.news = true;
                    let earlier = std::mem::take(&mut file.contents);
                    file.contents = with_kept_objects(earlier, documents::read(name, bytes));
                    file.digest = Some(digest);
                }
            }
            Err(message) => {
                let mut problem = DocumentError::file(name, message);
                problem.kept = !file.contents.objects.is_empty();
                file.contents.problems = vec![problem];
                file.digest = None;
            }
        }
    }

    pub(super) fn read_at(&mut self, name: &str, stamp: Option<FileStamp>) {
        if let Some(file) = self.files.get_mut(name) {
            file.stamp = stamp;
        }
    }

    pub(super) fn stamp(&self, name: &str) -> Option<FileStamp> {
        self.files.get(name)?.stamp
    }

    /// Forgets files that are neither `present` nor `closed` (unreadable; directories end with `/`).
    pub(super) fn retain(&mut self, present: &BTreeSet<String>, closed: Vec<(String, Option<String>)>) {
        let names: BTreeSet<&str> = closed.iter().map(|(name, _)| name.as_str()).collect();
        let hidden = |name: &str| {
            let above = name.match_indices('/').filter_map(|(at, _)| name.get(..=at));
            names.contains(name) || above.into_iter().any(|directory| names.contains(directory))
        };
        let before = self.files.len();
        self.files.retain(|name, _| present.contains(name) || hidden(name));
        self.news |= self.files.len() < before;
        let problem = |(name, message): (String, Option<String>)| {
            let mut problem = DocumentError::file(&name, message?);
            problem.kept = self.files.keys().any(|file| file.starts_with(&name));
            Some(problem)
        };
        self.closed = closed.into_iter().filter_map(problem).collect();
    }

    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        if self.has_reported && !std::mem::take(&mut self.news) {
            return None;
        }
        let now = self.merge();
        let version = self.version();
        let mut changes: Vec<Change> = Vec::new();
        for (id, object) in &now {
            if self.reported.get(id) != Some(object) {
                changes.push(object.to_change(id));
            }
        }
        for id in self.reported.keys().filter(|id| !now.contains_key(id)) {
            changes.push(id.clone().into_deletion());
        }
        let news = !changes.is_empty() || version != self.reported_version || !self.has_reported;
        self.reported = now;
        self.reported_version = version;
        self.has_reported = true;
        news.then(|| Batch { changes, resource_version: version.map(|v| v.to_string()), ..Batch::default() })
    }

    pub(super) fn problems(&self) -> Vec<DocumentError> {
        let of_files = self.files.values().flat_map(|f| &f.contents.problems);
        of_files.chain(&self.duplicates).chain(&self.closed).cloned().collect()
    }

    pub(super) fn remarks(&self) -> Vec<DocumentError> {
        self.files.values().flat_map(|f| &f.contents.remarks).cloned().collect()
    }

    pub(super) fn skipped(&self) -> Vec<String> {
        let of_files = self.files.values().flat_map(|f| &f.contents.skipped);
        of_files.cloned().collect()
    }

    /// Returns the objects of all files; of several definitions the first in file order wins.
    fn merge(&mut self) -> BTreeMap<ObjectId, Object> {
        let mut merged = BTreeMap::new();
        let mut places: BTreeMap<&ObjectId, (&str, usize)> = BTreeMap::new();
        self.duplicates.clear();
        for (name, file) in &self.files {
            let mut again = 0;
            for (id, object, document) in &file.contents.objects {
                if let Some(&(first, at)) = places.get(id) {
                    again += 1;
                    if again > MOST_FAULTS {
                        continue;
                    }
                    let mut problem = DocumentError::file(name, String::new());
                    problem.document = *document;
                    problem.object = Some(id.to_string());
                    problem.message = format!("is in {first}: document {at} already, which takes precedence");
                    self.duplicates.push(problem);
                } else {
                    places.insert(id, (name, *document));
                    merged.insert(id.clone(), object.clone());
                }
            }
            if again > MOST_FAULTS {
                let message = format!("has {} more objects that are already defined elsewhere", again - MOST_FAULTS);
                self.duplicates.push(DocumentError::file(name, message));
            }
        }
        merged
    }

    /// Returns the newest resource version of a list, else of an object.
    fn version(&self) -> Option<u64> {
        let contents = || self.files.values().map(|f| &f.contents);
        let lists = contents().filter_map(|c| c.list_version).max();
        let objects = || contents().flat_map(|c| &c.objects).filter_map(|(_, o, _)| o.version());
        lists.or_else(|| objects().max())
    }
}

fn with_kept_objects(earlier: FileContents, mut now: FileContents) -> FileContents {
    let refused: HashSet<_> = now.refused.iter().cloned().collect();
    let valid: HashSet<_> = now.objects.iter().map(|(id, ..)| id.clone()).collect();
    let mut kept = HashSet::new();
    for (id, object, document) in earlier.objects {
        if !valid.contains(&id) && (now.has_unidentified || refused.contains(&id)) {
            kept.insert(id.to_string());
            now.objects.push((id, object, document));
        }
    }
    for problem in &mut now.problems {
        problem.kept = match &problem.object {
            Some(object) => kept.contains(object),
            None => !kept.is_empty(),
        };
    }
    if now.has_unidentified {
        now.list_version = now.list_version.or(earlier.list_version);
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, port: i64) -> String {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: 10.96.0.1, ports: [{{port: {port}}}]}}\n"
        )
    }

    fn reported(batch: Option<Batch>) -> Vec<String> {
        let changes = batch.into_iter().flat_map(|b| b.changes);
        changes
            .map(|change| match change {
                Change::Service(key, Some(s)) => {
                    let ports = s.spec.as_ref().and_then(|s| s.ports.as_ref());
                    format!("{key} {}", ports.expect("ports")[0].port)
                }
                Change::Service(key, None) => format!("{key} gone"),
                other => format!("{other:?}"),
            })
            .collect()
    }

    fn read(catalog: &mut Catalog, name: &str, text: &str) -> Vec<String> {
        catalog.file(name, Ok(text.as_bytes()));
        reported(catalog.next_batch())
    }

    fn problems(catalog: &Catalog) -> Vec<String> {
        catalog.problems().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn later_batches_contain_only_differences() {
        let mut catalog = Catalog::default();
        assert!(catalog.next_batch().is_some(), "an empty directory is a state too");
        assert!(catalog.next_batch().is_none());
        let both = service("a", 1) + &service("b", 2);
        assert_eq!(read(&mut catalog, "x.yaml", &both), ["default/a 1", "default/b 2"]);
        let edited = service("a", 1) + "# comment\n" + &service("c", 3);
        assert_eq!(read(&mut catalog, "x.yaml", &edited), ["default/c 3", "default/b gone"]);
        catalog.retain(&BTreeSet::new(), vec![]);
        assert_eq!(reported(catalog.next_batch()), ["default/a gone", "default/c gone"]);
    }

    #[test]
    fn a_typo_does_not_remove_a_service() {
        let mut catalog = Catalog::default();
        read(&mut catalog, "x.yaml", &(service("a", 1) + &service("b", 2)));
        let typo = service("a", 70_000) + &service("b", 3);
        assert_eq!(read(&mut catalog, "x.yaml", &typo), ["default/b 3"]);
        assert_eq!(
            problems(&catalog),
            [
                "x.yaml: document 1 (Service default/a): spec.ports[0].port: 70000 is not a port (1-65535); kept as it was"
            ]
        );
        let typo = service("a", 70_000) + &service("b", 4);
        assert_eq!(read(&mut catalog, "x.yaml", &typo), ["default/b 4"]);
        assert_eq!(read(&mut catalog, "x.yaml", &service("a", 5)), ["default/a 5", "default/b gone"]);
        assert_eq!(problems(&catalog), Vec::<String>::new());
    }

    #[test]
    fn a_malformed_document_keeps_the_files_objects() {
        let mut catalog = Catalog::default();
        read(&mut catalog, "x.yaml", &(service("a", 1) + &service("b", 2)));
        let torn = service("a", 3) + "---\nkind: [Service\n";
        assert_eq!(read(&mut catalog, "x.yaml", &torn), ["default/a 3"]);
        assert!(problems(&catalog)[0].ends_with("; kept as it was"), "{:?}", problems(&catalog));
        assert_eq!(read(&mut catalog, "x.yaml", &service("a", 3)), ["default/b gone"]);
    }

    #[test]
    fn an_unreadable_file_keeps_its_objects() {
        let mut catalog = Catalog::default();
        read(&mut catalog, "x.yaml", &service("a", 1));
        catalog.file("x.yaml", Err("cannot be read: denied".to_owned()));
        assert!(catalog.next_batch().is_none());
        assert_eq!(problems(&catalog), ["x.yaml: cannot be read: denied; kept as it was"]);
        assert_eq!(read(&mut catalog, "x.yaml", &service("a", 1)), Vec::<String>::new());
        assert_eq!(problems(&catalog), Vec::<String>::new());
    }

    #[test]
    fn a_closed_directory_keeps_its_files() {
        let mut catalog = Catalog::default();
        read(&mut catalog, "sub/x.yaml", &service("a", 1));
        let denied = ("sub/".to_owned(), Some("cannot be read: denied".to_owned()));
        catalog.retain(&BTreeSet::new(), vec![denied]);
        assert!(catalog.next_batch().is_none());
        assert_eq!(problems(&catalog), ["sub/: cannot be read: denied; kept as it was"]);
        catalog.retain(&BTreeSet::new(), vec![]);
        assert_eq!(reported(catalog.next_batch()), ["default/a gone"]);
    }

    #[test]
    fn the_first_definition_wins_and_the_other_replaces_it_when_removed() {
        let mut catalog = Catalog::default();
        catalog.file("b.yaml", Ok(service("a", 2).as_bytes()));
        catalog.file("a.yaml", Ok(service("a", 1).as_bytes()));
        assert_eq!(reported(catalog.next_batch()), ["default/a 1"]);
        assert_eq!(
            problems(&catalog),
            ["b.yaml: document 1 (Service default/a): is in a.yaml: document 1 already, which takes precedence"]
        );
        catalog.retain(&BTreeSet::from(["b.yaml".to_owned()]), vec![]);
        assert_eq!(reported(catalog.next_batch()), ["default/a 2"]);
        assert_eq!(problems(&catalog), Vec::<String>::new());
    }

    #[test]
    fn versions_come_from_lists_then_from_objects() {
        let version = |catalog: &mut Catalog| catalog.next_batch().and_then(|b| b.resource_version);
        let object =
            |v: u32| format!("---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{v}, resourceVersion: '{v}'}}\n");
        let mut catalog = Catalog::default();
        catalog.file("a.yaml", Ok((object(9) + &object(10)).as_bytes()));
        assert_eq!(version(&mut catalog).as_deref(), Some("10"));
        let list = |v: u32| format!("apiVersion: v1\nkind: List\nmetadata: {{resourceVersion: '{v}'}}\nitems: []\n");
        catalog.file("b.yaml", Ok(list(7).as_bytes()));
        assert_eq!(version(&mut catalog).as_deref(), Some("7"));
        catalog.file("b.yaml", Ok(list(8).as_bytes()));
        let batch = catalog.next_batch().expect("a new version alone is news");
        assert_eq!((batch.changes.len(), batch.resource_version.as_deref()), (0, Some("8")));
    }
}
