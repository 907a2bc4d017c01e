//! A deterministic model of packets in a Linux kernel: netfilter, IPVS, ipset, conntrack and routing.
//!
//! Readers take the output of `iptables-save`, `nft list ruleset`, `ipset save` and `ipvsadm -Sn`. [Hosts](host::Host)
//! with these rules form a [network](network::Network), through which packets and replies walk. The model refuses
//! unknown rules when it reads them or, after [`Rules::read_any`], when a packet's outcome depends on them. Draws
//! come from one [seed](chance::Chance), or all draws are explored with exact [probabilities](fraction::Fraction).
//!
//! ```
//! use svclab_sim::fraction::Fraction;
//! use svclab_sim::host::{Host, HostInterface, Route, Sysctls};
//! use svclab_sim::masked::Masked;
//! use svclab_sim::network::{Flow, Network};
//! use svclab_sim::protocol::{Family, Protocol};
//! use svclab_sim::rules::Rules;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rules = Rules::read(
//!     Family::V4,
//!     "*nat\n\
//!      :WEB - [0:0]\n\
//!      -A PREROUTING -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j WEB\n\
//!      -A WEB -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.0.1.1:8080\n\
//!      -A WEB -p tcp -j DNAT --to-destination 10.0.1.2:8080\n\
//!      COMMIT\n",
//! )?;
//! let gateway = |range: &str| Masked::parse(range).map(|to| Route::via(to, [10, 0, 0, 1].into(), "eth0"));
//! let router = Host::builder("router")
//!     .interface(HostInterface::new("eth0").address([10, 0, 0, 1].into(), 24))
//!     .interface(HostInterface::new("eth1").address([10, 0, 1, 254].into(), 24))
//!     .sysctls(Sysctls::node())
//!     .rules(rules);
//! let client = Host::builder("client")
//!     .interface(HostInterface::new("eth0").address([10, 0, 0, 2].into(), 24))
//!     .route(gateway("0.0.0.0/0").ok_or("a range")?);
//! let server = Host::builder("server")
//!     .interface(HostInterface::new("eth0").address([10, 0, 1, 1].into(), 24))
//!     .route(Route::via(Masked::parse("0.0.0.0/0").ok_or("a range")?, [10, 0, 1, 254].into(), "eth0"))
//!     .listen(Protocol::TCP, 8080);
//!
//! let mut network = Network::new();
//! let (router, client) = (network.add(router.build()?), network.add(client.build()?));
//! let server = network.add(server.build()?);
//! network.link(&[(router, "eth0"), (client, "eth0")])?;
//! network.link(&[(router, "eth1"), (server, "eth0")])?;
//!
//! let outcomes = network.outcomes(&Flow::tcp(client, "10.96.0.10:80".parse()?))?;
//! let answered = outcomes.probability(|verdict| verdict.answered().is_some());
//! assert_eq!(answered, Fraction::new(1, 2));
//! # Ok(())
//! # }
//! ```
//!
//! Not modelled: fragments, IPv6 extension headers, link-local addresses, multicast, multipath routes, conntrack
//! helpers, direct routing and tunnels of IPVS, lower thresholds, expiry of `lblc` and `lblcr`.

#![warn(missing_docs)]

pub mod assume;
pub mod chance;
pub mod cluster;
pub mod conntrack;
pub mod fraction;
pub mod hook;
pub mod host;
pub mod ipvs;
mod link_state;
pub mod masked;
mod names;
pub mod network;
pub mod nft;
pub mod packet;
pub mod picture;
mod program;
pub mod protocol;
pub mod relays;
pub mod render;
pub mod rules;
pub mod set;
pub mod sysctl;
pub mod trace;
mod walk;

pub use assume::Assumptions;
pub use chance::Chance;
pub use host::Host;
pub use network::{Flow, Network};
pub use program::{CompileError, MissingReference};
pub use rules::Rules;
