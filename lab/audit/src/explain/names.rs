use std::net::{IpAddr, SocketAddr};

use svclab_oracle::{FrontendKind, Oracle, Protocol, World};
use svclab_snapshot::Snapshot;

use super::Caller;
use crate::cluster::KnownAddresses;

/// A name cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text has no known form.
    #[error("{text}: expected {expected}")]
    Form {
        /// The text.
        text: String,
        /// The known forms.
        expected: &'static str,
    },
    /// No object has this name.
    #[error("{text}: the archive has no {kind} of that name{near}")]
    Unknown {
        /// The text.
        text: String,
        /// The kind of object.
        kind: &'static str,
        /// Similar names, or empty.
        near: String,
    },
}

const CALLER: &str = "node, outside, an address, pod/[NAMESPACE/]NAME or node/NAME";
const CALLED: &str = "ADDRESS:PORT, service/[NAMESPACE/]NAME[:PORT], nodePort/…, loadBalancer/… or externalIP/… of a service, or pod/[NAMESPACE/]NAME:PORT";

/// Resolves names of pods, nodes and Services with a snapshot's objects.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// The snapshot.
    pub snapshot: &'a Snapshot,
    /// The addresses in its objects.
    pub known: &'a KnownAddresses,
}

impl Named<'_> {
    /// Reads a caller's name.
    ///
    /// # Errors
    /// The text names no caller.
    pub fn caller(&self, text: &str, to: IpAddr) -> Result<Caller, NameError> {
        let alike = |address: &&IpAddr| address.is_ipv4() == to.is_ipv4();
        match text.split_once('/') {
            None if text == "node" => Ok(Caller::Node),
            None if text == "outside" => Ok(Caller::Outside),
            None => {
                let wrong = || NameError::Form { text: text.to_owned(), expected: CALLER };
                text.parse().map(Caller::Address).map_err(|_| wrong())
            }
            Some(("node", name)) if name == self.known.node => Ok(Caller::Node),
            Some(("node", name)) => {
                let own = self.known.nodes.get(name).and_then(|own| own.iter().find(alike));
                let known = || self.known.nodes.keys().cloned().collect();
                own.map(|own| Caller::Address(*own)).ok_or_else(|| unknown(text, "node", known()))
            }
            Some(("pod", name)) => self.pod(text, name, to).map(Caller::Address),
            Some(_) => Err(NameError::Form { text: text.to_owned(), expected: CALLER }),
        }
    }

    /// Returns a pod's address. Archives contain only pods that are endpoints of services.
    fn pod(&self, text: &str, name: &str, like: IpAddr) -> Result<IpAddr, NameError> {
        let full = if name.contains('/') { format!("pod/{name}") } else { format!("pod/default/{name}") };
        let found = self.known.endpoints.values().find(|one| {
            one.address.is_ipv4() == like.is_ipv4() && one.pod.as_ref().is_some_and(|pod| format!("pod/{pod}") == full)
        });
        let pods = || self.known.endpoints.values().filter_map(|one| Some(one.pod.as_ref()?.to_string())).collect();
        found.map(|one| one.address).ok_or_else(|| unknown(text, "endpoint", pods()))
    }

    /// Reads a destination's name; also returns the protocol that it contains.
    ///
    /// # Errors
    /// The text names no destination.
    pub fn called(&self, text: &str) -> Result<(SocketAddr, Option<Protocol>), NameError> {
        if let Ok(to) = text.parse() {
            return Ok((to, None));
        }
        let wrong = || NameError::Form { text: text.to_owned(), expected: CALLED };
        let (kind, name) = text.split_once('/').ok_or_else(wrong)?;
        let kind = match kind {
            "service" => FrontendKind::ClusterIp,
            "nodePort" => FrontendKind::NodePort,
            "loadBalancer" => FrontendKind::LoadBalancerIp,
            "externalIP" => FrontendKind::ExternalIp,
            "pod" => {
                let (name, port) = name.rsplit_once(':').ok_or_else(wrong)?;
                let port = port.parse().map_err(|_| wrong())?;
                let address = [IpAddr::from([0, 0, 0, 0]), IpAddr::from([0u16; 8])];
                let found = address.iter().find_map(|like| self.pod(text, name, *like).ok());
                let address = found.map_or_else(|| self.pod(text, name, address[0]), Ok)?;
                return Ok((SocketAddr::new(address, port), None));
            }
            _ => return Err(wrong()),
        };
        self.frontend(text, kind, name)
    }

    fn frontend(
        &self,
        text: &str,
        kind: FrontendKind,
        name: &str,
    ) -> Result<(SocketAddr, Option<Protocol>), NameError> {
        let (name, port) = name.rsplit_once(':').map_or((name, None), |(name, port)| (name, Some(port)));
        let (namespace, service) = name.split_once('/').unwrap_or(("default", name));
        let objects = self.snapshot.objects.clone().unwrap_or_default();
        let objects = svclab_oracle::Objects { services: objects.services, ..svclab_oracle::Objects::default() };
        let world = World::default();
        let oracle = Oracle::new(&objects, &world);
        let is_port = |one: &svclab_oracle::ServiceFrontend| {
            port.is_none_or(|port| one.service.port == port || one.port.to_string() == port)
        };
        let of_service =
            |one: &svclab_oracle::ServiceFrontend| one.service.namespace == namespace && one.service.service == service;
        let found = oracle.frontends().find(|one| of_service(one) && one.kind == kind && is_port(one));
        let Some(found) = found else {
            let services = oracle.frontends().map(|one| format!("{}/{}", one.service.namespace, one.service.service));
            return Err(unknown(text, "service with such an address and port", services.collect()));
        };
        let own = || {
            let own = self.known.nodes.get(&self.known.node).into_iter().flatten();
            own.copied().find(|own| svclab_oracle::Family::of(*own) == found.family)
        };
        let address = found.address.or_else(own).ok_or_else(|| unknown(text, "address of this node", Vec::new()))?;
        Ok((SocketAddr::new(address, found.port), Some(found.protocol)))
    }
}

fn unknown(text: &str, kind: &'static str, mut known: Vec<String>) -> NameError {
    let last = text.rsplit('/').next().unwrap_or(text).split(':').next().unwrap_or(text);
    known.retain(|name| name.contains(last));
    known.sort();
    known.dedup();
    known.truncate(5);
    let near = if known.is_empty() { String::new() } else { format!("; near: {}", known.join(", ")) };
    NameError::Unknown { text: text.to_owned(), kind, near }
}
