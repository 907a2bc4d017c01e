//! Sets and maps.

use std::borrow::Cow;

use nf_tables::field::Field;

/// What elements have besides their key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Nothing: a set.
    Keys,
    /// A verdict.
    Verdicts,
    /// An address and a port.
    Endpoints,
}

/// A set or a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// What it is for, in a line.
    pub comment: &'static str,
    /// The fields of its key.
    pub key: Cow<'static, [Field]>,
    /// What its elements have besides.
    pub holds: Holds,
    /// Keys are ranges.
    pub ranges: bool,
    /// Rules put elements in, which go after a time.
    pub expires: bool,
    /// At most so many elements. The kernel takes memory for as many, and is faster for it; without it the table grows behind the
    /// insertions.
    pub size: Option<u32>,
}

impl Set {
    /// A set of keys.
    pub fn keys(comment: &'static str, key: &'static [Field]) -> Set {
        Set { comment, key: Cow::Borrowed(key), holds: Holds::Keys, ranges: false, expires: false, size: None }
    }

    /// A map.
    pub fn map(comment: &'static str, key: &'static [Field], holds: Holds) -> Set {
        Set { holds, ..Set::keys(comment, key) }
    }

    /// A set that rules fill: the kernel lets in 65,535 elements (`nft_dynset_init` in `net/netfilter/nft_dynset.c`). It has no size of its own,
    /// for which the kernel would take the memory at once, 2 MB each, and look through all of it every second for what has expired: 5,000
    /// empty sets took 0.9 of a core.
    pub fn remembering(comment: &'static str, key: &'static [Field]) -> Set {
        Set { expires: true, ..Set::keys(comment, key) }
    }

    /// A set of ranges: those of the key's last field.
    pub fn ranges(comment: &'static str, key: &'static [Field]) -> Set {
        Set { ranges: true, ..Set::keys(comment, key) }
    }

    /// With this many elements at most.
    pub fn sized(self, size: u32) -> Set {
        Set { size: Some(size), ..self }
    }
}
