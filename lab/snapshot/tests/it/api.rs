use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use svclab_apiserver::objects::{Store, StoreOptions, parse_manifests};
use svclab_apiserver::{ApiServer, Kubeconfig, ServeOptions, ServerFault, ServerRefusal, SharedStore, Tls, Tokens};
use svclab_snapshot::collect::{CollectOptions, NodeMark, NodeWatch, collect};
use svclab_snapshot::{Objects, Snapshot};
use svclab_spec::{ClusterSpec, NodeSpec};
use tempfile::TempDir;

const SERVICES: usize = 1_100;

struct Served {
    store: SharedStore,
    server: ApiServer,
    kubeconfig: Kubeconfig,
    directory: TempDir,
}

impl Served {
    fn start() -> Served {
        let tls = Tls::generate(&["127.0.0.1".to_owned()]).unwrap();
        let tokens = Tokens::new(7, ["node-1".to_owned()]);
        let options = ServeOptions { tokens: Some(tokens.clone()), tls: Some(tls.clone()), ..ServeOptions::default() };
        let store = SharedStore::new(store());
        let server = ApiServer::start(store.clone(), [TcpListener::bind("127.0.0.1:0").unwrap()], options);
        let server = server.unwrap();
        let kubeconfig = Kubeconfig {
            server: server.url(server.addresses()[0]),
            client: "node-1".to_owned(),
            token: tokens.of("node-1").map(str::to_owned),
            ca_pem: Some(tls.ca_pem().to_owned()),
        };
        Served { store, server, kubeconfig, directory: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    async fn collect(&self) -> Snapshot {
        collect(&self.options()).await
    }

    fn options(&self) -> CollectOptions {
        let proxy = "kind: KubeProxyConfiguration\nclientConnection: {kubeconfig: /nowhere}\nmode: ipvs\n";
        CollectOptions {
            kubeconfig: Some(self.file("kubeconfig", &self.kubeconfig.text())),
            proxy_config: Some(self.file("config.yaml", proxy)),
            node_name: Some("node-1".to_owned()),
            deadline: Duration::from_secs(30),
            ..CollectOptions::default()
        }
    }
}

fn store() -> Store {
    let node = NodeSpec {
        name: "node-1".to_owned(),
        zone: Some("east".to_owned()),
        addresses: vec!["172.18.0.1".parse().unwrap()],
        extra_addresses: vec![],
        pod_cidrs: vec!["10.244.1.0/24".parse().unwrap()],
    };
    let spec = ClusterSpec {
        node_network: vec!["172.18.0.0/24".parse().unwrap()],
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        nodes: vec![node],
        ..ClusterSpec::default()
    };
    let mut store = Store::new(spec, StoreOptions { seed: 0, max_endpoints_per_slice: 100, vip_ranges: vec![] });
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {app: a}}, \
               spec: {nodeName: node-1, containers: [{name: c}]}}\n";
    let service = |number: usize| {
        format!(
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: s{number}, annotations: {{private: secret}}}}, \
             spec: {{selector: {{app: a}}, ports: [{{port: 80}}]}}}}\n"
        )
    };
    let manifests: String = std::iter::once(pod.to_owned()).chain((0..SERVICES).map(service)).collect();
    for document in parse_manifests(&manifests).unwrap() {
        store.apply(document.object).unwrap();
    }
    store
}

fn named(objects: &Objects) -> usize {
    objects.services.iter().filter(|service| service.metadata.name.as_ref().unwrap().starts_with('s')).count()
}

fn why(snapshot: &Snapshot, what: &str) -> String {
    snapshot.unread.iter().find(|unread| unread.what == what).unwrap().why.clone()
}

pub async fn every_page_of_every_kind_is_kept_without_what_is_private() {
    let served = Served::start();
    let snapshot = served.collect().await;
    let objects = snapshot.objects.as_ref().unwrap();
    assert_eq!((named(objects), objects.slices.len(), objects.nodes.len()), (SERVICES, SERVICES, 1));
    assert_eq!(snapshot.node_name.as_deref(), Some("node-1"));
    let config = snapshot.proxy_config.as_ref().unwrap();
    assert!(config.contains("mode: ipvs") && !config.contains("nowhere"), "{config}");
    let mut bytes = Vec::new();
    snapshot.write(&mut bytes).unwrap();
    assert_eq!(Snapshot::read(&bytes[..]).unwrap(), snapshot);
    let text = String::from_utf8_lossy(&bytes);
    for private in ["managedFields", "secret", served.kubeconfig.token.as_ref().unwrap()] {
        assert!(!text.contains(private), "{private}");
    }
    assert!(text.contains("10.244.1.0/24") && text.contains("Kubernetes API, --kubeconfig"));
}

async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition().await {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns a mark that two readings share. The machine's own addresses and neighbours change now and then: IPv6 addresses
/// appear seconds after an interface is up, for example.
pub async fn settled(watch: &NodeWatch) -> NodeMark {
    let mut mark = watch.mark().await;
    eventually("two marks are equal", async || std::mem::replace(&mut mark, watch.mark().await) == mark).await;
    mark
}

pub async fn a_watch_has_what_a_list_has_and_receives_changes() {
    let served = Served::start();
    let watch = NodeWatch::start(served.options());
    assert!(watch.ready().is_err());
    eventually("the objects are listed", async || watch.ready().is_ok()).await;
    eventually("all kinds", async || {
        watch
            .collect()
            .await
            .objects
            .is_some_and(|objects| objects.nodes.len() == 1 && !objects.service_cidrs.is_empty())
    })
    .await;
    let (before, watched, listed) = (settled(&watch).await, watch.collect().await, served.collect().await);
    let names = |snapshot: &Snapshot| {
        let objects = snapshot.objects.as_ref().unwrap();
        let slices = objects.slices.iter().map(|slice| slice.metadata.name.clone());
        (named(objects), slices.collect::<std::collections::BTreeSet<_>>(), objects.service_cidrs.len())
    };
    assert_eq!(names(&watched), names(&listed));
    assert_eq!((&watched.node_name, &watched.proxy_config), (&listed.node_name, &listed.proxy_config));

    let gone = "{apiVersion: v1, kind: Service, metadata: {name: s7}, spec: {selector: {app: b}, ports: [{port: 81}]}}";
    served.store.write(|store| store.apply(parse_manifests(gone).unwrap().remove(0).object)).unwrap();
    eventually("the change arrives", async || !watch.changes_within(Duration::from_secs(60)).services.is_empty()).await;
    assert_ne!(watch.mark().await, before);
    let changes = watch.changes_within(Duration::from_secs(60));
    assert_eq!(changes.services.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["s7"]);
    assert!(changes.released.iter().any(|frontend| frontend.ends_with(":80")), "{changes:?}");
    assert_eq!(watch.changes_within(Duration::ZERO).services.len(), 0);

    let mut again = watch.collect().await;
    watch.list_again(&mut again).await.unwrap();
    assert_eq!(named(again.objects.as_ref().unwrap()), SERVICES);
    served.server.misbehave(ServerFault::Refuse(ServerRefusal::Unavailable));
    assert!(watch.list_again(&mut again).await.unwrap_err().why.contains("503"));
}

pub async fn a_watch_reports_why_it_has_no_objects() {
    let mut served = Served::start();
    served.kubeconfig.token = Some("wrong".to_owned());
    let watch = NodeWatch::start(served.options());
    eventually("the refusal is reported", async || watch.ready().is_err_and(|unread| unread.why.contains("401"))).await;
    let snapshot = watch.collect().await;
    assert!(snapshot.objects.is_none() && why(&snapshot, "objects").contains("401"));
}

pub async fn a_list_that_expires_is_begun_again() {
    let served = Served::start();
    served.server.misbehave(ServerFault::Expire { requests: 1 });
    let snapshot = served.collect().await;
    assert_eq!(named(snapshot.objects.as_ref().unwrap()), SERVICES);
}

pub async fn an_api_that_refuses_costs_the_objects_alone() {
    let mut served = Served::start();
    served.server.misbehave(ServerFault::Refuse(ServerRefusal::Unavailable));
    let start = Instant::now();
    let snapshot = served.collect().await;
    assert!(snapshot.objects.is_none() && snapshot.proxy_config.is_some() && snapshot.network.is_some());
    assert!(why(&snapshot, "objects").contains("503"), "{}", why(&snapshot, "objects"));
    assert!(start.elapsed() < Duration::from_secs(20));
    let mut bytes = Vec::new();
    snapshot.write(&mut bytes).unwrap();
    assert_eq!(Snapshot::read(&bytes[..]).unwrap(), snapshot);

    served.server.misbehave(ServerFault::Accept);
    served.kubeconfig.token = Some("wrong".to_owned());
    let unread = why(&served.collect().await, "objects");
    assert!(unread.contains("401") && !unread.contains("wrong"), "{unread}");
    served.kubeconfig.ca_pem = None;
    let unread = why(&served.collect().await, "objects");
    assert!(unread.to_lowercase().contains("certificate"), "{unread}");
}
