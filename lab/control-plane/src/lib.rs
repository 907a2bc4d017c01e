//! A real control plane: etcd, kube-apiserver and optionally kube-controller-manager, which creates the EndpointSlices.
//! The lab mirrors its store's objects (addresses, node ports, readiness) to the API, and watches the API to know which
//! versions proxies must have seen.
//!
//! - [`Programs`]: the programs and their version.
//! - [`ControlPlane`]: the running programs; [`ControlPlane::follow`] mirrors a
//!   [`Store`](svclab_apiserver::objects::Store).
//! - [`ApiClient`]: raw requests.
//!
//! All programs listen on the loopback interface of the sandbox (`svclab_netns::sandbox`).

mod api;
mod convergence;
mod daemon;
mod error;
mod mirror;
mod observe;
mod programs;
mod slice_comparison;
mod start;
mod watch_selectors;
mod wire;

pub use api::{ApiAnswer, ApiClient};
pub use error::ControlPlaneError;
pub use observe::ObservedVersions;
pub use programs::Programs;
pub use start::{ControlPlane, ControlPlaneOptions};
