//! Servers that answer in protobuf, and pack lists.

use serde_json::json;
use svcproxy::source::{AcceptedTypes, KubernetesSource, ReflectorTiming, SourceReports};

use super::api::{NODES, SERVICES, SLICES, ScriptedApi};
use super::support::{CapturedLog, access, next, next_reported, node, reported, service, slice, timing, until};

async fn api() -> ScriptedApi {
    let api = ScriptedApi::start(None).await;
    api.put(SERVICES, service("a", 80));
    api.put(SERVICES, service("b", 81));
    api.put(SERVICES, service("c", 82));
    api.put(SLICES, slice("web-1", "10.0.0.1"));
    api.put(NODES, node("n1"));
    api.world.lock().unwrap().protobuf = true;
    api
}

const FIRST: [&str; 5] = ["default/a 80", "default/b 81", "default/c 82", "default/web-1 10.0.0.1", "node n1"];

#[tokio::test]
async fn protobuf_is_preferred_and_its_lists_are_whole() {
    let api = api().await;
    api.world.lock().unwrap().gzip = true;
    let timing = ReflectorTiming { page: None, ..timing() };
    let mut source = KubernetesSource::start(access(&api), "n1", &timing, &SourceReports::default());
    assert_eq!(reported(&next(&mut source).await), FIRST);
    let (lists, query) = api.asked("list", SERVICES);
    assert_eq!((lists, query.contains("limit"), query.ends_with("resourceVersion=0")), (1, false, true), "{query}");
    assert_eq!(api.world.lock().unwrap().accept, "application/vnd.kubernetes.protobuf,application/json");
    let client = api.world.lock().unwrap().client.clone();
    assert!(client.starts_with("svcproxy/v"), "the server's audit log names the client: {client:?}");
    until("all watches", || [SERVICES, SLICES].iter().all(|path| api.asked("watch", path).0 > 0)).await;
    api.put(SERVICES, service("a", 8080));
    assert_eq!(next_reported(&mut source).await, ["default/a 8080"]);
    api.put(SERVICES, service("bad", 70_000));
    api.delete(SERVICES, "b");
    assert_eq!(next_reported(&mut source).await, ["default/b gone"]);
    let version = api.bookmark(SERVICES);
    assert_eq!(next(&mut source).await.resource_versions.services, Some(version.to_string()));
    let gone =
        json!({"type": "ERROR", "object": {"apiVersion": "v1", "kind": "Status", "code": 410, "reason": "Expired"}});
    api.line(SERVICES, &gone.to_string());
    until("a new list", || api.asked("list", SERVICES).0 > 1).await;
    // The same server in another encoding.
    api.world.lock().unwrap().protobuf = false;
    api.bookmark(NODES);
    api.compact();
    api.close_watches();
    until("a new list", || api.asked("list", SERVICES).0 > 2).await;
    api.put(SERVICES, service("c", 90));
    assert_eq!(next_reported(&mut source).await, ["default/c 90"], "a new encoding changes no object");
}

#[tokio::test]
async fn pages_of_protobuf_are_one_list() {
    let api = api().await;
    let mut source = KubernetesSource::start(access(&api), "n1", &timing(), &SourceReports::default());
    assert_eq!(reported(&next(&mut source).await), FIRST);
    assert_eq!(api.asked("list", SERVICES).0, 2);
}

#[tokio::test]
async fn a_configuration_of_json_is_obeyed() {
    let api = api().await;
    let connector = access(&api).accepting(AcceptedTypes::new("", "application/json"));
    let timing = ReflectorTiming { page: None, ..timing() };
    let mut source = KubernetesSource::start(connector, "n1", &timing, &SourceReports::default());
    assert_eq!(reported(&next(&mut source).await), FIRST);
    assert_eq!(api.world.lock().unwrap().accept, "application/json");
    assert!(api.asked("list", SERVICES).1.contains("limit=500"));
}

#[tokio::test]
async fn a_list_is_as_new_as_the_last_one_unless_versions_start_anew() {
    let api = api().await;
    let timing = ReflectorTiming { page: None, ..timing() };
    let mut source = KubernetesSource::start(access(&api), "n1", &timing, &SourceReports::default());
    next(&mut source).await;
    until("a watch", || api.asked("watch", SERVICES).0 > 0).await;
    api.bookmark(NODES);
    api.compact();
    api.close_watches();
    until("a new list", || api.asked("list", SERVICES).0 > 1).await;
    assert!(api.asked("list", SERVICES).1.contains("resourceVersion=15"), "{:?}", api.asked("list", SERVICES));
    until("a watch", || api.asked("watch", SERVICES).1.contains("resourceVersion=16")).await;
    api.restore();
    api.put(SERVICES, service("a", 90));
    assert_eq!(next_reported(&mut source).await, ["default/a 90"]);
    assert!(!api.asked("list", SERVICES).1.contains("resourceVersion"), "{:?}", api.asked("list", SERVICES));
}

#[tokio::test]
async fn a_list_that_breaks_off_removes_nothing() {
    let (log, _guard) = CapturedLog::start();
    let api = api().await;
    let mut source = KubernetesSource::start(access(&api), "n1", &timing(), &SourceReports::default());
    next(&mut source).await;
    api.world.lock().unwrap().cut = Some(70);
    api.put(SERVICES, service("a", 90));
    api.compact();
    api.close_watches();
    until("the complaint", || log.lines().iter().any(|line| line.contains("it ends too early"))).await;
    api.world.lock().unwrap().cut = None;
    assert_eq!(next_reported(&mut source).await, ["default/a 90"]);
}

#[tokio::test]
async fn a_packed_bomb_is_too_large() {
    let (log, _guard) = CapturedLog::start();
    let api = api().await;
    // Smaller pages are not tried.
    let timing = ReflectorTiming { page: Some(1), ..timing() };
    let mut source = KubernetesSource::start(access(&api), "n1", &timing, &SourceReports::default());
    next(&mut source).await;
    {
        let mut world = api.world.lock().unwrap();
        (world.gzip, world.zeros) = (true, 80 << 20);
    }
    api.put(SERVICES, service("a", 90));
    api.compact();
    api.close_watches();
    let said = "an answer of more than 67108864 bytes";
    until("the complaint", || log.lines().iter().any(|line| line.contains(said))).await;
    api.world.lock().unwrap().zeros = 0;
    assert_eq!(next_reported(&mut source).await, ["default/a 90"]);
}
