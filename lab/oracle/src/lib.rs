//! What Kubernetes promises for a packet, from its documentation.
//! API objects and a [`Question`] (source, destination, protocol) give a [`Promise`]: deliver to one of these
//! endpoints, with exact shares, source addresses and the client's view of the reply; or drop; or reject; or no
//! service; or undefined. A promise lists the [`Rule`]s that decided it, and each rule cites its source.
//! The oracle is one of three judges; the simulator and the kernel are the others. The judges share no code with each
//! other or with the proxy.
//! The files, in the order in which a question passes them:
//! 1. `service`: the services that this proxy handles, and the meaning of their fields
//! 2. `frontend`, `nodeport`: the service port of a destination, and the deciding node
//! 3. `arrival`: the source address at that node, and whether it is a pod's
//! 4. `firewall`: source ranges
//! 5. `endpoints`, `policy`, `topology`: the endpoints that may get the packet
//! 6. `delivery`, `masquerade`: shares, source addresses, reply path
//! 7. `oracle`: calls the files above, and returns the verdict
//! `modes` is the only table of differences between modes. [`Affinity`] and [`health_checks`] are separate questions. A
//! [`ClusterModel`] lists its [questions](ClusterModel::questions) and writes one as a
//! [scenario](ClusterModel::scenario_yaml); [`generate`] draws clusters. `rules.rs` begins with a list of the steps to
//! add a rule.

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
