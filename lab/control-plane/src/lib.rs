//! A real control plane under the lab: etcd and kube-apiserver and, where it is there, kube-controller-manager, which makes the
//! EndpointSlices. What the lab's own store decides (addresses, node ports, who is ready) is written into it, so that both say the
//! same, and what it tells its clients is watched, so that the lab knows which versions they are to have seen.
//!
//! - [`Programs`]: which programs, and how new they are.
//! - [`ControlPlane`]: they run, until it is dropped. [`ControlPlane::follow`] makes the API's objects those of a
//!   [`Store`](svclab_apiserver::objects::Store).
//! - [`ApiClient`]: requests, for whoever wants to ask it more.
//!
//! It needs a sandbox around it (`svclab_netns::sandbox`), for everything listens on the loopback interface of that.

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
