use std::net::TcpListener;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig as ClientConfig};
use kube::{Client, Config};
use svclab_apiserver::testing::filled_store;
use svclab_apiserver::{ApiServer, HistoryBounds, Kubeconfig, ServeOptions, SharedStore, Tls, Tokens, WatchTimes};

/// A test that waits longer than this fails.
pub const DEADLINE: Duration = Duration::from_secs(30);

pub struct ServedCluster {
    pub server: ApiServer,
    pub tokens: Tokens,
    pub tls: Option<Tls>,
}

impl ServedCluster {
    pub fn start(tls: bool) -> Self {
        ServedCluster::with(tls, HistoryBounds::default(), WatchTimes::default())
    }

    pub fn with(tls: bool, bounds: HistoryBounds, watches: WatchTimes) -> Self {
        let listeners = ["127.0.0.1:0", "127.0.0.2:0"].map(|address| TcpListener::bind(address).unwrap());
        let tls = tls.then(|| Tls::generate(&["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap());
        let tokens = Tokens::new(7, ["node-a".to_owned(), "node-b".to_owned()]);
        let options = ServeOptions { tokens: Some(tokens.clone()), tls: tls.clone(), watches, upstream: None };
        let server = ApiServer::start(SharedStore::with_bounds(filled_store(), bounds), listeners, options).unwrap();
        ServedCluster { server, tokens, tls }
    }

    /// The kubeconfig of node-a's client.
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

pub async fn client(kubeconfig: &Kubeconfig) -> Client {
    let parsed = ClientConfig::from_yaml(&kubeconfig.text()).unwrap();
    let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.unwrap();
    // Tests check the first refusal; retries would hide it.
    config.default_retry = false;
    // Tests see the answers as the server sends them.
    config.disable_compression = true;
    Client::try_from(config).unwrap()
}

/// Polls `done`; fails with `what` at the deadline.
pub async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(DEADLINE, async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}: not within {DEADLINE:?}");
}
