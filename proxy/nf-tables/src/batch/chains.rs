use nix::libc;

use super::{Batch, Operation, flag};
use crate::error::EncodeError;
use crate::family::Table;
use crate::netlink::AttributeWriter;

/// `include/uapi/linux/netfilter/nf_tables.h`.
const NFTA_TABLE_NAME: u16 = 1;
/// Since kernel 5.10.
const NFTA_TABLE_USERDATA: u16 = 6;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_CHAIN_USERDATA: u16 = 12;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;

/// `enum nf_inet_hooks` (`include/uapi/linux/netfilter.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum NfHook {
    /// Before routing.
    Prerouting = 0,
    /// Packets to this machine.
    Input = 1,
    /// Forwarded packets.
    Forward = 2,
    /// Packets from this machine.
    Output = 3,
    /// After routing.
    Postrouting = 4,
}

impl NfHook {
    /// Returns the hook with this number.
    pub fn from_number(number: u32) -> Option<NfHook> {
        [NfHook::Prerouting, NfHook::Input, NfHook::Forward, NfHook::Output, NfHook::Postrouting]
            .into_iter()
            .find(|hook| *hook as u32 == number)
    }
}

/// The verdict at a base chain's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ChainPolicy {
    /// Drops packets.
    Drop = 0,
    /// Passes packets to the next hook.
    Accept = 1,
}

/// A base chain's hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseChain<'a> {
    /// `filter`, `nat` or `route`.
    pub kind: &'a str,
    /// The hook that calls the chain.
    pub hook: NfHook,
    /// The lowest runs first.
    pub priority: i32,
    /// `None` keeps the policy of an existing chain.
    pub policy: Option<ChainPolicy>,
}

impl Batch {
    /// Adds a table, unless it exists.
    pub fn add_table(&mut self, table: Table<'_>) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_NEWTABLE, flag::CREATE, table.family, |writer| {
            writer.name(NFTA_TABLE_NAME, "table", table.name);
        })
    }

    /// Adds a table with at most 256 bytes of user data.
    pub fn add_table_with(&mut self, table: Table<'_>, data: &[u8]) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_NEWTABLE, flag::CREATE, table.family, |writer| {
            writer.name(NFTA_TABLE_NAME, "table", table.name);
            writer.put(NFTA_TABLE_USERDATA, data);
        })
    }

    /// Deletes a table with its content.
    pub fn delete_table(&mut self, table: Table<'_>) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELTABLE, 0, table.family, |writer| {
            writer.name(NFTA_TABLE_NAME, "table", table.name);
        })
    }

    /// Adds a regular chain, unless it exists.
    pub fn add_chain(&mut self, table: Table<'_>, chain: &str) -> Result<Operation, EncodeError> {
        self.chain(table, chain, |_| {})
    }

    /// Adds a chain with at most 256 bytes of user data.
    pub fn add_chain_with(&mut self, table: Table<'_>, chain: &str, data: &[u8]) -> Result<Operation, EncodeError> {
        self.chain(table, chain, |writer| writer.put(NFTA_CHAIN_USERDATA, data))
    }

    /// Adds a base chain, or changes the policy of one with the same hook and priority.
    pub fn add_base_chain(
        &mut self,
        table: Table<'_>,
        chain: &str,
        base: &BaseChain<'_>,
    ) -> Result<Operation, EncodeError> {
        self.chain(table, chain, |writer| {
            writer.nest(NFTA_CHAIN_HOOK, |writer| {
                writer.be32(NFTA_HOOK_HOOKNUM, base.hook as u32);
                writer.put(NFTA_HOOK_PRIORITY, &base.priority.to_be_bytes());
            });
            if let Some(policy) = base.policy {
                writer.be32(NFTA_CHAIN_POLICY, policy as u32);
            }
            writer.name(NFTA_CHAIN_TYPE, "type of chain", base.kind);
        })
    }

    fn chain(
        &mut self,
        table: Table<'_>,
        chain: &str,
        rest: impl FnOnce(&mut AttributeWriter),
    ) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_NEWCHAIN, flag::CREATE, table.family, |writer| {
            writer.name(NFTA_CHAIN_TABLE, "table", table.name);
            writer.name(NFTA_CHAIN_NAME, "chain", chain);
            rest(writer);
        })
    }

    /// Deletes a chain with its rules. The kernel refuses (`EBUSY`) a referenced chain.
    pub fn delete_chain(&mut self, table: Table<'_>, chain: &str) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELCHAIN, 0, table.family, |writer| {
            writer.name(NFTA_CHAIN_TABLE, "table", table.name);
            writer.name(NFTA_CHAIN_NAME, "chain", chain);
        })
    }
}
