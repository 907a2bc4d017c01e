//! Rules in a batch.

use nix::libc;

use super::{Batch, Operation, flag};
use crate::error::EncodeError;
use crate::family::Table;
use crate::netlink::{AttributeWriter, NESTED};
use crate::rule::Rule;

/// `include/uapi/linux/netfilter/nf_tables.h`.
pub(crate) const RULE_TABLE: u16 = 1;
pub(crate) const RULE_CHAIN: u16 = 2;
const RULE_HANDLE: u16 = 3;
const RULE_EXPRESSIONS: u16 = 4;
const RULE_COMPAT: u16 = 5;
const RULE_POSITION: u16 = 6;
const RULE_USER_DATA: u16 = 7;
const COMPAT_PROTOCOL: u16 = 1;
const COMPAT_FLAGS: u16 = 2;
const COMPAT_INVERTED: u32 = 1 << 1;

/// A position in a chain. Finding a handle costs the kernel time proportional to the rules of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Before all other rules.
    First,
    /// After all other rules.
    Last,
    /// Before the rule with this handle.
    Before(u64),
    /// After the rule with this handle.
    After(u64),
}

impl Batch {
    /// Appends a rule to a chain.
    pub fn add_rule(&mut self, table: Table<'_>, chain: &str, rule: &Rule) -> Result<Operation, EncodeError> {
        self.insert_rule(table, chain, Position::Last, rule)
    }

    /// Inserts a rule at any position of a chain.
    pub fn insert_rule(
        &mut self,
        table: Table<'_>,
        chain: &str,
        position: Position,
        rule: &Rule,
    ) -> Result<Operation, EncodeError> {
        let (append, neighbour) = match position {
            Position::First => (0, None),
            Position::Last => (flag::APPEND, None),
            Position::Before(handle) => (0, Some(handle)),
            Position::After(handle) => (flag::APPEND, Some(handle)),
        };
        self.operation(libc::NFT_MSG_NEWRULE, flag::CREATE | append, table.family, |writer| {
            place(writer, table, chain);
            if let Some(handle) = neighbour {
                writer.be64(RULE_POSITION, handle);
            }
            content(writer, rule);
        })
    }

    /// Replaces the rule with this handle; the new rule gets another handle.
    pub fn replace_rule(
        &mut self,
        table: Table<'_>,
        chain: &str,
        handle: u64,
        rule: &Rule,
    ) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_NEWRULE, flag::REPLACE, table.family, |writer| {
            place(writer, table, chain);
            writer.be64(RULE_HANDLE, handle);
            content(writer, rule);
        })
    }

    /// Deletes the rule with this handle.
    pub fn delete_rule(&mut self, table: Table<'_>, chain: &str, handle: u64) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELRULE, 0, table.family, |writer| {
            place(writer, table, chain);
            writer.be64(RULE_HANDLE, handle);
        })
    }

    /// Deletes all rules of a chain.
    pub fn flush_chain(&mut self, table: Table<'_>, chain: &str) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELRULE, 0, table.family, |writer| place(writer, table, chain))
    }
}

fn place(writer: &mut AttributeWriter, table: Table<'_>, chain: &str) {
    writer.name(RULE_TABLE, "table", table.name);
    writer.name(RULE_CHAIN, "chain", chain);
}

fn content(writer: &mut AttributeWriter, rule: &Rule) {
    if let Some(error) = rule.error() {
        writer.fail(error.clone());
    }
    writer.put(RULE_EXPRESSIONS | NESTED, rule.expressions());
    if let Some(compat) = rule.compat() {
        writer.nest(RULE_COMPAT, |writer| {
            writer.be32(COMPAT_PROTOCOL, compat.protocol);
            writer.be32(COMPAT_FLAGS, if compat.inverted { COMPAT_INVERTED } else { 0 });
        });
    }
    if !rule.user_data().is_empty() {
        writer.put(RULE_USER_DATA, rule.user_data());
    }
}
