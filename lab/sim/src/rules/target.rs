//! The targets of rules.

use std::fmt;

use super::TableName;
use super::ct::Ct;
use super::error::{ParseResult, Problem};
use super::external_targets::{ExternalTarget, SetTarget};
pub use super::hop_limit::HopLimitChange;
use super::nat::NatRange;
pub use super::reject::RejectWith;
use super::tokens::{OptionReader, bare, quote};
use super::{marks, no_effect};
use crate::masked::Masked;
use crate::protocol::Family;

/// The operation of CONNMARK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnmarkAction {
    /// Sets the connection's mark.
    Set,
    /// Copies the packet's mark to the connection.
    Save,
    /// Copies the connection's mark to the packet.
    Restore,
}

/// CONNMARK (net/netfilter/xt_connmark.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connmark {
    /// The operation.
    pub action: ConnmarkAction,
    /// `Set`: the value; otherwise the packet's mask.
    pub value: u32,
    /// Mask of the connection's mark.
    pub mask: u32,
    /// The left shift; negative shifts right.
    pub shift: i8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum RuleTarget {
    None,
    Accept,
    Drop,
    /// In built-in chains, applies the policy.
    Return,
    Jump(String),
    Goto(String),
    Reject(RejectWith),
    /// (mark & !mask) ^ value (net/netfilter/xt_mark.c).
    Mark {
        value: u32,
        /// Bits to clear first.
        mask: u32,
    },
    Connmark(Connmark),
    Dnat(NatRange),
    Snat(NatRange),
    Masquerade(NatRange),
    Redirect(NatRange),
    /// `true` for `CT --notrack`.
    Notrack(bool),
    Ct(Ct),
    /// Maps the destination in PREROUTING and OUTPUT, otherwise the source.
    Netmap(Masked),
    HopLimit(HopLimitChange),
    External(ExternalTarget),
    Set(SetTarget),
    /// An unmodelled target, kept by [`super::Rules::read_any`].
    Unknown {
        name: String,
        options: String,
    },
    /// LOG, NFLOG, TCPMSS and others.
    NoEffect {
        name: &'static str,
        options: Vec<(String, Option<String>)>,
    },
}

fn reject(words: &mut OptionReader<'_>, family: Family) -> ParseResult<RuleTarget> {
    let Some(_) = words.option(|word| word == "--reject-with") else {
        return Ok(RuleTarget::Reject(RejectWith::port_unreachable(family)));
    };
    words.plain()?;
    Ok(RuleTarget::Reject(words.parse("a kind of rejection of this family", |text| RejectWith::parse(family, text))?))
}

fn needs_range(target: &str, range: NatRange) -> ParseResult<NatRange> {
    let some = range.addresses.is_some() || range.ports.is_some();
    if some { Ok(range) } else { Err(Problem::Missing { of: target.to_owned(), what: "a destination or source" }) }
}

impl RuleTarget {
    /// Reads a target; `None` for unknown names.
    pub(crate) fn read(
        name: &str,
        words: &mut OptionReader<'_>,
        family: Family,
        table: TableName,
    ) -> ParseResult<Option<RuleTarget>> {
        let only = |wanted: TableName| {
            let wrong = || Problem::Impossible(format!("{name} belongs to table {wanted}"));
            if table == wanted { Ok(()) } else { Err(wrong()) }
        };
        Ok(Some(match name {
            "ACCEPT" => RuleTarget::Accept,
            "DROP" => RuleTarget::Drop,
            "RETURN" => RuleTarget::Return,
            "REJECT" => {
                only(TableName::Filter)?;
                reject(words, family)?
            }
            "MARK" => marks::mark(words)?,
            "CONNMARK" => marks::connmark(words)?,
            "DNAT" => {
                only(TableName::Nat)?;
                RuleTarget::Dnat(needs_range(name, NatRange::read(words, "--to-destination")?)?)
            }
            "SNAT" => {
                only(TableName::Nat)?;
                RuleTarget::Snat(needs_range(name, NatRange::read(words, "--to-source")?)?)
            }
            "MASQUERADE" | "REDIRECT" => {
                only(TableName::Nat)?;
                let range = NatRange::read(words, "--to-ports")?;
                if name == "REDIRECT" { RuleTarget::Redirect(range) } else { RuleTarget::Masquerade(range) }
            }
            "NOTRACK" => {
                only(TableName::Raw)?;
                RuleTarget::Notrack(false)
            }
            "CT" => {
                only(TableName::Raw)?;
                match words.option(|word| word == "--notrack") {
                    Some(_) => RuleTarget::Notrack(true),
                    None => RuleTarget::Ct(Ct::read(words)?),
                }
            }
            "NETMAP" => {
                only(TableName::Nat)?;
                let option = words.option(|word| word == "--to");
                option.ok_or(Problem::Missing { of: name.to_owned(), what: "--to" })?;
                words.plain()?;
                let network = |text: &str| Masked::parse(text).filter(|network| network.family == family);
                RuleTarget::Netmap(words.parse("a network of this family", network)?)
            }
            "TTL" | "HL" => {
                only(TableName::Mangle)?;
                RuleTarget::HopLimit(HopLimitChange::read(name, words)?)
            }
            "SET" => RuleTarget::Set(SetTarget::read(words)?),
            _ => match ExternalTarget::read(name, words)? {
                Some(external) => RuleTarget::External(external),
                None => return no_effect::read(name, words),
            },
        }))
    }
}

impl fmt::Display for Connmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Connmark { action, value, mask, shift } = self;
        match action {
            ConnmarkAction::Set => write!(f, " --set-xmark 0x{value:x}/0x{mask:x}")?,
            ConnmarkAction::Save => write!(f, " --save-mark --nfmask 0x{value:x} --ctmask 0x{mask:x}")?,
            ConnmarkAction::Restore => write!(f, " --restore-mark --nfmask 0x{value:x} --ctmask 0x{mask:x}")?,
        }
        match shift {
            0 => Ok(()),
            1.. => write!(f, " --left-shift-mark {shift}"),
            _ => write!(f, " --right-shift-mark {}", shift.unsigned_abs()),
        }
    }
}

impl fmt::Display for RuleTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranged = |f: &mut fmt::Formatter<'_>, name: &str, range: &NatRange, option: &str| {
            write!(f, " -j {name}")?;
            range.print(f, option)
        };
        match self {
            RuleTarget::None => Ok(()),
            RuleTarget::Accept => f.write_str(" -j ACCEPT"),
            RuleTarget::Drop => f.write_str(" -j DROP"),
            RuleTarget::Return => f.write_str(" -j RETURN"),
            RuleTarget::Jump(chain) => write!(f, " -j {chain}"),
            RuleTarget::Goto(chain) => write!(f, " -g {chain}"),
            RuleTarget::Reject(with) => write!(f, " -j REJECT --reject-with {with}"),
            RuleTarget::Mark { value, mask } => write!(f, " -j MARK --set-xmark 0x{value:x}/0x{mask:x}"),
            RuleTarget::Connmark(connmark) => write!(f, " -j CONNMARK{connmark}"),
            RuleTarget::Dnat(range) => ranged(f, "DNAT", range, "--to-destination"),
            RuleTarget::Snat(range) => ranged(f, "SNAT", range, "--to-source"),
            RuleTarget::Masquerade(range) => ranged(f, "MASQUERADE", range, "--to-ports"),
            RuleTarget::Redirect(range) => ranged(f, "REDIRECT", range, "--to-ports"),
            RuleTarget::Notrack(false) => f.write_str(" -j NOTRACK"),
            RuleTarget::Notrack(true) => f.write_str(" -j CT --notrack"),
            RuleTarget::Ct(ct) => write!(f, " -j CT{ct}"),
            RuleTarget::Netmap(network) => write!(f, " -j NETMAP --to {network}"),
            RuleTarget::HopLimit(change) => write!(f, " -j {change}"),
            RuleTarget::External(external) => write!(f, " -j {external}"),
            RuleTarget::Set(set) => write!(f, " -j {set}"),
            RuleTarget::Unknown { name, options } if options.is_empty() => write!(f, " -j {name}"),
            RuleTarget::Unknown { name, options } => write!(f, " -j {name} {options}"),
            RuleTarget::NoEffect { name, options } => {
                write!(f, " -j {name}")?;
                for (option, value) in options {
                    write!(f, " {option}")?;
                    if let Some(value) = value {
                        let value = if option.ends_with("-prefix") { quote(value) } else { bare(value) };
                        write!(f, " {value}")?;
                    }
                }
                Ok(())
            }
        }
    }
}
