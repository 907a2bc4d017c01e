use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use svclab_apiserver::objects::{Object, Store, StoreOptions};
use svclab_apiserver::{ApiServer, Kubeconfig, ServeOptions, SharedStore, Tls, Tokens};
use svclab_control_plane::{ControlPlane, ControlPlaneOptions, Programs};
use svclab_spec::{ClusterSpec, NodeSpec};
use svcproxy::model::Change;

use super::gate::API;
use crate::client_view::apply;

/// The lab's API or a real control plane, with the objects of a cluster.
pub(super) struct Server {
    pub(super) name: String,
    tls: Tls,
    tokens: Tokens,
    lab: ApiServer,
    real: Option<ControlPlane>,
}

impl Server {
    /// Serves `changes` and `nodes` Node objects: by the programs, or by the lab's API.
    pub(super) async fn start(programs: Option<&Programs>, nodes: u16, changes: &[Change]) -> Result<Server> {
        svclab_netns::loopback_up().await?;
        let tls = Tls::generate(&["127.0.0.1".to_owned()]).context("make a certificate")?;
        let tokens = Tokens::new(0, (0..nodes).map(node_name));
        let options = StoreOptions { seed: 0, max_endpoints_per_slice: 1000, vip_ranges: Vec::new() };
        let mut store = Store::new(spec(nodes)?, options);
        store.apply(namespace())?;
        apply(&mut store, changes)?;
        let cidrs = store.cluster_spec().service_cidrs;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen for the API")?;
        let options = ServeOptions { tokens: Some(tokens.clone()), tls: Some(tls.clone()), ..ServeOptions::default() };
        let lab = ApiServer::start(SharedStore::new(store), [listener], options).context("serve the API")?;
        let Some(programs) = programs else {
            return Ok(Server { name: "the lab's API".to_owned(), tls, tokens, lab, real: None });
        };
        let options = ControlPlaneOptions {
            programs,
            service_cidrs: &cidrs,
            max_endpoints_per_slice: 1000,
            tls: &tls,
            tokens: &tokens,
            seed: 0,
        };
        let real = ControlPlane::start(&options).await?;
        let server =
            Server { name: format!("kube-apiserver {}", programs.version()), tls, tokens, lab, real: Some(real) };
        server.follow().await?;
        Ok(server)
    }

    pub(super) fn address(&self) -> SocketAddr {
        let lab = self.lab.addresses().first().copied();
        self.real.as_ref().map(ControlPlane::address).or(lab).unwrap_or(API)
    }

    /// How the proxy of `node` reaches the server at `address`.
    pub(super) fn kubeconfig(&self, node: &str, address: SocketAddr) -> Kubeconfig {
        Kubeconfig {
            server: self.lab.url(address),
            client: node.to_owned(),
            token: self.tokens.of(node).map(str::to_owned),
            ca_pem: Some(self.tls.ca_pem().to_owned()),
        }
    }

    pub(super) async fn change(&self, changes: &[Change]) -> Result<()> {
        self.lab.store().write(|store| apply(store, changes))?;
        self.follow().await
    }

    async fn follow(&self) -> Result<()> {
        if let Some(real) = &self.real {
            let store = self.lab.store().read(Store::clone);
            real.follow(&store).await?;
        }
        Ok(())
    }

    /// The processor time of kube-apiserver so far.
    pub(super) fn processor_time(&self) -> Result<Option<Duration>> {
        let Some(pid) = self.real.as_ref().and_then(ControlPlane::server_pid) else { return Ok(None) };
        let stat = procfs::process::Process::new(pid.cast_signed()).and_then(|process| process.stat());
        let stat = stat.context("look at kube-apiserver")?;
        let ticks = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
        Ok(Some(Duration::from_secs_f64(ticks)))
    }

    /// Kills kube-apiserver, lets `away` pass, and starts it again; returns when it is ready.
    pub(super) async fn restart(&self, away: Duration) -> Result<()> {
        let real = self.real.as_ref().context("only a real API server is restarted")?;
        Ok(real.restart_server(away).await?)
    }
}

fn namespace() -> Object {
    let metadata = ObjectMeta { name: Some("bench".to_owned()), ..ObjectMeta::default() };
    Object::Namespace(Box::new(Namespace { metadata, ..Namespace::default() }))
}

pub(super) fn node_name(index: u16) -> String {
    format!("node-{index}")
}

fn spec(nodes: u16) -> Result<ClusterSpec> {
    let node = |index: u16| NodeSpec {
        name: node_name(index),
        zone: None,
        addresses: vec![Ipv4Addr::from(u32::from(Ipv4Addr::new(192, 168, 0, 1)) + u32::from(index)).into()],
        extra_addresses: Vec::new(),
        pod_cidrs: Vec::new(),
    };
    Ok(ClusterSpec {
        node_network: vec!["192.168.0.0/16".parse()?],
        service_cidrs: vec!["10.96.0.0/16".parse()?],
        cluster_cidrs: vec!["10.244.0.0/16".parse()?],
        nodes: (0..nodes).map(node).collect(),
        ..ClusterSpec::default()
    })
}
