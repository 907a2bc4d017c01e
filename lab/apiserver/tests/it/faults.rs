use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{self, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::{Value, json};
use svclab_apiserver::objects::{Object, ObjectKey, ObjectKind};
use svclab_apiserver::{HistoryBounds, Kubeconfig, ServerFault, ServerRefusal, SharedStore, WatchTimes};
use tokio::task::JoinHandle;

use super::raw::get;
use super::support::{DEADLINE, ServedCluster, client, until};

pub(super) struct RunningReflector<K: kube::core::Resource<DynamicType = ()> + Clone + 'static> {
    pub(super) store: Store<K>,
    task: JoinHandle<()>,
}

impl<K: kube::core::Resource<DynamicType = ()> + Clone> Drop for RunningReflector<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct ConstantBackoff;

impl Iterator for ConstantBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(20))
    }
}

impl Backoff for ConstantBackoff {
    fn reset(&mut self) {}
}

pub(super) fn follow<K>(client: Client, config: watcher::Config) -> RunningReflector<K>
where
    K: kube::core::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync,
{
    let (store, writer) = reflector::store();
    let stream =
        kube::runtime::reflector(writer, kube::runtime::watcher(Api::all(client), config)).backoff(ConstantBackoff);
    RunningReflector { store, task: tokio::spawn(stream.for_each(|_| async {})) }
}

pub(super) fn mark(shared: &SharedStore, number: u32) {
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]});
    let service = json!({"metadata": {"name": "web", "labels": {"mark": number.to_string()}}, "spec": spec});
    let (object, _) = Object::from_value(ObjectKind::Service, &service).unwrap();
    shared.write(|store| store.apply(object)).unwrap();
}

pub(super) async fn sees(follower: &RunningReflector<Service>, number: u32, what: &str) {
    let wanted = number.to_string();
    until(what, || {
        let state = follower.store.state();
        let web = state.iter().find(|service| service.metadata.name.as_deref() == Some("web"));
        web.is_some_and(|web| web.metadata.labels.as_ref().is_some_and(|labels| labels.get("mark") == Some(&wanted)))
    })
    .await;
}

#[tokio::test]
async fn a_watcher_converges_after_each_fault() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let served = ServedCluster::start(false);
        let (server, shared) = (&served.server, served.server.store().clone());
        let follower = follow::<Service>(served.client().await, config);
        mark(&shared, 0);
        sees(&follower, 0, "first").await;
        let faults: [(&str, &[ServerFault], &[ServerFault]); 9] = [
            ("closed", &[ServerFault::CloseWatches { abrupt: false }], &[]),
            ("broken off", &[ServerFault::CloseWatches { abrupt: true }], &[]),
            ("compacted", &[ServerFault::Compact, ServerFault::CloseWatches { abrupt: false }], &[]),
            ("expired", &[ServerFault::Expire { requests: 2 }, ServerFault::CloseWatches { abrupt: false }], &[]),
            ("reset", &[ServerFault::Refuse(ServerRefusal::Reset)], &[ServerFault::Accept]),
            (
                "unavailable",
                &[ServerFault::Refuse(ServerRefusal::Unavailable), ServerFault::CloseWatches { abrupt: true }],
                &[ServerFault::Accept],
            ),
            ("stalled", &[ServerFault::Stall], &[ServerFault::Resume]),
            ("repeated", &[ServerFault::Repeat(ObjectKind::Service)], &[]),
            ("bookmarked", &[ServerFault::BookmarkAhead { kind: ObjectKind::Service, by: 100_000 }], &[]),
        ];
        for (number, (name, begin, end)) in (1..).zip(faults) {
            begin.iter().for_each(|fault| server.misbehave(*fault));
            mark(&shared, number);
            end.iter().for_each(|fault| server.misbehave(*fault));
            sees(&follower, number, name).await;
        }
    }
}

#[tokio::test]
async fn a_refusal_lasts_until_accept() {
    let served = ServedCluster::start(false);
    let api: Api<Service> = Api::all(served.client().await);
    served.server.misbehave(ServerFault::Refuse(ServerRefusal::Unavailable));
    let Err(kube::Error::Api(status)) = api.get_opt("web").await else { panic!("served") };
    assert_eq!((status.code, status.reason.as_str()), (503, "ServiceUnavailable"));
    served.server.misbehave(ServerFault::Refuse(ServerRefusal::Reset));
    assert!(!matches!(api.get_opt("web").await, Ok(_) | Err(kube::Error::Api(_))));
    served.server.misbehave(ServerFault::Accept);
    let api: Api<Service> = Api::default_namespaced(served.client().await);
    assert!(api.get_opt("web").await.unwrap().is_some());
}

#[tokio::test]
async fn held_services_arrive_after_their_slices() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let services = follow::<Service>(client.clone(), watcher::Config::default());
    let slices = follow::<EndpointSlice>(client, watcher::Config::default());
    services.store.wait_until_ready().await.unwrap();
    slices.store.wait_until_ready().await.unwrap();
    served.server.misbehave(ServerFault::Hold(ObjectKind::Service));
    let service = json!({"metadata": {"name": "late"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    let (object, _) = Object::from_value(ObjectKind::Service, &service).unwrap();
    served.server.store().write(|store| store.apply(object)).unwrap();
    let has = |slices: &RunningReflector<EndpointSlice>| {
        slices.store.state().iter().any(|slice| slice.metadata.name.as_deref() == Some("late-ipv4-0"))
    };
    let knows = |services: &RunningReflector<Service>| {
        services.store.state().iter().any(|service| service.metadata.name.as_deref() == Some("late"))
    };
    until("the slice", || has(&slices)).await;
    assert!(!knows(&services));
    served.server.misbehave(ServerFault::Release(ObjectKind::Service));
    until("the service", || knows(&services)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_converge_after_random_changes_and_faults() {
    let times = WatchTimes { longest: Duration::from_millis(300), bookmark_every: Duration::from_millis(20) };
    let served = ServedCluster::with(false, HistoryBounds { events: 16, bytes: 1 << 20 }, times);
    let shared = served.server.store().clone();
    let client = served.client().await;
    let followers = [
        follow::<EndpointSlice>(client.clone(), watcher::Config::default().page_size(1)),
        follow::<EndpointSlice>(client, watcher::Config::default().streaming_lists()),
    ];
    let mut seed = 0x9e37_79b9_u32;
    let mut draw = |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) % below
    };
    for _ in 0..400 {
        let (key, pod) = (ObjectKey::new(None, &format!("s{}", draw(6))), ["a", "b"][draw(2) as usize]);
        match draw(10) {
            0..=3 => {
                let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80 + draw(9)}]});
                let value = json!({"metadata": {"name": key.name}, "spec": spec});
                let (object, _) = Object::from_value(ObjectKind::Service, &value).unwrap();
                shared.write(|store| store.apply(object)).unwrap();
            }
            4 => drop(shared.write(|store| store.delete("service", &key))),
            5..=7 => shared.write(|store| store.set_ready(&ObjectKey::new(None, pod), draw(2) == 0)).unwrap(),
            8 => served.server.misbehave(ServerFault::CloseWatches { abrupt: draw(2) == 0 }),
            _ => served.server.misbehave(ServerFault::Compact),
        }
        if draw(4) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let wanted: Vec<(String, String)> = shared.read(|store| {
        let records = store.records(ObjectKind::EndpointSlice);
        records.map(|record| (record.key.name.clone(), record.version.to_string())).collect()
    });
    assert!(wanted.len() > 2, "{wanted:?}");
    for follower in &followers {
        until("convergence", || {
            let mut seen: Vec<(String, String)> = follower
                .store
                .state()
                .iter()
                .map(|slice| {
                    let metadata = slice.metadata.clone();
                    (metadata.name.unwrap(), metadata.resource_version.unwrap())
                })
                .collect();
            seen.sort();
            seen == wanted
        })
        .await;
    }
}

#[tokio::test]
async fn a_server_without_watch_list_refuses_initial_events_only() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let watch = "/api/v1/services?watch=1&timeoutSeconds=1&allowWatchBookmarks=true";
    let initial = format!("{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    served.server.misbehave(ServerFault::DisableWatchList);
    let (code, status) = get(&client, &initial, "*/*").await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "{status}");
    assert_eq!(status["details"]["causes"][0]["field"], "sendInitialEvents");
    let ends = |events: &Value| events.to_string().contains("k8s.io/initial-events-end");
    let (code, events) = get(&client, watch, "*/*").await;
    assert!(code == 200 && !ends(&events), "{events}");
    served.server.misbehave(ServerFault::EnableWatchList);
    let (code, events) = get(&client, &initial, "*/*").await;
    assert!(code == 200 && ends(&events), "{events}");
    let (_, events) = get(&client, watch, "*/*").await;
    assert!(ends(&events), "initial events are the default");
}

#[tokio::test]
async fn a_cut_off_client_catches_up_later() {
    let served = ServedCluster::start(false);
    let (server, shared) = (&served.server, served.server.store().clone());
    let here = follow::<Service>(served.client().await, watcher::Config::default());
    let other = Kubeconfig { server: server.url(server.addresses()[1]), ..served.kubeconfig() };
    let elsewhere = follow::<Service>(client(&other).await, watcher::Config::default());
    mark(&shared, 1);
    sees(&here, 1, "before").await;
    server.cut_off(0, true);
    let api: Api<Service> = Api::all(served.client().await);
    let asked = tokio::spawn(async move { api.get_opt("web").await.map(|_| ()) });
    mark(&shared, 2);
    sees(&elsewhere, 2, "the other listener's clients go on").await;
    let kept = here.store.state();
    let web = kept.iter().find(|service| service.metadata.name.as_deref() == Some("web")).unwrap();
    assert_eq!(web.metadata.labels.as_ref().unwrap()["mark"], "1");
    assert!(!asked.is_finished(), "a new connection is neither served nor refused");
    server.cut_off(0, false);
    sees(&here, 2, "what was missed").await;
    tokio::time::timeout(DEADLINE, asked).await.unwrap().unwrap().unwrap();
}
