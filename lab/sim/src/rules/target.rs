//! What a rule does with a packet.

use std::fmt;

use super::TableName;
use super::error::{Part, Problem};
use super::nat::NatRange;
pub use super::reject::RejectWith;
use super::tokens::{Words, marked, number, quote};
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
pub enum Target {
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
    /// LOG, NFLOG, TCPMSS: what it does is of no concern to a verdict. Options as they stand.
    NoEffect {
        /// Its name.
        name: &'static str,
        /// Options, each with its value.
        options: Vec<(String, Option<String>)>,
    },
}

/// Targets that do not change which way a packet goes, with their options; true: the option has a value.
const NO_EFFECT: [(&str, &[(&str, bool)]); 3] = [
    (
        "LOG",
        &[
            ("--log-level", true),
            ("--log-prefix", true),
            ("--log-tcp-sequence", false),
            ("--log-tcp-options", false),
            ("--log-ip-options", false),
            ("--log-uid", false),
            ("--log-macdecode", false),
        ],
    ),
    (
        "NFLOG",
        &[
            ("--nflog-group", true),
            ("--nflog-prefix", true),
            ("--nflog-range", true),
            ("--nflog-size", true),
            ("--nflog-threshold", true),
        ],
    ),
    ("TCPMSS", &[("--set-mss", true), ("--clamp-mss-to-pmtu", false)]),
];

fn no_effect(words: &mut Words<'_>, name: &'static str, known: &[(&str, bool)]) -> Part<Target> {
    let mut options = Vec::new();
    while let Some(option) = words.option(|word| known.iter().any(|(name, _)| *name == word)) {
        words.plain()?;
        let takes = known.iter().any(|(name, takes)| *name == option && *takes);
        let value = if takes { Some(words.value()?.to_owned()) } else { None };
        options.push((option.to_owned(), value));
    }
    Ok(Target::NoEffect { name, options })
}

fn mark(words: &mut Words<'_>) -> Part<Target> {
    let expected = "a mark, or mark/mask";
    let known = |word: &str| matches!(word, "--set-xmark" | "--set-mark" | "--or-mark" | "--and-mark" | "--xor-mark");
    let Some(option) = words.option(known) else {
        return Err(Problem::Missing { of: "MARK".to_owned(), what: "--set-xmark or its like" });
    };
    words.plain()?;
    let (value, mask) = match option {
        "--set-xmark" => words.parse(expected, marked)?,
        "--set-mark" => words.parse(expected, marked).map(|(value, mask)| (value, value | mask))?,
        "--or-mark" => words.parse(expected, number).map(|bits| (bits, bits))?,
        "--and-mark" => words.parse(expected, number).map(|bits| (0, !bits))?,
        _ => words.parse(expected, number).map(|bits| (bits, 0))?,
    };
    Ok(Target::Mark { value, mask })
}

fn connmark(words: &mut Words<'_>) -> Part<Target> {
    let mut action = None;
    let (mut packet, mut connection) = (u32::MAX, u32::MAX);
    let known = |word: &str| {
        let all = ["--set-xmark", "--set-mark", "--save-mark", "--restore-mark", "--nfmask", "--ctmask", "--mask"];
        all.contains(&word)
    };
    while let Some(option) = words.option(known) {
        words.plain()?;
        match option {
            "--save-mark" => action = Some(ConnmarkAction::Save),
            "--restore-mark" => action = Some(ConnmarkAction::Restore),
            "--nfmask" => packet = words.parse("a mask", number)?,
            "--ctmask" => connection = words.parse("a mask", number)?,
            "--mask" => {
                packet = words.parse("a mask", number)?;
                connection = packet;
            }
            _ => {
                action = Some(ConnmarkAction::Set);
                (packet, connection) = words.parse("a mark, or mark/mask", marked)?;
                if option == "--set-mark" {
                    connection |= packet;
                }
            }
        }
    }
    let action = action.ok_or(Problem::Missing { of: "CONNMARK".to_owned(), what: "something to do" })?;
    Ok(Target::Connmark { action, value: packet, mask: connection })
}

fn reject(words: &mut Words<'_>, family: Family) -> Part<Target> {
    let Some(_) = words.option(|word| word == "--reject-with") else {
        return Ok(Target::Reject(RejectWith::port_unreachable(family)));
    };
    words.plain()?;
    Ok(Target::Reject(words.parse("a kind of rejection of this family", |text| RejectWith::parse(family, text))?))
}

fn needs_range(target: &str, range: NatRange) -> Part<NatRange> {
    let some = range.addresses.is_some() || range.ports.is_some();
    if some { Ok(range) } else { Err(Problem::Missing { of: target.to_owned(), what: "a destination or source" }) }
}

impl Target {
    /// Reads the target called `name` and its options; none if no target is called so.
    pub(crate) fn read(name: &str, words: &mut Words<'_>, family: Family, table: TableName) -> Part<Option<Target>> {
        let only = |wanted: TableName| {
            let wrong = || Problem::Impossible(format!("{name} belongs to table {wanted}"));
            if table == wanted { Ok(()) } else { Err(wrong()) }
        };
        Ok(Some(match name {
            "ACCEPT" => Target::Accept,
            "DROP" => Target::Drop,
            "RETURN" => Target::Return,
            "REJECT" => {
                only(TableName::Filter)?;
                reject(words, family)?
            }
            "MARK" => mark(words)?,
            "CONNMARK" => connmark(words)?,
            "DNAT" => {
                only(TableName::Nat)?;
                Target::Dnat(needs_range(name, NatRange::read(words, "--to-destination")?)?)
            }
            "SNAT" => {
                only(TableName::Nat)?;
                Target::Snat(needs_range(name, NatRange::read(words, "--to-source")?)?)
            }
            "MASQUERADE" | "REDIRECT" => {
                only(TableName::Nat)?;
                let range = NatRange::read(words, "--to-ports")?;
                if name == "REDIRECT" { Target::Redirect(range) } else { Target::Masquerade(range) }
            }
            "NOTRACK" => {
                only(TableName::Raw)?;
                Target::Notrack(false)
            }
            "CT" => {
                only(TableName::Raw)?;
                let notrack = words.option(|word| word == "--notrack");
                notrack
                    .ok_or(Problem::Missing { of: "CT".to_owned(), what: "--notrack (nothing else is modelled)" })?;
                Target::Notrack(true)
            }
            _ => match NO_EFFECT.iter().find(|(known, _)| *known == name) {
                Some((name, options)) => no_effect(words, name, options)?,
                None => return Ok(None),
            },
        }))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranged = |f: &mut fmt::Formatter<'_>, name: &str, range: &NatRange, option: &str| {
            write!(f, " -j {name}")?;
            range.print(f, option)
        };
        match self {
            Target::None => Ok(()),
            Target::Accept => f.write_str(" -j ACCEPT"),
            Target::Drop => f.write_str(" -j DROP"),
            Target::Return => f.write_str(" -j RETURN"),
            Target::Jump(chain) => write!(f, " -j {chain}"),
            Target::Goto(chain) => write!(f, " -g {chain}"),
            Target::Reject(with) => write!(f, " -j REJECT --reject-with {with}"),
            Target::Mark { value, mask } => write!(f, " -j MARK --set-xmark 0x{value:x}/0x{mask:x}"),
            Target::Connmark { action: ConnmarkAction::Set, value, mask } => {
                write!(f, " -j CONNMARK --set-xmark 0x{value:x}/0x{mask:x}")
            }
            Target::Connmark { action, value, mask } => {
                let action = if *action == ConnmarkAction::Save { "save" } else { "restore" };
                write!(f, " -j CONNMARK --{action}-mark --nfmask 0x{value:x} --ctmask 0x{mask:x}")
            }
            Target::Dnat(range) => ranged(f, "DNAT", range, "--to-destination"),
            Target::Snat(range) => ranged(f, "SNAT", range, "--to-source"),
            Target::Masquerade(range) => ranged(f, "MASQUERADE", range, "--to-ports"),
            Target::Redirect(range) => ranged(f, "REDIRECT", range, "--to-ports"),
            Target::Notrack(false) => f.write_str(" -j NOTRACK"),
            Target::Notrack(true) => f.write_str(" -j CT --notrack"),
            Target::NoEffect { name, options } => {
                write!(f, " -j {name}")?;
                for (option, value) in options {
                    write!(f, " {option}")?;
                    if let Some(value) = value {
                        write!(f, " {}", quote(value))?;
                    }
                }
                Ok(())
            }
        }
    }
}
