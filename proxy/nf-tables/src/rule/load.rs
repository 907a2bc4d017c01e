//! Expressions that load a register.

use super::{Rule, value};

/// One of four registers of 16 bytes, which are also sixteen of four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register(pub(super) u32);

impl Register {
    /// Register of verdicts.
    pub const VERDICT: Register = Register(0);
    /// First 16 bytes.
    pub const R1: Register = Register(1);
    /// Second 16 bytes.
    pub const R2: Register = Register(2);
    /// Third 16 bytes.
    pub const R3: Register = Register(3);
    /// Fourth 16 bytes.
    pub const R4: Register = Register(4);

    /// Returns `NFT_REG32_00` plus `index`. The kernel reports the first of four as the 16-byte register.
    pub fn word(index: u32) -> Register {
        if index.is_multiple_of(4) { Register(1 + index / 4) } else { Register(8 + index) }
    }
}

/// `enum nft_payload_bases`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum PayloadBase {
    /// Link layer header.
    Link = 0,
    /// IP header.
    Network = 1,
    /// TCP, UDP, SCTP.
    Transport = 2,
}

/// `enum nft_meta_keys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaKey(pub u32);

impl MetaKey {
    /// Packet mark, in host order.
    pub const MARK: MetaKey = MetaKey(3);
    /// Input interface, 16 bytes.
    pub const IIFNAME: MetaKey = MetaKey(6);
    /// Output interface, 16 bytes.
    pub const OIFNAME: MetaKey = MetaKey(7);
    /// One byte.
    pub const NFPROTO: MetaKey = MetaKey(15);
    /// One byte.
    pub const L4PROTO: MetaKey = MetaKey(16);
}

/// `enum nft_ct_keys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CtKey(pub u32);

impl CtKey {
    /// `NF_CT_STATE_BIT`: established 2, related 4, new 8.
    pub const STATE: CtKey = CtKey(0);
    /// `enum ip_conntrack_dir`, one byte.
    pub const DIRECTION: CtKey = CtKey(1);
    /// `enum ip_conntrack_status`: source NAT 0x10, destination NAT 0x20.
    pub const STATUS: CtKey = CtKey(2);
    /// Connection mark.
    pub const MARK: CtKey = CtKey(3);
    /// A direction's source port.
    pub const PROTO_SRC: CtKey = CtKey(11);
    /// A direction's destination port.
    pub const PROTO_DST: CtKey = CtKey(12);
    /// Both directions, eight bytes in host order. Enables `net.netfilter.nf_conntrack_acct` for new connections.
    pub const PACKETS: CtKey = CtKey(14);
    /// A direction's IPv4 source.
    pub const SRC_IP: CtKey = CtKey(19);
    /// A direction's IPv4 destination.
    pub const DST_IP: CtKey = CtKey(20);
    /// A direction's IPv6 source.
    pub const SRC_IP6: CtKey = CtKey(21);
    /// A direction's IPv6 destination.
    pub const DST_IP6: CtKey = CtKey(22);
}

/// `enum ip_conntrack_dir`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CtDirection {
    /// From the client.
    Original = 0,
    /// To the client.
    Reply = 1,
}

/// `enum nft_fib_result`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FibResult {
    /// Output interface's index.
    Oif = 1,
    /// Output interface's name.
    Oifname = 2,
    /// `RTN_LOCAL` is 2.
    AddressType = 3,
}

/// `NFTA_FIB_F_SADDR`.
pub const FIB_SOURCE: u32 = 1;
/// `NFTA_FIB_F_DADDR`.
pub const FIB_DESTINATION: u32 = 2;

/// `enum nft_ng_types`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Numgen {
    /// Consecutive numbers.
    Increment = 0,
    /// Random numbers.
    Random = 1,
}

/// `jhash` (`include/linux/jhash.h`) of a register's bytes, scaled to a number below `modulus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jhash {
    /// The first register.
    pub from: Register,
    /// Bytes, with the padding of each field to four bytes.
    pub length: u32,
    /// The end of the numbers.
    pub modulus: u32,
    /// Initial value; the kernel would draw one.
    pub seed: u32,
}

/// `register = (register & mask) ^ xor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bitwise<'a> {
    /// Bits to keep.
    pub mask: &'a [u8],
    /// Bits to invert.
    pub xor: &'a [u8],
}

/// A lookup in a set or map of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookup<'a> {
    set: &'a str,
    to: Option<Register>,
    inverted: bool,
}

impl<'a> Lookup<'a> {
    /// Matches if the set has the key.
    pub fn set(set: &'a str) -> Lookup<'a> {
        Lookup { set, to: None, inverted: false }
    }

    /// Matches if the set lacks the key.
    pub fn not_in(set: &'a str) -> Lookup<'a> {
        Lookup { set, to: None, inverted: true }
    }

    /// Loads the key's value; verdicts go to [`Register::VERDICT`].
    pub fn map(map: &'a str, to: Register) -> Lookup<'a> {
        Lookup { set: map, to: Some(to), inverted: false }
    }
}

/// Attribute types: `include/uapi/linux/netfilter/nf_tables.h`.
impl Rule {
    /// `enum nft_payload_attributes`.
    pub fn payload(&mut self, header: PayloadBase, offset: u32, length: u32, to: Register) -> &mut Rule {
        self.expression("payload", |writer| {
            writer.be32(1, to.0);
            writer.be32(2, header as u32);
            writer.be32(3, offset);
            writer.be32(4, length);
        })
    }

    /// `enum nft_meta_attributes`.
    pub fn meta(&mut self, key: MetaKey, to: Register) -> &mut Rule {
        self.expression("meta", |writer| {
            writer.be32(2, key.0);
            writer.be32(1, to.0);
        })
    }

    /// `enum nft_ct_attributes`.
    pub fn ct(&mut self, key: CtKey, to: Register) -> &mut Rule {
        self.expression("ct", |writer| {
            writer.be32(1, to.0);
            writer.be32(2, key.0);
        })
    }

    /// Loads a field of one direction.
    pub fn ct_of(&mut self, key: CtKey, direction: CtDirection, to: Register) -> &mut Rule {
        self.expression("ct", |writer| {
            writer.be32(1, to.0);
            writer.be32(2, key.0);
            writer.put(3, &[direction as u8]);
        })
    }

    /// Converts eight-byte numbers (`enum nft_byteorder_attributes`).
    pub fn to_network_order(&mut self, from: Register, to: Register) -> &mut Rule {
        self.expression("byteorder", |writer| {
            writer.be32(1, from.0);
            writer.be32(2, to.0);
            // `NFT_BYTEORDER_HTON`; lengths.
            writer.be32(3, 1);
            writer.be32(4, 8);
            writer.be32(5, 8);
        })
    }

    /// `enum nft_fib_attributes`.
    pub fn fib(&mut self, result: FibResult, flags: u32, to: Register) -> &mut Rule {
        self.expression("fib", |writer| {
            writer.be32(1, to.0);
            writer.be32(2, result as u32);
            writer.be32(3, flags);
        })
    }

    /// Loads a number below `modulus`, plus `offset` (`enum nft_ng_attributes`).
    pub fn numgen(&mut self, kind: Numgen, modulus: u32, offset: u32, to: Register) -> &mut Rule {
        self.expression("numgen", |writer| {
            writer.be32(1, to.0);
            writer.be32(2, modulus);
            writer.be32(3, kind as u32);
            writer.be32(4, offset);
        })
    }

    /// Loads a hash (`enum nft_hash_attributes`).
    pub fn jhash(&mut self, hash: Jhash, to: Register) -> &mut Rule {
        self.expression("hash", |writer| {
            writer.be32(1, hash.from.0);
            writer.be32(2, to.0);
            writer.be32(3, hash.length);
            writer.be32(4, hash.modulus);
            writer.be32(5, hash.seed);
            // `NFT_HASH_JENKINS`.
            writer.be32(7, 0);
        })
    }

    /// `enum nft_bitwise_attributes`.
    pub fn bitwise(&mut self, from: Register, to: Register, bits: Bitwise<'_>) -> &mut Rule {
        let length = u32::try_from(bits.mask.len()).unwrap_or(u32::MAX);
        self.expression("bitwise", |writer| {
            writer.be32(1, from.0);
            writer.be32(2, to.0);
            writer.be32(3, length);
            value(writer, 4, bits.mask);
            value(writer, 5, bits.xor);
        })
    }

    /// Loads a constant (`enum nft_immediate_attributes`).
    pub fn immediate(&mut self, data: &[u8], to: Register) -> &mut Rule {
        self.expression("immediate", |writer| {
            writer.be32(1, to.0);
            value(writer, 2, data);
        })
    }

    /// `enum nft_lookup_attributes`.
    pub fn lookup(&mut self, key: Register, lookup: Lookup<'_>) -> &mut Rule {
        self.expression("lookup", |writer| {
            writer.name(1, "set", lookup.set);
            writer.be32(2, key.0);
            if let Some(to) = lookup.to {
                writer.be32(3, to.0);
            }
            if lookup.inverted {
                writer.be32(5, 1);
            }
        })
    }
}
