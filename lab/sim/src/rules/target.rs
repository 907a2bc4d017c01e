//! What a rule does with a packet.

use std::fmt;

use super::TableName;
use super::ct::Ct;
use super::error::{ParseResult, Problem};
use super::external_targets::{ExternalTarget, SetTarget};
use super::nat::NatRange;
pub use super::reject::RejectWith;
use super::tokens::{OptionReader, bare, quote};
use super::{marks, no_effect};
use crate::masked::Masked;
use crate::protocol::Family;

/// What CONNMARK does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnmarkAction {
    /// Changes the connection's mark.
    Set,
    /// Packet's mark to the connection.
    Save,
    /// Connection's mark to the packet.
    Restore,
}

/// A target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleTarget {
    /// None: the rule only counts (and whatever its matches do).
    None,
    /// Lets the packet pass this table at this hook.
    Accept,
    /// Drops it.
    Drop,
    /// Back to the calling chain; at a built-in chain to its policy.
    Return,
    /// Calls a chain.
    Jump(String),
    /// Continues in a chain that returns to this one's caller.
    Goto(String),
    /// Drops it and tells the sender.
    Reject(RejectWith),
    /// mark = (mark & !mask) ^ value (net/netfilter/xt_mark.c).
    Mark {
        /// Value.
        value: u32,
        /// Bits that are zeroed first.
        mask: u32,
    },
    /// Marks of connections (net/netfilter/xt_connmark.c).
    Connmark {
        /// What is done.
        action: ConnmarkAction,
        /// Value, or for saving and restoring the bits of the packet's mark.
        value: u32,
        /// Mask of the connection's mark.
        mask: u32,
        /// By how many bits what is set, saved or restored is shifted to the left; to the right if negative.
        shift: i8,
    },
    /// Translates the destination.
    Dnat(NatRange),
    /// Translates the source.
    Snat(NatRange),
    /// Translates the source to an address of the outgoing interface.
    Masquerade(NatRange),
    /// Translates the destination to this machine.
    Redirect(NatRange),
    /// The connection is not tracked; the flag says that it is spelled `CT --notrack`.
    Notrack(bool),
    /// How the connection is tracked.
    Ct(Ct),
    /// Translates the network's part of an address: of the destination at PREROUTING and OUTPUT, of the source at INPUT and POSTROUTING.
    Netmap(Masked),
    /// A program outside, or another part of the kernel, goes on with the packet.
    External(ExternalTarget),
    /// Changes IP sets, or takes something from one.
    Set(SetTarget),
    /// Not modelled, or not with these options; only [`super::Rules::read_any`] keeps it.
    Unknown {
        /// Its name.
        name: String,
        /// Its options as they stand.
        options: String,
    },
    /// LOG, NFLOG, TCPMSS and the like: what it does is of no concern to a verdict. Options as they stand.
    NoEffect {
        /// Its name.
        name: &'static str,
        /// Options, each with its value.
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
    /// Reads the target called `name` and its options; none if no target is called so.
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
            "SET" => RuleTarget::Set(SetTarget::read(words)?),
            _ => match ExternalTarget::read(name, words)? {
                Some(external) => RuleTarget::External(external),
                None => return no_effect::read(name, words),
            },
        }))
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
            RuleTarget::Connmark { action, value, mask, shift } => {
                match action {
                    ConnmarkAction::Set => write!(f, " -j CONNMARK --set-xmark 0x{value:x}/0x{mask:x}")?,
                    ConnmarkAction::Save => {
                        write!(f, " -j CONNMARK --save-mark --nfmask 0x{value:x} --ctmask 0x{mask:x}")?;
                    }
                    ConnmarkAction::Restore => {
                        write!(f, " -j CONNMARK --restore-mark --nfmask 0x{value:x} --ctmask 0x{mask:x}")?;
                    }
                }
                match shift {
                    0 => Ok(()),
                    1.. => write!(f, " --left-shift-mark {shift}"),
                    _ => write!(f, " --right-shift-mark {}", shift.unsigned_abs()),
                }
            }
            RuleTarget::Dnat(range) => ranged(f, "DNAT", range, "--to-destination"),
            RuleTarget::Snat(range) => ranged(f, "SNAT", range, "--to-source"),
            RuleTarget::Masquerade(range) => ranged(f, "MASQUERADE", range, "--to-ports"),
            RuleTarget::Redirect(range) => ranged(f, "REDIRECT", range, "--to-ports"),
            RuleTarget::Notrack(false) => f.write_str(" -j NOTRACK"),
            RuleTarget::Notrack(true) => f.write_str(" -j CT --notrack"),
            RuleTarget::Ct(ct) => write!(f, " -j CT{ct}"),
            RuleTarget::Netmap(network) => write!(f, " -j NETMAP --to {network}"),
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
