//! What Kubernetes promises for a packet, from its documentation.
//!
//! Objects and a [`Question`] give a [`Promise`]: deliver (endpoints, shares, source addresses, reply), drop, reject,
//! no service, or undefined, with the [`Rule`]s that decided and their sources. The oracle shares no code with
//! simulator or proxy.
//!
//! `oracle` calls these files in order:
//!
//! 1. `service`: the services of this proxy
//! 2. `frontend`, `nodeport`: the service port of a destination, and the deciding node
//! 3. `arrival`: the source address there, and whether it is a pod's
//! 4. `firewall`: source ranges
//! 5. `endpoints`, `policy`, `topology`: the endpoints that may get the packet
//! 6. `delivery`, `masquerade`: shares, source addresses, reply path
//!
//! Only `modes` knows differences between modes. [`Affinity`] and [`health_checks`] are separate. [`ClusterModel`]
//! lists questions and writes scenarios; [`generate`] draws clusters. `rules.rs` lists the steps to add a rule.

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
mod port_index;
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
pub use settings::{DetectLocalMode, LoadBalancing, MasqueradeSource, Mode, NodePortAddress, ProxySettings, Scheduler};
pub use world::{Client, Cni, IncomingInterfaces, NodeMachine, Objects, PodMachine, PodName, ReversePath, World};
