use std::borrow::Cow;

use nf_tables::field::KeyField;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementKind {
    Keys,
    Verdicts,
    Endpoints,
    /// Named counters of the table, which count the packets that a rule looks up.
    Counters,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    pub comment: &'static str,
    pub key: Cow<'static, [KeyField]>,
    pub holds: ElementKind,
    pub ranges: bool,
    /// Whether rules add elements, which expire.
    pub expires: bool,
    /// A size makes the kernel allocate at once, which is faster; otherwise the hash table grows after insertions.
    pub size: Option<u32>,
}

impl Set {
    pub fn keys(comment: &'static str, key: &'static [KeyField]) -> Set {
        Set { comment, key: Cow::Borrowed(key), holds: ElementKind::Keys, ranges: false, expires: false, size: None }
    }

    pub fn map(comment: &'static str, key: &'static [KeyField], holds: ElementKind) -> Set {
        Set { holds, ..Set::keys(comment, key) }
    }

    /// Returns a set to which rules add elements. Without a size the kernel accepts 65,535 (`nft_dynset_init` in
    /// `net/netfilter/nft_dynset.c`). With a size it would allocate 2 MB per set at once, and search all of it every
    /// second: 5,000 empty sets took 0.9 of a core.
    pub fn remembering(comment: &'static str, key: &'static [KeyField]) -> Set {
        Set { expires: true, ..Set::keys(comment, key) }
    }

    /// Returns a set of ranges of the last field.
    pub fn ranges(comment: &'static str, key: &'static [KeyField]) -> Set {
        Set { ranges: true, ..Set::keys(comment, key) }
    }

    pub fn sized(self, size: u32) -> Set {
        Set { size: Some(size), ..self }
    }
}
