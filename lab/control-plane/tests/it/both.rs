use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};
use svclab_apiserver::objects::{Store, StoreOptions};
use svclab_apiserver::{ApiServer, Kubeconfig, ServeOptions, SharedStore, Tls, Tokens, testing};
use svclab_control_plane::{ApiAnswer, ApiClient, ControlPlane, ControlPlaneOptions, Programs};

use crate::encodings;
use crate::exchange::{Exchange, groups};
use crate::known::DifferenceLedger;
use crate::normal::{Normalizer, differences};

const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);
const EVENTS: Duration = Duration::from_secs(2);
const CLIENT: &str = "conformance";
const SEED: u64 = 5;

struct ServerPair {
    lab: ApiClient,
    real: ApiClient,
    normal: Normalizer,
    /// The newest version of each object at both servers.
    versions: BTreeMap<String, (u64, u64)>,
}

/// Returns the unknown differences.
pub async fn compare(programs: &Programs) -> String {
    let (tls, tokens) = (Tls::generate(&["127.0.0.1".to_owned()]).unwrap(), Tokens::new(SEED, [CLIENT.to_owned()]));
    // No load balancer: a new kube-apiserver has none, either.
    let options = StoreOptions { seed: SEED, max_endpoints_per_slice: 100, vip_ranges: Vec::new() };
    let store = Store::new(testing::spec(true), options);
    let options = ControlPlaneOptions {
        programs,
        service_cidrs: &store.cluster_spec().service_cidrs,
        max_endpoints_per_slice: 100,
        tls: &tls,
        tokens: &tokens,
        seed: SEED,
    };
    let plane = ControlPlane::start(&options).await.unwrap();
    plane.follow(&store).await.unwrap();
    let shared = SharedStore::new(store);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let options = ServeOptions { tokens: Some(tokens.clone()), tls: Some(tls.clone()), ..ServeOptions::default() };
    let server = ApiServer::start(shared, [listener], options).unwrap();
    let kubeconfig = Kubeconfig {
        server: server.url(server.addresses()[0]),
        client: CLIENT.to_owned(),
        token: tokens.of(CLIENT).map(str::to_owned),
        ca_pem: Some(tls.ca_pem().to_owned()),
    };
    let lab = ApiClient::new(&kubeconfig.text()).await.unwrap();
    let mut both = ServerPair { lab, real: plane.api().clone(), normal: Normalizer::new(), versions: BTreeMap::new() };
    let mut ledger = DifferenceLedger::new();
    for group in groups() {
        let namespace = json!({"metadata": {"name": group.name}});
        for api in [&both.lab, &both.real] {
            let made = api.ask(Method::POST, "/api/v1/namespaces", "application/json", Some(&namespace)).await;
            assert!(made.unwrap().is_success(), "namespace {}", group.name);
        }
        let begin = (version(&both.lab).await, version(&both.real).await);
        for exchange in group.exchanges.iter().filter(|exchange| programs.has_controllers() || !exchange.controllers) {
            let name = format!("{}/{}", group.name, exchange.name);
            for (field, lab, real) in both.exchange(exchange, &group.name, begin).await {
                ledger.takes(&name, &field, &lab, &real);
            }
        }
    }
    let encodings = [encodings::differences(&both.lab, "lab").await, encodings::differences(&both.real, "real").await];
    encodings.into_iter().flatten().chain([ledger.end()]).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

async fn version(api: &ApiClient) -> u64 {
    api.get("/api/v1/namespaces?limit=1").await.unwrap().version()
}

impl ServerPair {
    async fn exchange(
        &mut self,
        exchange: &Exchange,
        namespace: &str,
        begin: (u64, u64),
    ) -> Vec<(String, String, String)> {
        let body = exchange.body.as_ref().map(|body| replaced(body, namespace));
        body.iter().for_each(|body| self.normal.add_request(body));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (lab, real) = if exchange.watch {
                let path = exchange.path(namespace);
                (
                    events(&self.lab, &path, begin.0, &self.normal).await,
                    events(&self.real, &path, begin.1, &self.normal).await,
                )
            } else {
                let path = exchange.path(namespace);
                let ask = |api: ApiClient| {
                    let (path, body) = (path.clone(), body.clone());
                    async move { api.ask(exchange.method(), &path, exchange.media(), body.as_ref()).await.unwrap() }
                };
                let (lab, real) = (ask(self.lab.clone()).await, ask(self.real.clone()).await);
                self.normalised(exchange, &path, &lab, &real)
            };
            let found = differences(&lab, &real);
            if found.is_empty() || !exchange.eventually || Instant::now() > deadline {
                return found;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Normalizes both answers; for a write, the results also tell whether the version increased.
    fn normalised(&mut self, exchange: &Exchange, path: &str, lab: &ApiAnswer, real: &ApiAnswer) -> (Value, Value) {
        let (mut normal_lab, mut normal_real) =
            (self.normal.answer(lab.code, &lab.body), self.normal.answer(real.code, &real.body));
        let object = path.trim_end_matches("/status").split('?').next().unwrap_or_default().to_owned();
        let now = (lab.version(), real.version());
        if matches!(exchange.method(), Method::PUT | Method::PATCH)
            && now.0 > 0
            && now.1 > 0
            && let Some(before) = self.versions.get(&object)
        {
            normal_lab["isNewVersion"] = json!(now.0 > before.0);
            normal_real["isNewVersion"] = json!(now.1 > before.1);
        }
        let key = match exchange.method() {
            Method::POST => format!("{object}/{}", lab.body["metadata"]["name"].as_str().unwrap_or_default()),
            _ => object,
        };
        if now.0 > 0 && now.1 > 0 {
            self.versions.insert(key, now);
        }
        (normal_lab, normal_real)
    }
}

fn replaced(value: &Value, namespace: &str) -> Value {
    serde_json::from_str(&value.to_string().replace("\"NS\"", &format!("{namespace:?}"))).unwrap()
}

/// Returns types and objects of the events of `path` since `version`.
async fn events(api: &ApiClient, path: &str, version: u64, normal: &Normalizer) -> Value {
    let joint = if path.contains('?') { '&' } else { '?' };
    let path = format!("{path}{joint}watch=true&resourceVersion={version}&timeoutSeconds={}", EVENTS.as_secs());
    let lines = api.lines(&path).await.unwrap();
    let event = |line: &String| {
        let event: Value = serde_json::from_str(line).unwrap();
        json!({ "type": event["type"], "object": normal.object(&event["object"]) })
    };
    lines.iter().map(event).collect()
}
