//! IP sets and membership.

mod element;
mod icmp;
mod lookup;
mod read;

use std::fmt;

pub use element::{Element, ElementPart, InterfaceName, PartValue};
pub(crate) use lookup::{CompiledIpSet, Membership, SetQuery};
pub use read::SetReadError;

use crate::protocol::Family;

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct IpSet {
    pub name: String,
    /// Such as `hash:ip,port`.
    pub kind: String,
    pub parts: Vec<ElementPart>,
    /// `None`: no addresses.
    pub family: Option<Family>,
    /// Bits of addresses that count (`netmask`, `bitmask`).
    pub address_mask: Option<u128>,
    /// Bits of marks that count (`markmask`).
    pub mark_mask: u32,
    /// All options of `ipset create`, as text.
    pub options: Vec<String>,
    /// In listing order.
    pub elements: Vec<Element>,
    /// The type, option or element that is not modelled: matches on the set are unknown facts.
    pub unmodelled: Option<String>,
}

/// All sets of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sets {
    /// In listing order.
    pub sets: Vec<IpSet>,
}

impl Sets {
    /// Reads the output of `ipset save`.
    pub fn read(text: &str) -> Result<Sets, SetReadError> {
        read::read(text)
    }

    /// Finds a set by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&IpSet> {
        self.sets.iter().find(|set| set.name == name)
    }
}

impl fmt::Display for Sets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for set in &self.sets {
            write!(f, "create {} {}", set.name, set.kind)?;
            set.options.iter().try_for_each(|option| write!(f, " {option}"))?;
            writeln!(f)?;
            set.elements.iter().try_for_each(|element| writeln!(f, "add {} {element}", set.name))?;
        }
        Ok(())
    }
}
