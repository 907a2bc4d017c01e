use std::net::SocketAddr;

use crate::world::PodName;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) node: Option<String>,
    pub(crate) ready: bool,
    pub(crate) terminating: bool,
    /// The endpoint is terminating and serving.
    pub(crate) fallback: bool,
    pub(crate) for_zones: Vec<String>,
    pub(crate) for_nodes: Vec<String>,
    pub(crate) pod: Option<PodName>,
}

impl Endpoint {
    pub(crate) fn is_local(&self, node: &str) -> bool {
        self.node.as_deref() == Some(node)
    }

    /// Returns the fields in which copies of an endpoint must agree.
    pub(crate) fn decisive_fields(&self, node: &str) -> (bool, bool, bool, &[String], &[String]) {
        (self.ready, self.fallback, self.is_local(node), &self.for_zones, &self.for_nodes)
    }
}
