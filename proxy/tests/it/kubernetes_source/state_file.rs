//! A start while the API is away, with a state file.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use svcproxy::metrics::Requests;
use svcproxy::model::Batch;
use svcproxy::source::{
    Access, Connector, KubernetesSource, ObjectSource, SourceReports, StateFileCounts, StateFileSettings,
    StateFileSource, StateFileTiming, WatchScope,
};

use super::api::{NODES, SERVICES, SLICES, ScriptedApi};
use super::support::{CapturedLog, node, reported, service, slice, timing, until};

struct Kept {
    source: StateFileSource<KubernetesSource>,
    counts: StateFileCounts,
}

fn settings(path: &Path) -> StateFileSettings {
    let timing = StateFileTiming {
        head_start: Duration::from_millis(300),
        write_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(80),
    };
    StateFileSettings { timing, ..StateFileSettings::new(path.to_owned(), Duration::from_secs(3600)) }
}

fn start(api: &ScriptedApi, node: &str, settings: StateFileSettings) -> Kept {
    let access = Access::new(None, Some(format!("http://{}", api.address)));
    let (connector, scope) = (Connector::new(access.clone(), &Requests::default()), WatchScope::from(node));
    let counts = StateFileCounts::default();
    let source = KubernetesSource::start(connector.clone(), scope.clone(), &timing(), &SourceReports::default());
    let source = StateFileSource::start(source, settings, (&access, &connector, &scope), &counts);
    Kept { source, counts }
}

impl Kept {
    async fn batch(&mut self) -> Batch {
        let batch = tokio::time::timeout(Duration::from_secs(30), self.source.next()).await;
        batch.unwrap_or_else(|_| panic!("no batch in time")).unwrap().unwrap()
    }

    /// Returns the next changes, without batches of versions.
    async fn changes(&mut self) -> Batch {
        loop {
            let batch = self.batch().await;
            if !batch.changes.is_empty() {
                return batch;
            }
        }
    }

    /// Returns the first state of the API, which a busy machine may deliver in parts.
    async fn first(&mut self) -> Batch {
        let mut first = self.batch().await;
        while first.partial {
            let next = self.batch().await;
            first.changes.extend(next.changes);
            first.partial = next.partial;
        }
        first
    }

    async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(600), self.source.next()).await.is_err()
    }
}

/// Returns an API with objects, and the state file of a proxy that has read them.
async fn written() -> (ScriptedApi, tempfile::TempDir, PathBuf) {
    let api = ScriptedApi::start(None).await;
    api.put(SERVICES, service("a", 80));
    api.put(SERVICES, service("b", 81));
    api.put(SLICES, slice("web-1", "10.0.0.1"));
    api.put(NODES, node("n1"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let mut kept = start(&api, "n1", settings(&path));
    let first = kept.first().await;
    assert_eq!(reported(&first), ["default/a 80", "default/b 81", "default/web-1 10.0.0.1", "node n1"]);
    assert_eq!(first.recalled, None, "there was no file");
    until("the file", || path.exists()).await;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    (api, directory, path)
}

#[tokio::test]
async fn without_the_api_the_files_objects_are_the_state_until_it_answers() {
    let (log, _guard) = CapturedLog::start();
    let (mut api, _directory, path) = written().await;
    api.down();
    let mut kept = start(&api, "n1", settings(&path));
    let recalled = kept.batch().await;
    assert_eq!(reported(&recalled), ["default/a 80", "default/b 81", "default/web-1 10.0.0.1", "node n1"]);
    let age = SystemTime::now().duration_since(recalled.recalled.unwrap()).unwrap();
    assert!(!recalled.partial && age < Duration::from_secs(60), "{age:?}");
    assert_eq!(recalled.resource_versions, Default::default(), "nothing of the API is applied");
    assert!(kept.is_silent().await);
    api.delete(SERVICES, "b");
    api.put(SERVICES, service("d", 83));
    api.put(SLICES, slice("web-1", "10.0.0.2"));
    let version = api.put(NODES, node("n1"));
    api.up().await;
    let now = kept.batch().await;
    assert_eq!(reported(&now), ["default/b gone", "default/d 83", "default/web-1 10.0.0.2"]);
    assert_eq!((now.recalled, now.partial), (None, false));
    assert_eq!(now.resource_versions.services, Some(version.to_string()));
    api.put(SERVICES, service("a", 8080));
    assert_eq!(reported(&kept.changes().await), ["default/a 8080"]);
    let lines = log.lines().join("\n");
    assert!(lines.contains("programming the objects of the state file"), "{lines}");
    assert!(lines.contains("replace those of the state file changes=3"), "{lines}");
    assert_eq!(kept.counts.failed(), 0);
}

#[tokio::test]
async fn objects_go_only_when_all_lists_are_complete() {
    let (mut api, _directory, path) = written().await;
    api.down();
    let mut kept = start(&api, "n1", settings(&path));
    assert!(kept.batch().await.recalled.is_some());
    api.delete(SERVICES, "b");
    api.put(SERVICES, service("c", 82));
    api.world.lock().unwrap().refuse = Some((SLICES, 503));
    let watches = api.asked("watch", SERVICES).0;
    api.up().await;
    until("Services are listed", || api.asked("watch", SERVICES).0 > watches).await;
    assert!(kept.is_silent().await, "slices are missing");
    drop(kept);
    // The file has no part of a list.
    api.down();
    let mut kept = start(&api, "n1", settings(&path));
    assert_eq!(reported(&kept.batch().await).len(), 4);
    api.world.lock().unwrap().refuse = None;
    api.up().await;
    assert_eq!(reported(&kept.batch().await), ["default/b gone", "default/c 82"]);
}

#[tokio::test]
async fn the_last_changes_are_written_at_the_end() {
    let (mut api, _directory, path) = written().await;
    let slow = StateFileTiming { write_pause: Duration::from_secs(3600), ..StateFileTiming::default() };
    std::fs::remove_file(&path).unwrap();
    let mut kept = start(&api, "n1", StateFileSettings { timing: slow, ..settings(&path) });
    kept.first().await;
    until("the first write", || kept.counts.written_at().is_some()).await;
    let has_late = || std::fs::read(&path).unwrap().windows(4).any(|word| word == b"late");
    assert!(!has_late());
    api.put(SERVICES, service("late", 84));
    assert_eq!(reported(&kept.changes().await), ["default/late 84"]);
    drop(kept);
    // A slow disk may take longer than the end waits for it.
    until("the last write", has_late).await;
    api.down();
    let recalled = start(&api, "n1", settings(&path)).batch().await;
    assert!(reported(&recalled).contains(&"default/late 84".to_owned()), "{recalled:?}");
}

#[tokio::test]
async fn a_file_that_does_not_fit_is_ignored_with_one_line() {
    let (log, _guard) = CapturedLog::start();
    let (mut api, directory, path) = written().await;
    let mut other = ScriptedApi::start(None).await;
    other.down();
    let good = std::fs::read(&path).unwrap();
    api.down();
    let write = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        path.clone()
    };
    let cut = &good[..good.len() - 1];
    let cases: [(&str, PathBuf, Duration, &str); 6] = [
        ("n2", path.clone(), Duration::from_secs(3600), "it is of node n1"),
        ("n1", path.clone(), Duration::ZERO, "old; stateFile.maxAge"),
        ("n1", directory.path().to_owned(), Duration::from_secs(3600), "it is no regular file"),
        ("n1", directory.path().join("none"), Duration::from_secs(3600), "/none yet"),
        ("n1", write(cut), Duration::from_secs(3600), "its checksum is wrong"),
        ("n1", write(&good), Duration::from_secs(3600), "it is of another cluster"),
    ];
    for (number, (node, file, max_age, reason)) in cases.into_iter().enumerate() {
        write(if number == 4 { cut } else { &good });
        let access =
            Access::new(None, Some(format!("http://{}", if number == 5 { other.address } else { api.address })));
        let (connector, scope) = (Connector::new(access.clone(), &Requests::default()), WatchScope::from(node));
        let source = KubernetesSource::start(connector.clone(), scope.clone(), &timing(), &SourceReports::default());
        let settings = StateFileSettings { max_age, ..settings(&file) };
        let api = (&access, &connector, &scope);
        let source = StateFileSource::start(source, settings, api, &StateFileCounts::default());
        let mut kept = Kept { source, counts: StateFileCounts::default() };
        assert!(kept.is_silent().await, "{reason}");
        let lines = log.lines();
        assert_eq!(lines.iter().filter(|line| line.contains(reason)).count(), 1, "{reason}: {lines:#?}");
    }
}

#[tokio::test]
async fn a_disk_that_takes_nothing_delays_nothing() {
    let (api, directory, _) = written().await;
    let beyond = directory.path().join("later");
    let mut kept = start(&api, "n1", settings(&beyond.join("state")));
    assert_eq!(reported(&kept.first().await).len(), 4);
    until("attempts", || kept.counts.failed() >= 3).await;
    for port in 1..20 {
        api.put(SERVICES, service("a", port));
        assert_eq!(reported(&kept.changes().await), [format!("default/a {port}")]);
    }
    std::fs::create_dir(&beyond).unwrap();
    until("a write", || kept.counts.written_at().is_some()).await;
}
