//! Objects as the kernel reports them (`include/uapi/linux/netfilter/nf_tables.h`).

use crate::batch::{
    ChainPolicy, ElementValue, MapData, NFT_OBJECT_COUNTER, NFT_SET_ELEM_INTERVAL_END, NfHook, SetFlags,
};
use crate::inspect::Counter;
use crate::netlink::{Attributes, text};
use crate::rule::USER_DATA_COMMENT;
use crate::rule::XtCompat;
use crate::verdict::NfVerdict;

const NFT_DATA_VERDICT: u32 = 0xffff_ff00;

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableInfo<'a> {
    /// The name.
    pub name: &'a str,
    /// The kernel's number.
    pub handle: u64,
    /// `enum nft_table_flags`: 1 is dormant.
    pub flags: u32,
    /// The number of objects.
    pub uses: u32,
    /// User data.
    pub user_data: &'a [u8],
}

impl<'a> TableInfo<'a> {
    pub(crate) fn read(attributes: Attributes<'a>) -> Option<TableInfo<'a>> {
        Some(TableInfo {
            name: attributes.text(1)?,
            flags: attributes.be32(2).unwrap_or_default(),
            uses: attributes.be32(3).unwrap_or_default(),
            handle: attributes.be64(4).unwrap_or_default(),
            user_data: attributes.get(6).unwrap_or_default(),
        })
    }
}

/// A base chain's hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseChainInfo<'a> {
    /// `filter`, `nat` or `route`.
    pub kind: &'a str,
    /// The hook, if supported.
    pub hook: Option<NfHook>,
    /// The lowest runs first.
    pub priority: i32,
    /// The verdict at the chain's end.
    pub policy: ChainPolicy,
}

/// A chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainInfo<'a> {
    /// The table.
    pub table: &'a str,
    /// The name.
    pub name: &'a str,
    /// The kernel's number.
    pub handle: u64,
    /// The number of rules plus references.
    pub uses: u32,
    /// The hook of a base chain.
    pub base: Option<BaseChainInfo<'a>>,
    /// User data.
    pub user_data: &'a [u8],
}

impl<'a> ChainInfo<'a> {
    pub(crate) fn read(attributes: Attributes<'a>) -> Option<ChainInfo<'a>> {
        let hook = attributes.nested(4);
        let base = hook.be32(1).map(|number| BaseChainInfo {
            kind: attributes.text(7).unwrap_or_default(),
            hook: NfHook::from_number(number),
            priority: hook.be32(2).unwrap_or_default().cast_signed(),
            policy: if attributes.be32(5) == Some(0) { ChainPolicy::Drop } else { ChainPolicy::Accept },
        });
        Some(ChainInfo {
            table: attributes.text(1)?,
            name: attributes.text(3)?,
            handle: attributes.be64(2).unwrap_or_default(),
            uses: attributes.be32(6).unwrap_or_default(),
            base,
            user_data: attributes.get(12).unwrap_or_default(),
        })
    }
}

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleInfo<'a> {
    /// The kernel's number.
    pub handle: u64,
    /// The chain.
    pub chain: &'a str,
    /// Bytes for [`expressions`](crate::expressions) and [`canonical`](crate::canonical()).
    pub expressions: &'a [u8],
    /// The protocol for xt matches; old kernels omit it.
    pub compat: Option<XtCompat>,
    /// User data.
    pub user_data: &'a [u8],
}

impl<'a> RuleInfo<'a> {
    pub(crate) fn read(attributes: Attributes<'a>) -> Option<RuleInfo<'a>> {
        let compat = attributes.nested(5);
        let compat = compat.be32(1).map(|protocol| XtCompat {
            protocol,
            // `NFT_RULE_COMPAT_F_INV`.
            inverted: compat.be32(2).unwrap_or_default() & 2 != 0,
        });
        Some(RuleInfo {
            handle: attributes.be64(3)?,
            chain: attributes.text(2)?,
            expressions: attributes.get(4).unwrap_or_default(),
            compat,
            user_data: attributes.get(7).unwrap_or_default(),
        })
    }

    /// Returns the comment of [`Rule::set_comment`](crate::Rule::set_comment).
    pub fn comment(&self) -> Option<&'a str> {
        let mut rest = self.user_data;
        while let [kind, length, after @ ..] = rest {
            let value = after.get(..usize::from(*length))?;
            if *kind == USER_DATA_COMMENT {
                return text(value);
            }
            rest = after.get(value.len()..)?;
        }
        None
    }
}

/// A flowtable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowtableInfo<'a> {
    /// The name.
    pub name: &'a str,
    /// The kernel's number.
    pub handle: u64,
    /// The number of referring rules.
    pub uses: u32,
    /// The flowtable's links.
    pub links: Vec<&'a str>,
}

impl<'a> FlowtableInfo<'a> {
    pub(crate) fn read(attributes: Attributes<'a>) -> Option<FlowtableInfo<'a>> {
        // `NFTA_FLOWTABLE_HOOK`, `NFTA_FLOWTABLE_HOOK_DEVS`.
        let links = attributes.nested(3).nested(3);
        Some(FlowtableInfo {
            name: attributes.text(2)?,
            handle: attributes.be64(5).unwrap_or_default(),
            uses: attributes.be32(4).unwrap_or_default(),
            links: links.filter(|link| link.kind == 1).filter_map(|link| text(link.value)).collect(),
        })
    }
}

/// A named counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterInfo<'a> {
    /// The name.
    pub name: &'a str,
    /// The kernel's number.
    pub handle: u64,
    /// The number of referring elements and rules.
    pub uses: u32,
    /// The values.
    pub counter: Counter,
}

impl<'a> CounterInfo<'a> {
    pub(crate) fn read(attributes: Attributes<'a>) -> Option<CounterInfo<'a>> {
        // `NFTA_OBJ_DATA`: `NFTA_COUNTER_PACKETS`, `NFTA_COUNTER_BYTES`.
        let values = attributes.nested(4);
        Some(CounterInfo {
            name: attributes.text(2)?,
            handle: attributes.be64(6).unwrap_or_default(),
            uses: attributes.be32(5).unwrap_or_default(),
            counter: Counter { packets: values.be64(2)?, bytes: values.be64(1)? },
        })
    }
}

/// A set or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetInfo<'a> {
    /// The name.
    pub name: &'a str,
    /// The kernel's number.
    pub handle: u64,
    /// The flags.
    pub flags: SetFlags,
    /// The type's number for `nft`.
    pub key_type: u32,
    /// In bytes.
    pub key_length: u32,
    /// The kind of values, for maps.
    pub data: Option<MapData>,
    /// Default, in milliseconds.
    pub timeout: Option<u64>,
    /// The most elements.
    pub size: Option<u32>,
    /// User data.
    pub user_data: &'a [u8],
}

impl<'a> SetInfo<'a> {
    pub(crate) fn read(attributes: Attributes<'a>) -> Option<SetInfo<'a>> {
        let flags = SetFlags(attributes.be32(3).unwrap_or_default());
        // `NFTA_SET_OBJ_TYPE`.
        let counters = (attributes.be32(15) == Some(NFT_OBJECT_COUNTER)).then_some(MapData::Counter);
        let data = match attributes.be32(6) {
            Some(NFT_DATA_VERDICT) => Some(MapData::Verdict),
            Some(kind) => Some(MapData::Value { kind, length: attributes.be32(7).unwrap_or_default() }),
            None => None,
        };
        Some(SetInfo {
            name: attributes.text(2)?,
            handle: attributes.be64(16).unwrap_or_default(),
            flags,
            key_type: attributes.be32(4).unwrap_or_default(),
            key_length: attributes.be32(5).unwrap_or_default(),
            data: counters.or(data.filter(|_| flags.0 & SetFlags::MAP.0 != 0)),
            timeout: attributes.be64(11),
            size: attributes.nested(9).be32(1),
            user_data: attributes.get(13).unwrap_or_default(),
        })
    }
}

/// An element of a set or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementInfo<'a> {
    /// The key.
    pub key: &'a [u8],
    /// A range's last key, in sets of concatenated ranges.
    pub key_end: Option<&'a [u8]>,
    /// Whether the key is the first after a plain range.
    pub interval_end: bool,
    /// The value, in maps.
    pub value: Option<ElementValue<'a>>,
    /// In milliseconds.
    pub timeout: Option<u64>,
    /// The remaining milliseconds.
    pub expires: Option<u64>,
    /// User data.
    pub user_data: &'a [u8],
}

impl<'a> ElementInfo<'a> {
    pub(crate) fn read(attributes: Attributes<'a>) -> Option<ElementInfo<'a>> {
        let data = attributes.nested(2);
        // `NFTA_DATA_VALUE`, else `NFTA_DATA_VERDICT`.
        let value = data.get(1).map(ElementValue::Data).or_else(|| NfVerdict::read(data).map(ElementValue::Verdict));
        // `NFTA_SET_ELEM_OBJREF`.
        let value = value.or_else(|| attributes.text(9).map(ElementValue::Counter));
        Some(ElementInfo {
            key: attributes.nested(1).get(1)?,
            key_end: attributes.nested(10).get(1),
            interval_end: attributes.be32(3).unwrap_or_default() & NFT_SET_ELEM_INTERVAL_END != 0,
            value,
            timeout: attributes.be64(4),
            expires: attributes.be64(5),
            user_data: attributes.get(6).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_comment_is_found_behind_other_user_data() {
        let rule = |user_data| RuleInfo { handle: 1, chain: "a", expressions: &[], compat: None, user_data };
        assert_eq!(rule(&[7, 2, 9, 9, 0, 3, b'h', b'i', 0]).comment(), Some("hi"));
        assert_eq!(rule(&[7, 2, 9, 9]).comment(), None);
        assert_eq!(rule(&[0, 9, b'h', b'i', 0]).comment(), None, "cut off");
        assert_eq!(rule(&[]).comment(), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(prop_oneof![0u8..20, any::<u8>()], 0..200)) {
            let attributes = Attributes::new(&bytes);
            let _ = (TableInfo::read(attributes), ChainInfo::read(attributes), SetInfo::read(attributes));
            let _ = (FlowtableInfo::read(attributes), CounterInfo::read(attributes));
            let _ = (RuleInfo::read(attributes).map(|rule| rule.comment().is_some()), ElementInfo::read(attributes));
        }
    }
}
