//! `svcproxy`: a Kubernetes service proxy.

pub mod source;
