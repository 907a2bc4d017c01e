//! Tables and chains.

use nix::libc;

use super::{Batch, Operation, flag};
use crate::error::EncodeError;
use crate::family::Table;
use crate::writer::Writer;

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

/// Where packets come by (`enum nf_inet_hooks` in `include/uapi/linux/netfilter.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Hook {
    /// Before the route is looked up.
    Prerouting = 0,
    /// To this machine.
    Input = 1,
    /// Through this machine.
    Forward = 2,
    /// From this machine.
    Output = 3,
    /// On its way out.
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

/// What happens to packets at the end of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Policy {
    /// They are dropped.
    Drop = 0,
    /// They go on.
    Accept = 1,
}

/// What makes a chain a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseChain<'a> {
    /// `filter`, `nat` or `route`.
    pub kind: &'a str,
    /// Where packets come from.
    pub hook: Hook,
    /// Order among the chains of a hook: lower ones are first.
    pub priority: i32,
    /// What happens at its end; `None` keeps what a chain has that is there already.
    pub policy: Option<Policy>,
}

impl Batch {
    /// A table, unless it is there already.
    ///
    /// # Errors
    /// Where the name is none.
    pub fn add_table(&mut self, table: Table<'_>) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_NEWTABLE, flag::CREATE, table.family, |writer| {
            writer.name(TABLE_NAME, "table", table.name);
        })
    }

    /// As [`Batch::add_table`], with at most 256 bytes that the kernel keeps with a new table.
    ///
    /// # Errors
    /// Where the name is none.
    pub fn add_table_with(&mut self, table: Table<'_>, data: &[u8]) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_NEWTABLE, flag::CREATE, table.family, |writer| {
            writer.name(TABLE_NAME, "table", table.name);
            writer.put(TABLE_USER_DATA, data);
        })
    }

    /// Deletes a table with all that is in it.
    ///
    /// # Errors
    /// Where the name is none.
    pub fn delete_table(&mut self, table: Table<'_>) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELTABLE, 0, table.family, |writer| {
            writer.name(TABLE_NAME, "table", table.name);
        })
    }

    /// A chain that packets come to by jumps, unless it is there already.
    ///
    /// # Errors
    /// Where a name is none.
    pub fn add_chain(&mut self, table: Table<'_>, chain: &str) -> Result<Operation, EncodeError> {
        self.chain(table, chain, |_| {})
    }

    /// As [`Batch::add_chain`], with at most 256 bytes that the kernel keeps with it.
    ///
    /// # Errors
    /// Where a name is none.
    pub fn add_chain_with(&mut self, table: Table<'_>, chain: &str, data: &[u8]) -> Result<Operation, EncodeError> {
        self.chain(table, chain, |writer| writer.put(CHAIN_USER_DATA, data))
    }

    /// A chain that packets come to by a hook. One that is there already must have the same hook and priority; only its
    /// policy changes.
    ///
    /// # Errors
    /// Where a name is none.
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
        rest: impl FnOnce(&mut Writer),
    ) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_NEWCHAIN, flag::CREATE, table.family, |writer| {
            writer.name(CHAIN_TABLE, "table", table.name);
            writer.name(CHAIN_NAME, "chain", chain);
            rest(writer);
        })
    }

    /// Deletes a chain with its rules. The kernel refuses (`EBUSY`) while something jumps to it.
    ///
    /// # Errors
    /// Where a name is none.
    pub fn delete_chain(&mut self, table: Table<'_>, chain: &str) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELCHAIN, 0, table.family, |writer| {
            writer.name(CHAIN_TABLE, "table", table.name);
            writer.name(CHAIN_NAME, "chain", chain);
        })
    }
}
