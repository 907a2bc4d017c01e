//! Faults of a node that its proxy has to live with: commands that fail or hang, a lock that is not released, a program that
//! keeps writing rules of its own.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

/// A fault on a node, until a later step ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A command of iptables does something else, for the proxy alone.
    Command(Command, Does),
    /// Another process holds the lock that all commands of the legacy variant share.
    Lock,
    /// A program rewrites an nft table of its own so many times a second.
    Writer(u32),
    /// The reader of the proxy's log does not read.
    Log(LogReader),
}

/// How the reader of a log fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogReader {
    /// It takes nothing for a while, as a container runtime does under pressure.
    Stall,
    /// It closes its end.
    End,
}

/// Which fault a step ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Every [`Fault::Command`] on the node.
    Command,
    /// [`Fault::Lock`].
    Lock,
    /// [`Fault::Writer`].
    Writer,
    /// [`Fault::Log`].
    Log,
}

impl Fault {
    /// Its kind.
    pub fn kind(self) -> FaultKind {
        match self {
            Fault::Command(..) => FaultKind::Command,
            Fault::Lock => FaultKind::Lock,
            Fault::Writer(_) => FaultKind::Writer,
            Fault::Log(_) => FaultKind::Log,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Command(command, Does::Fail) => write!(f, "{command} fails"),
            Fault::Command(command, Does::Hang) => write!(f, "{command} hangs"),
            Fault::Command(command, Does::Garbage) => write!(f, "{command} prints garbage"),
            Fault::Lock => f.write_str("the lock of iptables is held"),
            Fault::Log(LogReader::Stall) => f.write_str("nobody reads the proxy's log"),
            Fault::Log(LogReader::End) => f.write_str("the reader of the proxy's log has ended"),
            Fault::Writer(per_second) => write!(f, "a program writes rules of its own {per_second} times a second"),
        }
    }
}

impl FaultKind {
    /// The key of the step that begins it.
    pub fn begins(self) -> &'static str {
        match self {
            FaultKind::Command => "commandFault",
            FaultKind::Lock => "holdLock",
            FaultKind::Writer => "busyWriter",
            FaultKind::Log => "logFault",
        }
    }

    /// The key of the step that ends it.
    pub fn ends(self) -> &'static str {
        match self {
            FaultKind::Command => "endCommandFault",
            FaultKind::Lock => "releaseLock",
            FaultKind::Writer => "endBusyWriter",
            FaultKind::Log => "endLogFault",
        }
    }
}

/// A command of iptables, of whichever variant the proxy runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Single rules, IPv4.
    Iptables,
    /// The dump, IPv4.
    IptablesSave,
    /// Many rules at once, IPv4.
    IptablesRestore,
    /// Single rules, IPv6.
    Ip6tables,
    /// The dump, IPv6.
    Ip6tablesSave,
    /// Many rules at once, IPv6.
    Ip6tablesRestore,
}

impl Command {
    /// All of them.
    pub const ALL: [Command; 6] = [
        Command::Iptables,
        Command::IptablesSave,
        Command::IptablesRestore,
        Command::Ip6tables,
        Command::Ip6tablesSave,
        Command::Ip6tablesRestore,
    ];

    /// Its name, and those of its two variants.
    pub fn names(self) -> [String; 3] {
        let (program, what) = match self {
            Command::Iptables => ("iptables", ""),
            Command::IptablesSave => ("iptables", "-save"),
            Command::IptablesRestore => ("iptables", "-restore"),
            Command::Ip6tables => ("ip6tables", ""),
            Command::Ip6tablesSave => ("ip6tables", "-save"),
            Command::Ip6tablesRestore => ("ip6tables", "-restore"),
        };
        ["", "-nft", "-legacy"].map(|variant| format!("{program}{variant}{what}"))
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names()[0])
    }
}

/// What a command does instead of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Does {
    /// Ends with status 1, its input unread.
    Fail,
    /// Reads nothing and never ends; a child of its holds its output open.
    Hang,
    /// Prints more than a pipe holds, its input unread. A `-save` then ends with status 0, every other with 1.
    Garbage,
}

impl Does {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Does::Fail => "fail",
            Does::Hang => "hang",
            Does::Garbage => "garbage",
        }
    }
}
