//! The cluster: namespaces, links and routes for nodes, pods, outside clients and the load balancer.

pub mod spec;
