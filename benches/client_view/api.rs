use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result};
use svclab_apiserver::objects::{Object, ObjectKey, ObjectKind, Store, StoreOptions};
use svclab_apiserver::{ApiServer, Kubeconfig, ServeOptions, SharedStore};
use svclab_netns::sandbox::WORK_DIR;

use crate::packets::wires::{NODE, Wires};
use svcproxy::model::Change;

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 6443);

pub(super) struct BenchApi {
    server: ApiServer,
    pub(super) kubeconfig: PathBuf,
}

impl BenchApi {
    pub(super) async fn serve(wires: &Wires, changes: &[Change]) -> Result<BenchApi> {
        let options = StoreOptions { seed: 0, max_endpoints_per_slice: 1000, vip_ranges: Vec::new() };
        let mut store = Store::new(wires.spec(), options);
        apply(&mut store, changes)?;
        let shared = SharedStore::new(store);
        let listener = wires.on_node(|| std::net::TcpListener::bind(ADDRESS)).await?.context("listen for the API")?;
        let server = ApiServer::start(shared, [listener], ServeOptions::default()).context("serve the API")?;
        let kubeconfig = PathBuf::from(WORK_DIR).join("kubeconfig");
        let file = Kubeconfig { server: server.url(ADDRESS), token: None, ca_pem: None, client: NODE.to_owned() };
        file.write(&kubeconfig)?;
        Ok(BenchApi { server, kubeconfig })
    }

    /// Changes objects. Watches report the changes at once.
    pub(super) fn apply(&self, changes: &[Change]) -> Result<()> {
        self.server.store().write(|store| apply(store, changes))
    }
}

pub fn apply(store: &mut Store, changes: &[Change]) -> Result<()> {
    for change in changes {
        match change {
            Change::Service(_, Some(service)) => drop(store.apply(Object::Service(Box::new((**service).clone())))?),
            Change::EndpointSlice(_, Some(slice)) => {
                store.apply(Object::EndpointSlice(Box::new((**slice).clone())))?;
            }
            Change::Service(key, None) => remove(store, ObjectKind::Service, key),
            Change::EndpointSlice(key, None) => remove(store, ObjectKind::EndpointSlice, key),
            Change::Node(..) | Change::ServiceCidr(..) => {}
        }
    }
    Ok(())
}

fn remove(store: &mut Store, kind: ObjectKind, key: &svcproxy::model::ObjectKey) {
    let key = ObjectKey { namespace: key.namespace.to_string(), name: key.name.to_string() };
    // The object may not exist.
    let _ = store.remove(kind, &key);
}
