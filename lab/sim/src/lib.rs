//! A deterministic model of what a Linux kernel does to packets with netfilter, IPVS and ipset.
//!
//! It reads what `iptables-save`, `nft list ruleset`, `ipset save` and `ipvsadm -Sn` print, on whatever machine and by whichever program the
//! rules were made; builds [machines](host::Host) from them and a [network](network::Network) of machines; and walks
//! packets through it, there and back. It never guesses: what it does not know it refuses, with the line, or, if it was read with
//! [`Rules::read_any`], when a packet gets there and it matters. It does no
//! input or output, and nothing in it depends on the time of day or on anybody's luck: chance is one
//! [seeded source](chance::Chance), or it is explored in full, and then probabilities are exact
//! [fractions](fraction::Fraction).
//!
//! ```
//! use svclab_sim::fraction::Fraction;
//! use svclab_sim::host::{Host, Interface, Route, Sysctls};
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
//!     .interface(Interface::new("eth0").address([10, 0, 0, 1].into(), 24))
//!     .interface(Interface::new("eth1").address([10, 0, 1, 254].into(), 24))
//!     .sysctls(Sysctls::node())
//!     .rules(rules);
//! let client = Host::builder("client")
//!     .interface(Interface::new("eth0").address([10, 0, 0, 2].into(), 24))
//!     .route(gateway("0.0.0.0/0").ok_or("a range")?);
//! let server = Host::builder("server")
//!     .interface(Interface::new("eth0").address([10, 0, 1, 1].into(), 24))
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
//! // Nobody has the other address.
//! assert_eq!(answered, Fraction::new(1, 2));
//! # Ok(())
//! # }
//! ```
//!
//! # Parts
//! - [`rules`], [`nft`], [`set`], [`ipvs`]: readers, and what was read as data that prints itself back: a tool may take rules,
//!   remove or change one, and go on with the text or with the data.
//! - [`host`]: interfaces, routes, kernel settings and all of the above, put together and compiled.
//! - [`network`]: machines on links; [`network::Network::send`] with one draw, [`network::Network::outcomes`] with all.
//! - [`assume`]: answers to what nobody knows.
//! - [`trace`]: what happened, step by step, and as text.
//! - [`conntrack`], [`packet`], [`protocol`], [`masked`], [`chance`], [`fraction`]: what these need.
//!
//! # What is left out
//! Fragments, IPv6 extension headers, link-local addresses, multicast, multipath routes, conntrack
//! helpers, IPVS by routing and tunnels, `lblc`'s and `lblcr`'s forgetting, thresholds that keep an IPVS server out until a
//! lower one is reached. What a dump can say of these is refused when it is read or built.

#![warn(missing_docs)]

pub mod assume;
pub mod chance;
pub mod cluster;
pub mod conntrack;
pub mod fraction;
pub mod hook;
pub mod host;
pub mod ipvs;
pub mod masked;
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
