use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use ipnet::IpNet;
use serde_json::json;
use svclab_apiserver::objects::{ObjectKey, ObjectKind, Store};
use svclab_apiserver::{Kubeconfig, Tls, Tokens};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use crate::api::ApiClient;
use crate::daemon::ChildProgram;
use crate::mirror::Mirror;
use crate::observe::{ApiObserver, ObservedVersions};
use crate::{ControlPlaneError, Programs, convergence, wire};

/// Time limit of the start, which takes 3 s on an idle machine.
const READY: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(50);
/// Time for controllers to react to the lab's objects. kube-controller-manager retries a Service with pods of a missing Node
/// after 1, 2, 4, … seconds, so it notices the Node's return after at most as long as the Node was away.
const SETTLE: Duration = Duration::from_secs(90);
const SERVER: &str = "kube-apiserver";
/// The lab's user, a member of `system:masters`.
const LAB: &str = "svclab";
/// The proxies' user. kube-apiserver's bootstrap policy binds it to the role `system:node-proxier`.
const PROXY: &str = "system:kube-proxy";
/// A documentation address (RFC 5737). It would appear in the endpoints of `default/kubernetes`, which are disabled.
const ADVERTISED: &str = "192.0.2.1";
/// The controllers for EndpointSlices, the readiness of ServiceCIDRs, and garbage collection.
const CONTROLLERS: &str = "endpointslice-controller,service-cidr-controller,garbage-collector-controller";
/// The maximum of [`ControlPlane::let_versions_pass`], because each version costs a write.
const MOST_PASSED: u64 = 1_000;

pub struct ControlPlaneOptions<'a> {
    pub programs: &'a Programs,
    /// The ranges, the primary family first.
    pub service_cidrs: &'a [IpNet],
    pub max_endpoints_per_slice: usize,
    pub tls: &'a Tls,
    pub tokens: &'a Tokens,
    /// The seed of the lab's own token.
    pub seed: u64,
}

/// A running control plane; dropping it ends the programs.
pub struct ControlPlane {
    address: SocketAddr,
    api: ApiClient,
    observer: ApiObserver,
    mirror: Mutex<Mirror>,
    daemons: std::sync::Mutex<Vec<ChildProgram>>,
    /// How kube-apiserver was started.
    server: (PathBuf, Vec<String>),
    controllers: bool,
    // The last field: dropped after the programs that use it.
    _directory: TempDir,
}

impl ControlPlane {
    /// Starts the programs; returns when the API server is ready.
    pub async fn start(options: &ControlPlaneOptions<'_>) -> Result<Self, ControlPlaneError> {
        svclab_netns::loopback_up().await?;
        let directory = tempfile::tempdir().map_err(ControlPlaneError::io("making a directory"))?;
        let setup = ControlPlaneSetup::new(options, directory.path())?;
        let etcd = ChildProgram::start(options.programs.etcd_directory(), "etcd", &setup.etcd())?;
        let flags = (options.programs.directory().to_owned(), setup.apiserver(options));
        let server = ChildProgram::start(&flags.0, SERVER, &flags.1)?;
        let mut daemons = vec![etcd, server];
        let api = ApiClient::new(&setup.kubeconfig.text()).await?;
        ready(&api, &mut daemons).await?;
        let controllers = options.programs.has_controllers();
        if controllers {
            let flags = setup.controllers(options);
            daemons.push(ChildProgram::start(options.programs.directory(), "kube-controller-manager", &flags)?);
        }
        let observer = ApiObserver::start(&api).await?;
        Ok(ControlPlane {
            address: setup.api,
            api,
            observer,
            mirror: Mutex::new(Mirror::default()),
            daemons: std::sync::Mutex::new(daemons),
            server: flags,
            controllers,
            _directory: directory,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn api(&self) -> &ApiClient {
        &self.api
    }

    /// Mirrors `store`, then waits until watches show all its objects and the controllers' slices equal those of the
    /// store's own controller.
    ///
    /// # Errors
    /// The API server rejects an object, or does not show the store's objects in time.
    pub async fn follow(&self, store: &Store) -> Result<(), ControlPlaneError> {
        let mut mirror = self.mirror.lock().await;
        let written = mirror.write(&self.api, store, self.controllers).await;
        // If a program has ended, reports that as the reason of the failed write.
        self.alive()?;
        written?;
        let (mut ticks, deadline) = (self.observer.ticks(), Instant::now() + SETTLE);
        loop {
            ticks.mark_unchanged();
            let difference =
                self.observer.look(|seen| convergence::first_difference(seen, &mirror, store, self.controllers));
            let Some(difference) = difference else { return Ok(()) };
            self.alive()?;
            if timeout_at(deadline, ticks.changed()).await.is_err() {
                return Err(ControlPlaneError::Differs(format!("{difference}, after {} s", SETTLE.as_secs())));
            }
        }
    }

    pub fn versions(&self) -> ObservedVersions {
        self.observer.versions()
    }

    async fn newest(&self) -> Result<u64, ControlPlaneError> {
        let path = format!("{}?limit=1", wire::collection(ObjectKind::Namespace, None));
        Ok(self.api.get(&path).await?.version())
    }

    /// Increases the version by up to 1000 writes of an unwatched object; returns the newest version.
    pub async fn let_versions_pass(&self, number: u64) -> Result<u64, ControlPlaneError> {
        let key = ObjectKey::new(None, "svclab-passes");
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": key.name }, "spec": {},
        });
        let collection = wire::collection(ObjectKind::Lease, Some(&key.namespace));
        self.api.ask(Method::POST, &collection, "application/json", Some(&lease)).await?;
        for number in 1..=number.min(MOST_PASSED) {
            let patch = json!({ "spec": { "leaseTransitions": number } });
            let path = wire::path(ObjectKind::Lease, &key);
            self.api.ask(Method::PATCH, &path, "application/merge-patch+json", Some(&patch)).await?;
        }
        self.newest().await
    }

    /// The process of kube-apiserver.
    pub fn server_pid(&self) -> Option<u32> {
        self.daemons().iter().find(|daemon| daemon.name() == SERVER).and_then(ChildProgram::pid)
    }

    /// Kills kube-apiserver and starts it again after `away`; returns when it is ready.
    pub async fn restart_server(&self, away: Duration) -> Result<(), ControlPlaneError> {
        let found = self.daemons().iter().position(|daemon| daemon.name() == SERVER);
        if let Some(mut server) = found.map(|index| self.daemons().remove(index)) {
            server.kill().await?;
        }
        sleep(away).await;
        let mut server = [ChildProgram::start(&self.server.0, SERVER, &self.server.1)?];
        ready(&self.api, &mut server).await?;
        self.daemons().extend(server);
        Ok(())
    }

    fn alive(&self) -> Result<(), ControlPlaneError> {
        self.daemons().iter_mut().try_for_each(ChildProgram::alive)
    }

    fn daemons(&self) -> std::sync::MutexGuard<'_, Vec<ChildProgram>> {
        self.daemons.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

async fn ready(api: &ApiClient, daemons: &mut [ChildProgram]) -> Result<(), ControlPlaneError> {
    let deadline = Instant::now() + READY;
    loop {
        daemons.iter_mut().try_for_each(ChildProgram::alive)?;
        let is_ready = api.text("/readyz").await.is_ok_and(|text| text == "ok");
        // The API server creates this namespace once it is ready, and rejects pods until then.
        let namespace = wire::path(ObjectKind::Namespace, &ObjectKey::unscoped("default"));
        if is_ready && api.get(&namespace).await.is_ok_and(|answer| answer.is_success()) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let server =
                daemons.last().map(|server| server.failed(format!("is not ready after {} s", READY.as_secs())));
            return server.map_or(Ok(()), Err);
        }
        sleep(LOOK).await;
    }
}

struct ControlPlaneSetup {
    directory: PathBuf,
    etcd: SocketAddr,
    peers: SocketAddr,
    api: SocketAddr,
    kubeconfig: Kubeconfig,
}

impl ControlPlaneSetup {
    fn new(options: &ControlPlaneOptions<'_>, directory: &Path) -> Result<Self, ControlPlaneError> {
        let free = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.local_addr().map(|address| (listener, address))
        };
        let ports = (0..3).map(|_| free()).collect::<io::Result<Vec<_>>>();
        let ports = ports.map_err(ControlPlaneError::io("finding free ports"))?;
        let port = |index: usize| ports.get(index).map_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), |port| port.1);
        let own = Tokens::new(options.seed, [LAB.to_owned()]);
        let api = port(2);
        let setup = ControlPlaneSetup {
            directory: directory.to_owned(),
            etcd: port(0),
            peers: port(1),
            api,
            kubeconfig: Kubeconfig {
                server: format!("https://{api}"),
                client: LAB.to_owned(),
                token: own.of(LAB).map(str::to_owned),
                ca_pem: Some(options.tls.ca_pem().to_owned()),
            },
        };
        let mut tokens = format!("{},{LAB},{LAB},\"system:masters\"\n", own.of(LAB).unwrap_or_default());
        for (client, token) in options.tokens.all() {
            tokens.push_str(&format!("{token},{PROXY},{client}\n"));
        }
        for (name, text) in [
            ("tokens.csv", tokens.as_str()),
            ("server.crt", options.tls.certificate_pem()),
            ("server.key", options.tls.key_pem()),
        ] {
            let path = setup.file(name);
            std::fs::write(&path, text).map_err(ControlPlaneError::io(format!("writing {path}")))?;
        }
        setup.kubeconfig.write(Path::new(&setup.file("kubeconfig")))?;
        Ok(setup)
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn etcd(&self) -> Vec<String> {
        let (clients, peers) = (format!("http://{}", self.etcd), format!("http://{}", self.peers));
        vec![
            format!("--data-dir={}", self.file("etcd")),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
            // Data need not survive the run.
            "--unsafe-no-fsync".to_owned(),
        ]
    }

    fn apiserver(&self, options: &ControlPlaneOptions<'_>) -> Vec<String> {
        let ranges: Vec<String> = options.service_cidrs.iter().map(IpNet::to_string).collect();
        vec![
            format!("--etcd-servers=http://{}", self.etcd),
            format!("--service-cluster-ip-range={}", ranges.join(",")),
            format!("--bind-address={}", self.api.ip()),
            format!("--secure-port={}", self.api.port()),
            format!("--tls-cert-file={}", self.file("server.crt")),
            format!("--tls-private-key-file={}", self.file("server.key")),
            format!("--token-auth-file={}", self.file("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            format!("--advertise-address={ADVERTISED}"),
            "--endpoint-reconciler-type=none".to_owned(),
            // Service account flags are mandatory; the certificate contains a public key.
            "--service-account-issuer=https://svclab.invalid".to_owned(),
            format!("--service-account-signing-key-file={}", self.file("server.key")),
            format!("--service-account-key-file={}", self.file("server.crt")),
            // The lab's pods have no service account, and its nodes are ready from the start.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
        ]
    }

    fn controllers(&self, options: &ControlPlaneOptions<'_>) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", self.file("kubeconfig")),
            format!("--controllers={CONTROLLERS}"),
            "--leader-elect=false".to_owned(),
            // Disables the health endpoint.
            "--secure-port=0".to_owned(),
            format!("--max-endpoints-per-slice={}", options.max_endpoints_per_slice),
        ]
    }
}
