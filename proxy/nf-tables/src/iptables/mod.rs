//! Rules and chains as iptables-nft 1.8.9 encodes them, so that `iptables-nft-save` of any version prints them and
//! `iptables-nft` finds them.
//!
//! The order within a rule is fixed: interfaces, transport protocol and addresses ([`RuleHeader`], written by
//! [`RuleBuilder::new`]), the matches in the order of the text, a counter, and the verdict or target, which ends the builder.
//!
//! ```
//! use nf_tables::iptables::{Prefix, RuleBuilder, RuleHeader};
//! use nf_tables::{Family, Rule};
//!
//! // -d 10.96.0.10/32 -p tcp -m comment --comment "default/web" -m tcp --dport 80 -j WEB
//! let header = RuleHeader {
//!     protocol: Some(6),
//!     destination: Some(Prefix::host("10.96.0.10".parse()?)),
//!     ..RuleHeader::default()
//! };
//! let mut rule = Rule::new();
//! RuleBuilder::new(&mut rule, Family::Ipv4, &header).comment("default/web").destination_port(80).jump("WEB");
//! assert_eq!(rule.error(), None);
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

mod builder;
mod chains;
mod header;

pub use builder::RuleBuilder;
pub use chains::{BUILT_IN, built_in};
pub use header::{InterfaceMatch, Prefix, RuleHeader};
