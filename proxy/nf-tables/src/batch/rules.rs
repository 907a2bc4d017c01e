use nix::libc;

use super::{Batch, Operation, flag};
use crate::error::EncodeError;
use crate::family::Table;
use crate::netlink::{AttributeWriter, NESTED};
use crate::rule::Rule;

/// `include/uapi/linux/netfilter/nf_tables.h`.
pub(crate) const NFTA_RULE_TABLE: u16 = 1;
pub(crate) const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_HANDLE: u16 = 3;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_RULE_COMPAT: u16 = 5;
const NFTA_RULE_POSITION: u16 = 6;
const NFTA_RULE_USERDATA: u16 = 7;
const NFTA_RULE_COMPAT_PROTO: u16 = 1;
const NFTA_RULE_COMPAT_FLAGS: u16 = 2;
const NFT_RULE_COMPAT_F_INV: u32 = 1 << 1;

/// A new rule's position. The kernel searches the chain for a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RulePosition {
    /// Before all others.
    First,
    /// After all others.
    Last,
    /// Before this handle.
    Before(u64),
    /// After this handle.
    After(u64),
}

impl Batch {
    /// Appends a rule.
    pub fn add_rule(&mut self, table: Table<'_>, chain: &str, rule: &Rule) -> Result<Operation, EncodeError> {
        self.insert_rule(table, chain, RulePosition::Last, rule)
    }

    /// Inserts a rule.
    pub fn insert_rule(
        &mut self,
        table: Table<'_>,
        chain: &str,
        position: RulePosition,
        rule: &Rule,
    ) -> Result<Operation, EncodeError> {
        let (append, neighbour) = match position {
            RulePosition::First => (0, None),
            RulePosition::Last => (flag::APPEND, None),
            RulePosition::Before(handle) => (0, Some(handle)),
            RulePosition::After(handle) => (flag::APPEND, Some(handle)),
        };
        self.operation(libc::NFT_MSG_NEWRULE, flag::CREATE | append, table.family, |writer| {
            place(writer, table, chain);
            if let Some(handle) = neighbour {
                writer.be64(NFTA_RULE_POSITION, handle);
            }
            content(writer, rule);
        })
    }

    /// Replaces a rule; assigns a new handle.
    pub fn replace_rule(
        &mut self,
        table: Table<'_>,
        chain: &str,
        handle: u64,
        rule: &Rule,
    ) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_NEWRULE, flag::REPLACE, table.family, |writer| {
            place(writer, table, chain);
            writer.be64(NFTA_RULE_HANDLE, handle);
            content(writer, rule);
        })
    }

    /// Deletes the rule with this handle.
    pub fn delete_rule(&mut self, table: Table<'_>, chain: &str, handle: u64) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELRULE, 0, table.family, |writer| {
            place(writer, table, chain);
            writer.be64(NFTA_RULE_HANDLE, handle);
        })
    }

    /// Deletes all rules.
    pub fn flush_chain(&mut self, table: Table<'_>, chain: &str) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELRULE, 0, table.family, |writer| place(writer, table, chain))
    }
}

fn place(writer: &mut AttributeWriter, table: Table<'_>, chain: &str) {
    writer.name(NFTA_RULE_TABLE, "table", table.name);
    writer.name(NFTA_RULE_CHAIN, "chain", chain);
}

fn content(writer: &mut AttributeWriter, rule: &Rule) {
    if let Some(error) = rule.error() {
        writer.fail(error.clone());
    }
    writer.put(NFTA_RULE_EXPRESSIONS | NESTED, rule.expressions());
    if let Some(compat) = rule.compat() {
        writer.nest(NFTA_RULE_COMPAT, |writer| {
            writer.be32(NFTA_RULE_COMPAT_PROTO, compat.protocol);
            writer.be32(NFTA_RULE_COMPAT_FLAGS, if compat.inverted { NFT_RULE_COMPAT_F_INV } else { 0 });
        });
    }
    if !rule.user_data().is_empty() {
        writer.put(NFTA_RULE_USERDATA, rule.user_data());
    }
}
