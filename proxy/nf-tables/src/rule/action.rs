//! Expressions with effects.

use super::Rule;
use super::load::{MetaKey, Register};
use crate::family::Family;
use crate::verdict::NfVerdict;

/// `enum nft_nat_types`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum NatKind {
    /// Source address.
    Source = 0,
    /// Destination address.
    Destination = 1,
}

/// Translation to address and port in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat {
    /// The address that is translated.
    pub kind: NatKind,
    /// The addresses' family, also in `inet` tables.
    pub family: Family,
    /// New address.
    pub address: Option<Register>,
    /// The new port, in network order.
    pub port: Option<Register>,
    /// `NF_NAT_RANGE_*`: random-fully is 0x10.
    pub flags: u32,
}

/// `enum nft_reject_types`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reject {
    /// Port unreachable: 3 in IPv4, 4 in IPv6.
    Icmp(u8),
    /// A TCP reset.
    TcpReset,
    /// `enum nft_reject_inet_code`, for both families: port unreachable is 1.
    IcmpX(u8),
}

/// `enum nft_dynset_ops`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum SetUpdate {
    /// Adds the key, unless it exists.
    Add = 0,
    /// Adds the key, or restarts its timeout.
    Update = 1,
    /// Deletes the key.
    Delete = 2,
}

/// Attribute types: `include/uapi/linux/netfilter/nf_tables.h`.
impl Rule {
    /// Counts from zero (`enum nft_counter_attributes`).
    pub fn counter(&mut self) -> &mut Rule {
        self.counter_from(0, 0)
    }

    /// Counts from these values.
    pub fn counter_from(&mut self, packets: u64, bytes: u64) -> &mut Rule {
        self.expression("counter", |writer| {
            writer.be64(1, bytes);
            writer.be64(2, packets);
        })
    }

    /// Counts by the named counter that the map has for the key; ends the rule without one (`enum nft_objref_attributes`).
    pub fn counter_by(&mut self, map: &str, key: Register) -> &mut Rule {
        self.expression("objref", |writer| {
            writer.be32(3, key.0);
            writer.name(4, "map", map);
        })
    }

    /// Ends the rule (`enum nft_immediate_attributes`).
    pub fn verdict(&mut self, verdict: NfVerdict<'_>) -> &mut Rule {
        self.expression("immediate", |writer| {
            writer.be32(1, Register::VERDICT.0);
            writer.nest(2, |writer| verdict.write(writer));
        })
    }

    /// Adds connections to a flowtable, in forward base chains (`enum nft_offload_attributes`).
    pub fn flow_add(&mut self, flowtable: &str) -> &mut Rule {
        self.expression("flow_offload", |writer| writer.name(1, "flowtable", flowtable))
    }

    /// Sets a field from a register (`enum nft_meta_attributes`).
    pub fn set_meta(&mut self, key: MetaKey, from: Register) -> &mut Rule {
        self.expression("meta", |writer| {
            writer.be32(2, key.0);
            writer.be32(3, from.0);
        })
    }

    /// `enum nft_nat_attributes`.
    pub fn nat(&mut self, nat: Nat) -> &mut Rule {
        self.expression("nat", |writer| {
            writer.be32(1, nat.kind as u32);
            writer.be32(2, u32::from(nat.family.code()));
            if let Some(address) = nat.address {
                writer.be32(3, address.0);
            }
            if let Some(port) = nat.port {
                writer.be32(5, port.0);
            }
            if nat.flags != 0 {
                writer.be32(7, nat.flags);
            }
        })
    }

    /// Source NAT (`enum nft_masq_attributes`).
    pub fn masquerade(&mut self, flags: u32) -> &mut Rule {
        self.expression("masq", |writer| {
            if flags != 0 {
                writer.be32(1, flags);
            }
        })
    }

    /// DNAT to this machine (`enum nft_redir_attributes`).
    pub fn redirect(&mut self, port: Option<Register>, flags: u32) -> &mut Rule {
        self.expression("redir", |writer| {
            if let Some(port) = port {
                writer.be32(1, port.0);
            }
            if flags != 0 {
                writer.be32(3, flags);
            }
        })
    }

    /// `enum nft_reject_attributes`.
    pub fn reject(&mut self, reject: Reject) -> &mut Rule {
        let (kind, code) = match reject {
            Reject::Icmp(code) => (0, code),
            Reject::TcpReset => (1, 0),
            Reject::IcmpX(code) => (2, code),
        };
        self.expression("reject", |writer| {
            writer.be32(1, kind);
            writer.put(2, &[code]);
        })
    }

    /// Changes a set with [`SetFlags::DYNAMIC`](crate::SetFlags::DYNAMIC) (`enum nft_dynset_attributes`). `timeout` is
    /// in milliseconds; 0 is the set's default.
    pub fn update_set(&mut self, set: &str, update: SetUpdate, key: Register, timeout: u64) -> &mut Rule {
        self.expression("dynset", |writer| {
            writer.name(1, "set", set);
            writer.be32(3, update as u32);
            writer.be32(4, key.0);
            if timeout != 0 {
                writer.be64(6, timeout);
            }
        })
    }
}
