//! What Kubernetes promises a packet.
//!
//! ClusterModel objects and a [`Question`] (who sends what to where) give a [`Promise`]: deliver to one of these endpoints, with
//! their exact shares, the source address that each may see and what the client sees of the answer; or drop; or reject; or
//! no service's business; or nobody has written down what is right. A promise tells the rules that it rests on, and each
//! rule where it is written ([`Rule`]).
//!
//! It is one of three judges. The other two are what the rules on a node say, and what the kernel does; the three share no
//! code, nor does any of them with the proxy.
//!
//! From top to bottom, a file for each idea:
//!
//! 1. `service`: which services are this proxy's, and what their fields mean
//! 2. `frontend`, `nodeport`: which service port a destination belongs to, and which node decides
//! 3. `arrival`: from which address the packet comes there, and whether that is a pod's
//! 4. `firewall`: whether the source may use that address
//! 5. `endpoints`, `policy`, `topology`: who may get it
//! 6. `delivery`, `masquerade`: their shares, whom they see, which way the answer takes
//! 7. `oracle`: the above in this order, and the verdict
//!
//! [`affinity`](Affinity) and [`health`](health_checks) stand beside. What modes rightly do in different ways is the table
//! in `modes`, and nowhere else.
//!
//! A [`ClusterModel`] is all of it in one value, with [`ClusterModel::questions`], and [`ClusterModel::scenario_yaml`] for what a test has
//! found; [`generate`] makes clusters.

pub mod address;
mod affinity;
mod arrival;
mod cluster;
mod delivery;
mod endpoint;
mod endpoints;
mod firewall;
mod frontend;
mod frontends;
#[cfg(feature = "generate")]
pub mod generate;
mod health;
mod masquerade;
mod modes;
mod nodeport;
mod oracle;
mod policy;
mod promise;
mod question;
mod questions;
mod rules;
mod scenario;
mod service;
mod settings;
mod topology;
mod world;

pub use address::Family;
pub use affinity::Affinity;
pub use cluster::ClusterModel;
pub use frontends::ServiceFrontend;
pub use health::{HealthCheck, checks as health_checks};
pub use modes::{AffinityScope, Balancing};
pub use oracle::{Oracle, ask};
pub use promise::{Backend, Delivery, Promise, PromisedAffinity, PromisedReply, PromisedVerdict, Share};
pub use question::{PacketSource, Protocol, Question};
pub use rules::{PromisePart, Reason, Rule};
pub use service::{FrontendKind, ServicePortName};
pub use settings::{DetectLocalMode, Mode, NodePortAddress, ProxySettings, Scheduler};
pub use world::{Client, Cni, IncomingInterfaces, NodeMachine, Objects, PodMachine, PodName, ReversePath, World};
