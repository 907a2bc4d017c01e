//! Rules and chains as iptables-nft 1.8.9 writes them, so that `iptables-nft-save` of any version prints them and iptables
//! finds them.
//!
//! The order within a rule is fixed: input and output interface, transport protocol, source and destination
//! ([`Header`], written by [`Builder::new`]), then the matches in the order of the text, a counter, the verdict or target
//! (which ends the builder), and for which protocol the kernel checks them (`NFTA_RULE_COMPAT`).
//!
//! ```
//! use nf_tables::iptables::{Builder, Header, Prefix};
//! use nf_tables::{Family, Rule};
//!
//! // -d 10.96.0.10/32 -p tcp -m comment --comment "default/web" -m tcp --dport 80 -j WEB
//! let header = Header {
//!     protocol: Some(6),
//!     destination: Some(Prefix::host("10.96.0.10".parse()?)),
//!     ..Header::default()
//! };
//! let mut rule = Rule::new();
//! Builder::new(&mut rule, Family::Ipv4, &header).comment("default/web").destination_port(80).jump("WEB");
//! assert_eq!(rule.error(), None);
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

mod builder;
mod chains;
mod header;

pub use builder::Builder;
pub use chains::{BUILT_IN, built_in};
pub use header::{Header, Interface, Prefix};
