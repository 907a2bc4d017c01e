//! Manifests that editors, copies and mounted ConfigMaps change; faulty manifests.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use svcproxy::model::{Batch, Change};
use svcproxy::source::{ManifestSource, ObjectSource, read_directory};
use tempfile::TempDir;

/// Only a failing test waits that long.
const DEADLINE: Duration = Duration::from_secs(20);

fn service(name: &str, port: u32) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: 10.96.0.1, ports: [{{port: {port}}}]}}\n"
    )
}

fn list(version: u32, services: &[(&str, u32)]) -> String {
    let items = services.iter().map(|(name, port)| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}"}},"spec":{{"clusterIP":"10.96.0.1","ports":[{{"port":{port}}}]}}}}"#
        )
    });
    let items: Vec<_> = items.collect();
    format!(
        r#"{{"apiVersion":"v1","kind":"List","metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
        items.join(",")
    )
}

fn reported(batch: &Batch) -> Vec<String> {
    let changes = batch.changes.iter().map(|change| match change {
        Change::Service(key, Some(service)) => {
            let ports = service.spec.as_ref().and_then(|s| s.ports.as_ref());
            format!("{key} {}", ports.expect("ports")[0].port)
        }
        Change::Service(key, None) => format!("{key} gone"),
        Change::EndpointSlice(key, slice) => format!("slice {key} {}", slice.is_some()),
        Change::Node(name, node) => format!("node {name} {}", node.is_some()),
        Change::ServiceCidr(name, cidr) => format!("ServiceCIDR {name} {}", cidr.is_some()),
    });
    changes.collect()
}

async fn batch(source: &mut ManifestSource) -> Batch {
    let next = tokio::time::timeout(DEADLINE, source.next()).await;
    next.expect("a batch in time").expect("a working source").expect("a source that goes on")
}

async fn next(source: &mut ManifestSource) -> Vec<String> {
    reported(&batch(source).await)
}

/// Replaces a file by renaming, as editors do.
fn replace(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).expect("write");
    fs::rename(&draft, path).expect("rename");
}

#[tokio::test]
async fn edits_are_reported_as_differences() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("web.yaml");
    fs::write(&path, service("a", 1) + &service("b", 1)).expect("write");
    let mut source = ManifestSource::open(dir.path()).expect("open");
    assert_eq!(next(&mut source).await, ["default/a 1", "default/b 1"]);

    replace(&path, &(service("a", 1) + &service("b", 2)));
    assert_eq!(next(&mut source).await, ["default/b 2"]);
    fs::write(dir.path().join("more.yml"), service("c", 1)).expect("write");
    assert_eq!(next(&mut source).await, ["default/c 1"]);
    fs::create_dir(dir.path().join("sub")).expect("mkdir");
    fs::write(dir.path().join("sub/d.json"), list(3, &[("d", 1)])).expect("write");
    assert_eq!(next(&mut source).await, ["default/d 1"]);
    fs::remove_file(&path).expect("remove");
    assert_eq!(next(&mut source).await, ["default/a gone", "default/b gone"]);
    fs::remove_dir_all(dir.path().join("sub")).expect("remove");
    assert_eq!(next(&mut source).await, ["default/d gone"]);
    assert!(source.problems().is_empty());
}

#[tokio::test]
async fn an_invalid_service_cidr_keeps_its_last_valid_state() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("range.yaml");
    let range = |cidrs: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {{name: more}}\nspec: {{cidrs: {cidrs}}}\n"
        )
    };
    fs::write(&path, range("[10.96.0.0/16]")).expect("write");
    let mut source = ManifestSource::open(dir.path()).expect("open");
    assert_eq!(next(&mut source).await, ["ServiceCIDR more true"]);
    replace(&path, &(range("[]") + "---\n" + &service("a", 1)));
    assert_eq!(next(&mut source).await, ["default/a 1"]);
    let problems: Vec<String> = source.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["range.yaml: document 1 (ServiceCIDR more): spec.cidrs: has no network; kept as it was"]);
    fs::remove_file(&path).expect("remove");
    assert_eq!(next(&mut source).await, ["default/a gone", "ServiceCIDR more false"]);
}

#[tokio::test]
async fn other_files_are_not_read() {
    let dir = TempDir::new().expect("a directory");
    fs::write(dir.path().join("web.yaml"), service("a", 1)).expect("write");
    for other in [".web.yaml.swp", ".hidden.yaml", "web.yaml~", "README"] {
        fs::write(dir.path().join(other), service("x", 9)).expect("write");
    }
    fs::create_dir(dir.path().join(".git")).expect("mkdir");
    fs::write(dir.path().join(".git/x.yaml"), service("x", 9)).expect("write");
    let reading = read_directory(dir.path()).expect("read");
    assert_eq!(reported(&reading.batch), ["default/a 1"]);
    assert!(reading.problems.is_empty() && reading.skipped.is_empty());
}

#[tokio::test]
async fn a_slowly_written_file_is_read_as_a_whole() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("web.yaml");
    fs::write(&path, service("a", 1) + &service("b", 1)).expect("write");
    let mut source = ManifestSource::open(dir.path()).expect("open");
    next(&mut source).await;

    // Between these writes the file is incomplete; no batch may report that.
    let mut file = fs::File::create(&path).expect("create");
    file.write_all(service("a", 2).as_bytes()).expect("write");
    let early = tokio::time::timeout(Duration::from_millis(40), source.next()).await;
    assert!(early.is_err(), "half a file was read: {early:?}");
    file.write_all(service("b", 2).as_bytes()).expect("write");
    drop(file);
    assert_eq!(next(&mut source).await, ["default/a 2", "default/b 2"]);
}

#[tokio::test]
async fn a_mounted_config_map_is_replaced_atomically() {
    let dir = TempDir::new().expect("a directory");
    let version = |name: &str, port: u32| {
        fs::create_dir_all(dir.path().join(name).join("nested")).expect("mkdir");
        fs::write(dir.path().join(name).join("web.yaml"), service("a", port)).expect("write");
        fs::write(dir.path().join(name).join("nested/b.yaml"), service("b", port)).expect("write");
        symlink(name, dir.path().join("..data_tmp")).expect("link");
        fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).expect("rename");
    };
    version("..2026_1", 1);
    symlink("..data/web.yaml", dir.path().join("web.yaml")).expect("link");
    symlink("..data/nested", dir.path().join("nested")).expect("link");
    let mut source = ManifestSource::open(dir.path()).expect("open");
    assert_eq!(next(&mut source).await, ["default/a 1", "default/b 1"]);
    for port in 2..5 {
        version(&format!("..2026_{port}"), port);
        fs::remove_dir_all(dir.path().join(format!("..2026_{}", port - 1))).expect("remove");
        assert_eq!(next(&mut source).await, [format!("default/a {port}"), format!("default/b {port}")]);
    }
    assert!(source.problems().is_empty(), "{:?}", source.problems());
}

#[tokio::test]
async fn links_are_followed_within_the_directory_alone() {
    let dir = TempDir::new().expect("a directory");
    let outside = TempDir::new().expect("a directory");
    let elsewhere = dir.path().join(".store");
    fs::create_dir(&elsewhere).expect("mkdir");
    let target = elsewhere.join("web.yaml");
    fs::write(&target, service("a", 1)).expect("write");
    symlink(&target, dir.path().join("web.yaml")).expect("link");
    let missing = elsewhere.join("later.yaml");
    symlink(&missing, dir.path().join("later.yaml")).expect("link");
    symlink(dir.path(), dir.path().join("circle")).expect("link");
    fs::write(outside.path().join("x.yaml"), service("x", 1)).expect("write");
    symlink(outside.path().join("x.yaml"), dir.path().join("out.yaml")).expect("link");
    let mut source = ManifestSource::open(dir.path()).expect("open");
    assert_eq!(next(&mut source).await, ["default/a 1"]);
    let problems: Vec<_> = source.problems().iter().map(ToString::to_string).collect();
    assert!(problems[0].starts_with("later.yaml: cannot be read: "), "{problems:?}");
    assert_eq!(problems[1], "out.yaml: is a link to a target outside the manifest directory, and is not followed");
    replace(&target, &service("a", 2));
    assert_eq!(next(&mut source).await, ["default/a 2"]);
    fs::write(&missing, service("b", 1)).expect("write");
    assert_eq!(next(&mut source).await, ["default/b 1"]);
}

#[tokio::test]
async fn a_removed_directory_is_watched_when_it_returns() {
    let above = TempDir::new().expect("a directory");
    let dir = above.path().join("manifests");
    fs::create_dir(&dir).expect("mkdir");
    fs::write(dir.join("web.yaml"), service("a", 1)).expect("write");
    let mut source = ManifestSource::open(&dir).expect("open");
    next(&mut source).await;
    for port in 2..5 {
        let away = above.path().join(format!("away{port}"));
        fs::rename(&dir, &away).expect("rename");
        // Nothing is reported while the file is away: its objects stay.
        let early = tokio::time::timeout(Duration::from_millis(150), source.next()).await;
        assert!(early.is_err(), "{early:?}");
        let fresh = above.path().join("fresh");
        fs::create_dir(&fresh).expect("mkdir");
        fs::write(fresh.join("web.yaml"), service("a", port)).expect("write");
        fs::rename(&fresh, &dir).expect("rename");
        assert_eq!(next(&mut source).await, [format!("default/a {port}")]);
        // The new directory is watched, too.
        replace(&dir.join("web.yaml"), &service("a", port + 10));
        assert_eq!(next(&mut source).await, [format!("default/a {}", port + 10)]);
    }
}

#[tokio::test]
async fn a_mistake_affects_no_other_object() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("web.yaml");
    fs::write(&path, service("a", 1) + &service("b", 1) + &service("\"x -j ACCEPT\"", 1)).expect("write");
    let mut source = ManifestSource::open(dir.path()).expect("open");
    assert_eq!(next(&mut source).await, ["default/a 1", "default/b 1"]);
    let problems = source.problems();
    assert_eq!((problems.len(), problems[0].document, problems[0].field.as_str()), (1, 3, "metadata.name"));

    replace(&path, &(service("a", 0) + &service("b", 2)));
    assert_eq!(next(&mut source).await, ["default/b 2"]);
    let problem = source.problems()[0].to_string();
    assert_eq!(
        problem,
        "web.yaml: document 1 (Service default/a): spec.ports[0].port: 0 is not a port (1-65535); kept as it was"
    );
    replace(&path, &(service("a", 3) + &service("b", 2)));
    assert_eq!(next(&mut source).await, ["default/a 3"]);
    assert!(source.problems().is_empty());
}

#[tokio::test]
async fn a_new_version_without_changes_is_a_batch() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("cluster.json");
    fs::write(&path, list(5, &[("a", 1)])).expect("write");
    let mut source = ManifestSource::open(dir.path()).expect("open");
    let first = batch(&mut source).await;
    assert_eq!((reported(&first).len(), first.resource_version.as_deref()), (1, Some("5")));
    replace(&path, &list(6, &[("a", 1)]));
    let second = batch(&mut source).await;
    assert_eq!((reported(&second).len(), second.resource_version.as_deref()), (0, Some("6")));
}

#[tokio::test]
async fn a_cancelled_wait_loses_nothing() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("web.yaml");
    fs::write(&path, service("a", 0)).expect("write");
    let mut source = ManifestSource::open(dir.path()).expect("open");
    assert!(next(&mut source).await.is_empty(), "a first batch comes even when there is no valid object");
    replace(&path, &service("a", 1));
    let mut seen = Vec::new();
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while seen.is_empty() && tokio::time::Instant::now() < deadline {
        if let Ok(batch) = tokio::time::timeout(Duration::from_micros(200), source.next()).await {
            seen = reported(&batch.expect("a working source").expect("a source that goes on"));
        }
    }
    assert_eq!(seen, ["default/a 1"]);
}

#[test]
fn an_unreadable_file_is_reported_with_the_reason() {
    let dir = TempDir::new().expect("a directory");
    let error = ManifestSource::open(&dir.path().join("none")).expect_err("no such directory");
    assert!(error.to_string().starts_with("cannot read "), "{error}");
    assert!(read_directory(&dir.path().join("none")).is_err());

    fs::write(dir.path().join("a.yaml"), b"\xff\xfe").expect("write");
    fs::create_dir(dir.path().join("dir.yaml")).expect("mkdir");
    nix::unistd::mkfifo(&dir.path().join("pipe.yaml"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let large = fs::File::create(dir.path().join("z.json")).expect("create");
    large.set_len((64 << 20) + 1).expect("a sparse file");
    let reading = read_directory(dir.path()).expect("read");
    let problems: Vec<_> = reading.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        ["a.yaml: is not UTF-8 text (byte 0)", "pipe.yaml: is not a regular file", "z.json: is larger than 64 MiB"]
    );
}
