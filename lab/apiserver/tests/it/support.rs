//! A served cluster, and clients of it.

use std::net::TcpListener;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig as ClientConfig};
use kube::{Client, Config};
use svclab_apiserver::objects::{Store, StoreOptions, parse_manifests};
use svclab_apiserver::{ApiServer, HistoryBounds, Kubeconfig, ServeOptions, SharedStore, Tls, Tokens, WatchTimes};
use svclab_spec::{ClusterSpec, Cni, NodeSpec};

/// Nothing here takes that long; a test that waits for longer has failed.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A server and what its clients need.
pub struct Served {
    pub server: ApiServer,
    pub tokens: Tokens,
    pub tls: Option<Tls>,
}

/// Two nodes, two pods, a service of each kind.
pub fn store() -> Store {
    let node = |name: &str, number: u8| NodeSpec {
        name: name.into(),
        zone: Some(format!("zone-{number}")),
        addresses: vec![format!("172.18.0.{number}").parse().unwrap()],
        extra_addresses: vec![],
        pod_cidrs: vec![format!("10.244.{number}.0/24").parse().unwrap()],
    };
    let spec = ClusterSpec {
        cni: Cni::Bridge,
        node_network: vec!["172.18.0.0/24".parse().unwrap()],
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        nodes: vec![node("node-a", 2), node("node-b", 3)],
        ..ClusterSpec::default()
    };
    let vip_ranges = vec!["203.0.113.0/24".parse().unwrap()];
    let mut store = Store::new(spec, StoreOptions { seed: 0, max_endpoints_per_slice: 100, vip_ranges });
    for document in parse_manifests(include_str!("../../src/testing.yaml")).unwrap() {
        store.apply(document.object).unwrap();
    }
    store
}

impl Served {
    /// Serves the objects on a loopback port.
    pub fn start(tls: bool) -> Self {
        Served::with(tls, HistoryBounds::default(), WatchTimes::default())
    }

    pub fn with(tls: bool, bounds: HistoryBounds, watches: WatchTimes) -> Self {
        let listeners = ["127.0.0.1:0", "127.0.0.2:0"].map(|address| TcpListener::bind(address).unwrap());
        let tls = tls.then(|| Tls::generate(&["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap());
        let tokens = Tokens::new(7, ["node-a".to_owned(), "node-b".to_owned()]);
        let options = ServeOptions { tokens: Some(tokens.clone()), tls: tls.clone(), watches, upstream: None };
        let server = ApiServer::start(SharedStore::with_bounds(store(), bounds), listeners, options).unwrap();
        Served { server, tokens, tls }
    }

    /// What node-a's client is told.
    pub fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig {
            server: self.server.url(self.server.addresses()[0]),
            client: "node-a".to_owned(),
            token: self.tokens.of("node-a").map(str::to_owned),
            ca_pem: self.tls.as_ref().map(|tls| tls.ca_pem().to_owned()),
        }
    }

    pub async fn client(&self) -> Client {
        client(&self.kubeconfig()).await
    }
}

/// A client as `kubeconfig` says.
pub async fn client(kubeconfig: &Kubeconfig) -> Client {
    let parsed = ClientConfig::from_yaml(&kubeconfig.text()).unwrap();
    let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.unwrap();
    // A refusal is to be seen at once, not after minutes of patience.
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Waits until `done` says so; fails with `what` at the deadline.
pub async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(DEADLINE, async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}: not within {DEADLINE:?}");
}
