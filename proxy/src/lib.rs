//! `svcproxy`: a Kubernetes service proxy.
