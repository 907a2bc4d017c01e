use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event as NewEvent;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::{
    DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, VersionMatch, WatchEvent, WatchParams,
};
use kube::runtime::reflector;
use kube::{Api, Error};
use serde_json::json;
use svclab_apiserver::ServerFault;
use svclab_apiserver::objects::ObjectKey;

use super::support::{ServedCluster, client};

fn code<T>(result: Result<T, Error>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(Error::Api(status)) => status.code,
        Err(other) => panic!("{other}"),
    }
}

fn made<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn every_kind_is_listed_over_tls_and_plain_http() {
    for tls in [true, false] {
        let served = ServedCluster::start(tls);
        let client = served.client().await;
        let all = ListParams::default();
        assert_eq!(Api::<Service>::all(client.clone()).list(&all).await.unwrap().items.len(), 3);
        assert_eq!(Api::<EndpointSlice>::all(client.clone()).list(&all).await.unwrap().items.len(), 2);
        assert_eq!(Api::<Node>::all(client.clone()).list(&all).await.unwrap().items.len(), 2);
        assert_eq!(Api::<Pod>::default_namespaced(client.clone()).list(&all).await.unwrap().items.len(), 2);
        assert_eq!(Api::<Namespace>::all(client.clone()).list(&all).await.unwrap().items.len(), 4);
        assert_eq!(client.apiserver_version().await.unwrap().major, "1");
        assert_eq!(client.list_api_groups().await.unwrap().groups.len(), 5);
    }
}

#[tokio::test]
async fn a_wrong_token_gets_401_and_a_wrong_authority_is_not_trusted() {
    let served = ServedCluster::start(true);
    let mut wrong = served.kubeconfig();
    wrong.token = Some("wrong".to_owned());
    let api: Api<Service> = Api::all(client(&wrong).await);
    let Err(Error::Api(status)) = api.list(&ListParams::default()).await else { panic!("let in") };
    assert_eq!((status.code, status.reason.as_str()), (401, "Unauthorized"));
    let stranger = ServedCluster::start(true);
    let mut wrong = served.kubeconfig();
    wrong.ca_pem = stranger.kubeconfig().ca_pem;
    let api: Api<Service> = Api::all(client(&wrong).await);
    assert!(!matches!(api.list(&ListParams::default()).await, Ok(_) | Err(Error::Api(_))));
}

#[tokio::test]
async fn a_paged_list_keeps_its_version() {
    let served = ServedCluster::start(false);
    let api: Api<Service> = Api::all(served.client().await);
    let (mut names, mut token) = (Vec::new(), None);
    loop {
        let mut params = ListParams::default().limit(1);
        params.continue_token = token.take();
        let page = api.list(&params).await.unwrap();
        assert_eq!(page.items.len(), 1);
        names.extend(page.items.into_iter().filter_map(|service| service.metadata.name));
        served.server.store().write(|store| store.delete("service", &ObjectKey::new(None, "web")).ok());
        match page.metadata.continue_ {
            Some(next) if !next.is_empty() => token = Some(next),
            _ => break,
        }
    }
    assert_eq!(names, ["outside", "public", "web"], "all of one version");
    let exact = ListParams::default().at("1").matching(VersionMatch::Exact);
    assert_eq!(code(api.list(&exact).await), 410);
}

#[tokio::test]
async fn a_service_is_created_patched_replaced_and_deleted() {
    let served = ServedCluster::start(false);
    let api: Api<Service> = Api::default_namespaced(served.client().await);
    let service = json!({"metadata": {"name": "app"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    let created = api.create(&PostParams::default(), &made(service.clone())).await.unwrap();
    assert!(created.spec.clone().unwrap().cluster_ip.unwrap().starts_with("10.96."));
    assert_eq!(code(api.create(&PostParams::default(), &made(service)).await), 409);

    let params = PatchParams::default();
    let merge = Patch::Merge(json!({"metadata": {"labels": {"a": "1"}}}));
    assert_eq!(api.patch("app", &params, &merge).await.unwrap().metadata.labels.unwrap()["a"], "1");
    let strategic =
        Patch::Strategic(json!({"spec": {"ports": [{"port": 443, "name": "tls"}, {"port": 80, "name": "http"}]}}));
    let ports = api.patch("app", &params, &strategic).await.unwrap().spec.unwrap().ports.unwrap();
    assert_eq!(ports.iter().map(|port| port.port).collect::<Vec<_>>(), [80, 443]);
    let operations = json!([{"op": "replace", "path": "/spec/type", "value": "LoadBalancer"}]);
    let balanced = api.patch("app", &params, &Patch::<()>::Json(made(operations))).await.unwrap();
    let status = balanced.status.unwrap().load_balancer.unwrap().ingress.unwrap();
    assert_eq!((status[0].ip.as_deref(), status[0].ip_mode.as_deref()), (Some("203.0.113.2"), Some("VIP")));
    assert!(balanced.spec.unwrap().ports.unwrap().iter().all(|port| port.node_port.is_some()));
    let back = api.patch("app", &params, &Patch::Merge(json!({"spec": {"type": "ClusterIP"}}))).await.unwrap();
    assert_eq!(back.spec.clone().unwrap().ports.unwrap()[0].node_port, None);
    assert_eq!(code(api.patch("app", &params, &Patch::Merge(json!({"spec": {"ports": [{"port": 0}]}}))).await), 422);
    let apply = Patch::Apply(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "app"}}));
    assert_eq!(code(api.patch("app", &PatchParams::apply("me"), &apply).await), 415);

    assert_eq!(code(api.replace("app", &PostParams::default(), &created).await), 409, "an old version");
    let mut newer = back.clone();
    newer.metadata.labels = None;
    let newer = api.replace("app", &PostParams::default(), &newer).await.unwrap();
    assert_eq!(newer.metadata.labels, None);
    let status = json!({"status": {"conditions": [
        {"type": "Seen", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let seen = api.patch_status("app", &params, &Patch::Merge(status)).await.unwrap();
    assert_eq!(seen.status.unwrap().conditions.unwrap()[0].type_, "Seen");

    api.delete("app", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(api.get("app").await), 404);
    api.delete_collection(&DeleteParams::default(), &ListParams::default().labels("tier=front")).await.unwrap();
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn an_unready_pod_changes_its_slice() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let slices: Api<EndpointSlice> = Api::default_namespaced(client);
    let version = slices.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let unready = Patch::Strategic(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}));
    pods.patch_status("a", &PatchParams::default(), &unready).await.unwrap();
    let params = WatchParams::default().labels("kubernetes.io/service-name=web").timeout(10);
    let events = slices.watch(&params, &version).await.unwrap();
    tokio::pin!(events);
    let Some(Ok(WatchEvent::Modified(slice))) = events.next().await else { panic!("no change seen") };
    let ready = |name: &str| {
        let mut found = slice.endpoints.iter().flatten();
        let found = found.find(|endpoint| endpoint.target_ref.as_ref().unwrap().name.as_deref() == Some(name));
        found.unwrap().conditions.clone().unwrap().ready
    };
    assert_eq!((ready("a"), ready("b")), (Some(false), Some(true)));
    assert_eq!(slice.metadata.generation, Some(2));
}

#[tokio::test]
async fn the_controller_restores_its_slices() {
    let served = ServedCluster::start(false);
    let slices: Api<EndpointSlice> = Api::default_namespaced(served.client().await);
    let before = slices.get("web-ipv4-0").await.unwrap();
    slices.patch("web-ipv4-0", &PatchParams::default(), &Patch::Merge(json!({"endpoints": []}))).await.unwrap();
    assert_eq!(slices.get("web-ipv4-0").await.unwrap().endpoints, before.endpoints);
    slices.delete("web-ipv4-0", &DeleteParams::default()).await.unwrap();
    let fresh = slices.get("web-ipv4-0").await.unwrap();
    assert_eq!(fresh.endpoints, before.endpoints);
    assert_ne!(fresh.metadata.uid, before.metadata.uid);
    let own: EndpointSlice = made(json!({
        "metadata": {"name": "mine", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.9"]}],
    }));
    slices.create(&PostParams::default(), &own).await.unwrap();
    assert_eq!(slices.get("mine").await.unwrap().endpoints, own.endpoints);
}

#[tokio::test]
async fn events_leases_and_service_cidrs_are_stored() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let new: Api<NewEvent> = Api::default_namespaced(client.clone());
    let event = NewEvent {
        metadata: ObjectMeta { generate_name: Some("broken.".to_owned()), ..ObjectMeta::default() },
        note: Some("it broke".to_owned()),
        reason: Some("Broken".to_owned()),
        type_: Some("Warning".to_owned()),
        regarding: Some(made(json!({"kind": "Node", "name": "node-a"}))),
        ..NewEvent::default()
    };
    let created = new.create(&PostParams::default(), &event).await.unwrap();
    let name = created.metadata.name.unwrap();
    let old: Api<Event> = Api::default_namespaced(client.clone());
    assert_eq!(old.get(&name).await.unwrap().message.as_deref(), Some("it broke"));
    let about = ListParams::default().fields("involvedObject.name=node-a");
    assert_eq!(old.list(&about).await.unwrap().items.len(), 1);
    let patched = new.patch(&name, &PatchParams::default(), &Patch::Merge(json!({"note": "still"}))).await.unwrap();
    assert_eq!(patched.note.as_deref(), Some("still"));
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let lease = json!({"metadata": {"name": "node-a"}, "spec": {"holderIdentity": "node-a"}});
    leases.create(&PostParams::default(), &made(lease)).await.unwrap();
    assert_eq!(leases.list(&ListParams::default()).await.unwrap().items.len(), 1);
    // kube-proxy watches ServiceCIDRs since 1.33 and logs errors if the API lacks them.
    let spaces: Api<Namespace> = Api::all(client.clone());
    let ranges: Api<ServiceCIDR> = Api::all(client);
    let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/16"]}});
    ranges.create(&PostParams::default(), &made(range)).await.unwrap();
    let found = ranges.get("more").await.unwrap();
    assert_eq!(found.spec.and_then(|spec| spec.cidrs), Some(vec!["10.97.0.0/16".to_owned()]));
    assert_eq!(found.metadata.namespace, None);
    // Every API server publishes its own range under this name.
    let own = ranges.get("kubernetes").await.unwrap();
    assert_eq!(own.spec.and_then(|spec| spec.cidrs), Some(vec!["10.96.0.0/16".to_owned()]));
    let ready = own.status.and_then(|status| status.conditions).unwrap_or_default();
    assert!(ready.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"), "{ready:?}");
    ranges.delete("more", &DeleteParams::default()).await.unwrap();
    assert_eq!(ranges.list(&ListParams::default()).await.unwrap().items.len(), 1);
    let namespaces = spaces.list(&ListParams::default()).await.unwrap().items;
    assert!(namespaces.iter().all(|namespace| namespace.metadata.name.as_deref() != Some("")), "{namespaces:?}");
}

#[tokio::test]
async fn a_node_accepts_labels_and_keeps_its_pod_ranges() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let nodes: Api<Node> = Api::all(client.clone());
    let params = PatchParams::default();
    let moved = Patch::Merge(json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "elsewhere"}}}));
    nodes.patch("node-a", &params, &moved).await.unwrap();
    let slice = Api::<EndpointSlice>::default_namespaced(client).get("web-ipv4-0").await.unwrap();
    assert_eq!(slice.endpoints.unwrap()[0].zone.as_deref(), Some("z1"), "a Node's change syncs no Service");
    assert_eq!(
        code(nodes.patch("node-a", &params, &Patch::Merge(json!({"spec": {"podCIDRs": ["10.0.0.0/24"]}}))).await),
        422
    );
    let tainted = Patch::Merge(json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}));
    assert_eq!(nodes.patch("node-a", &params, &tainted).await.unwrap().spec.unwrap().taints.unwrap().len(), 1);
    nodes.delete("node-a", &DeleteParams::default()).await.unwrap();
    let name = json!({"metadata": {"name": "node-x"}});
    assert_eq!(code(nodes.create(&PostParams::default(), &made(name)).await), 422, "the lab has no such machine");
}

#[tokio::test]
async fn a_streaming_list_ends_with_a_bookmark() {
    let served = ServedCluster::start(false);
    let api: Api<Service> = Api::all(served.client().await);
    let params = WatchParams::default().initial_events().timeout(1);
    let events: Vec<_> = api.watch(&params, "0").await.unwrap().try_collect().await.unwrap();
    let added = events.iter().filter(|event| matches!(event, WatchEvent::Added(_))).count();
    assert_eq!(added, 3);
    let Some(WatchEvent::Bookmark(bookmark)) = events.get(3) else { panic!("{:?}", events.get(3)) };
    assert_eq!(bookmark.metadata.annotations["k8s.io/initial-events-end"], "true");
    assert_eq!(bookmark.metadata.resource_version, served.server.resource_version().to_string());
}

#[tokio::test]
async fn an_expired_version_is_an_event_of_the_watch() {
    let served = ServedCluster::start(false);
    let api: Api<Service> = Api::all(served.client().await);
    let version = served.server.resource_version();
    served.server.store().write(|store| store.delete("service", &ObjectKey::new(None, "web"))).unwrap();
    served.server.misbehave(ServerFault::Compact);
    let events = api.watch(&WatchParams::default(), &version.to_string()).await.unwrap();
    let events: Vec<_> = events.try_collect().await.unwrap();
    let [WatchEvent::Error(status)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
}

#[tokio::test]
async fn a_reflector_gets_every_object() {
    let served = ServedCluster::start(false);
    let api: Api<EndpointSlice> = Api::all(served.client().await);
    let (reader, writer) = reflector::store();
    let stream = reflector(writer, kube::runtime::watcher(api, kube::runtime::watcher::Config::default()));
    let task = tokio::spawn(stream.for_each(|_| async {}));
    reader.wait_until_ready().await.unwrap();
    assert_eq!(reader.len(), 2);
    task.abort();
}
