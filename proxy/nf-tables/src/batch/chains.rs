//! Tables and chains in a batch.

use nix::libc;

use super::{Batch, Operation, flag};
use crate::error::EncodeError;
use crate::family::Table;
use crate::netlink::AttributeWriter;

/// `NFTA_TABLE_NAME` (`include/uapi/linux/netfilter/nf_tables.h`).
const TABLE_NAME: u16 = 1;
/// `NFTA_TABLE_USERDATA`, since kernel 5.10.
const TABLE_USER_DATA: u16 = 6;
/// `NFTA_CHAIN_TABLE`, `NFTA_CHAIN_NAME`, `NFTA_CHAIN_HOOK`, `NFTA_CHAIN_POLICY`, `NFTA_CHAIN_TYPE`.
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
/// `NFTA_CHAIN_USERDATA`.
const CHAIN_USER_DATA: u16 = 12;
/// `NFTA_HOOK_HOOKNUM`, `NFTA_HOOK_PRIORITY`.
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;

/// A netfilter hook (`enum nf_inet_hooks` in `include/uapi/linux/netfilter.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Hook {
    /// Before the routing decision.
    Prerouting = 0,
    /// Packets to this machine.
    Input = 1,
    /// Packets that this machine forwards.
    Forward = 2,
    /// Packets of this machine's own processes.
    Output = 3,
    /// After the routing decision, before the packet leaves.
    Postrouting = 4,
}

impl Hook {
    /// The hook with this number.
    pub fn from_number(number: u32) -> Option<Hook> {
        [Hook::Prerouting, Hook::Input, Hook::Forward, Hook::Output, Hook::Postrouting]
            .into_iter()
            .find(|hook| *hook as u32 == number)
    }
}

/// The verdict at the end of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Policy {
    /// Drops the packet.
    Drop = 0,
    /// The packet continues to the next hook.
    Accept = 1,
}

/// The hook of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseChain<'a> {
    /// `filter`, `nat` or `route`.
    pub kind: &'a str,
    /// The hook that calls the chain.
    pub hook: Hook,
    /// The order among the chains of a hook, lowest first.
    pub priority: i32,
    /// The policy; `None` keeps that of an existing chain.
    pub policy: Option<Policy>,
}

impl Batch {
    /// Adds a table, unless it exists.
    pub fn add_table(&mut self, table: Table<'_>) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_NEWTABLE, flag::CREATE, table.family, |writer| {
            writer.name(TABLE_NAME, "table", table.name);
        })
    }

    /// Like [`Batch::add_table`], with at most 256 bytes of user data for a new table.
    pub fn add_table_with(&mut self, table: Table<'_>, data: &[u8]) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_NEWTABLE, flag::CREATE, table.family, |writer| {
            writer.name(TABLE_NAME, "table", table.name);
            writer.put(TABLE_USER_DATA, data);
        })
    }

    /// Deletes a table and its content.
    pub fn delete_table(&mut self, table: Table<'_>) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELTABLE, 0, table.family, |writer| {
            writer.name(TABLE_NAME, "table", table.name);
        })
    }

    /// Adds a regular chain, unless it exists.
    pub fn add_chain(&mut self, table: Table<'_>, chain: &str) -> Result<Operation, EncodeError> {
        self.chain(table, chain, |_| {})
    }

    /// Like [`Batch::add_chain`], with at most 256 bytes of user data.
    pub fn add_chain_with(&mut self, table: Table<'_>, chain: &str, data: &[u8]) -> Result<Operation, EncodeError> {
        self.chain(table, chain, |writer| writer.put(CHAIN_USER_DATA, data))
    }

    /// Adds a base chain. An existing one must have the same hook and priority; only its policy changes.
    pub fn add_base_chain(
        &mut self,
        table: Table<'_>,
        chain: &str,
        base: &BaseChain<'_>,
    ) -> Result<Operation, EncodeError> {
        self.chain(table, chain, |writer| {
            writer.nest(CHAIN_HOOK, |writer| {
                writer.be32(HOOK_NUMBER, base.hook as u32);
                writer.put(HOOK_PRIORITY, &base.priority.to_be_bytes());
            });
            if let Some(policy) = base.policy {
                writer.be32(CHAIN_POLICY, policy as u32);
            }
            writer.name(CHAIN_TYPE, "type of chain", base.kind);
        })
    }

    fn chain(
        &mut self,
        table: Table<'_>,
        chain: &str,
        rest: impl FnOnce(&mut AttributeWriter),
    ) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_NEWCHAIN, flag::CREATE, table.family, |writer| {
            writer.name(CHAIN_TABLE, "table", table.name);
            writer.name(CHAIN_NAME, "chain", chain);
            rest(writer);
        })
    }

    /// Deletes a chain and its rules. The kernel refuses (`EBUSY`) while a rule or an element refers to it.
    pub fn delete_chain(&mut self, table: Table<'_>, chain: &str) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELCHAIN, 0, table.family, |writer| {
            writer.name(CHAIN_TABLE, "table", table.name);
            writer.name(CHAIN_NAME, "chain", chain);
        })
    }
}
