//! Faults of a node: failing commands, a held lock, a program that rewrites rules, a log without a reader.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeFault {
    /// A command misbehaves, but only for the proxy.
    Command(IptablesCommand, CommandFaultKind),
    /// Another process holds the lock that all legacy commands share.
    Lock,
    Writer(u32),
    Log(LogReaderFault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogReaderFault {
    /// Reads nothing for a while, as a container runtime does under pressure.
    Stall,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeFaultKind {
    Command,
    Lock,
    Writer,
    Log,
}

impl NodeFault {
    pub fn kind(self) -> NodeFaultKind {
        match self {
            NodeFault::Command(..) => NodeFaultKind::Command,
            NodeFault::Lock => NodeFaultKind::Lock,
            NodeFault::Writer(_) => NodeFaultKind::Writer,
            NodeFault::Log(_) => NodeFaultKind::Log,
        }
    }
}

impl fmt::Display for NodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeFault::Command(command, CommandFaultKind::Fail) => write!(f, "{command} fails"),
            NodeFault::Command(command, CommandFaultKind::Hang) => write!(f, "{command} hangs"),
            NodeFault::Command(command, CommandFaultKind::Garbage) => write!(f, "{command} prints garbage"),
            NodeFault::Lock => f.write_str("the lock of iptables is held"),
            NodeFault::Log(LogReaderFault::Stall) => f.write_str("nobody reads the proxy's log"),
            NodeFault::Log(LogReaderFault::End) => f.write_str("the reader of the proxy's log has ended"),
            NodeFault::Writer(per_second) => write!(f, "a program writes rules of its own {per_second} times a second"),
        }
    }
}

impl NodeFaultKind {
    pub fn begins(self) -> &'static str {
        match self {
            NodeFaultKind::Command => "commandFault",
            NodeFaultKind::Lock => "holdLock",
            NodeFaultKind::Writer => "busyWriter",
            NodeFaultKind::Log => "logFault",
        }
    }

    pub fn ends(self) -> &'static str {
        match self {
            NodeFaultKind::Command => "endCommandFault",
            NodeFaultKind::Lock => "releaseLock",
            NodeFaultKind::Writer => "endBusyWriter",
            NodeFaultKind::Log => "endLogFault",
        }
    }
}

/// A command of iptables, in the variant that the proxy runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IptablesCommand {
    Iptables,
    IptablesSave,
    IptablesRestore,
    Ip6tables,
    Ip6tablesSave,
    Ip6tablesRestore,
}

impl IptablesCommand {
    pub const ALL: [IptablesCommand; 6] = [
        IptablesCommand::Iptables,
        IptablesCommand::IptablesSave,
        IptablesCommand::IptablesRestore,
        IptablesCommand::Ip6tables,
        IptablesCommand::Ip6tablesSave,
        IptablesCommand::Ip6tablesRestore,
    ];

    /// Returns the command's common name, then those of its nft and legacy variants.
    pub fn names(self) -> [String; 3] {
        let (program, what) = match self {
            IptablesCommand::Iptables => ("iptables", ""),
            IptablesCommand::IptablesSave => ("iptables", "-save"),
            IptablesCommand::IptablesRestore => ("iptables", "-restore"),
            IptablesCommand::Ip6tables => ("ip6tables", ""),
            IptablesCommand::Ip6tablesSave => ("ip6tables", "-save"),
            IptablesCommand::Ip6tablesRestore => ("ip6tables", "-restore"),
        };
        ["", "-nft", "-legacy"].map(|variant| format!("{program}{variant}{what}"))
    }
}

impl fmt::Display for IptablesCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names()[0])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CommandFaultKind {
    /// Ends with status 1 and leaves its input unread.
    Fail,
    /// Reads nothing and never ends; a child holds its output open.
    Hang,
    /// Prints more than a pipe holds and leaves its input unread. A `-save` then ends with status 0, other commands
    /// with 1.
    Garbage,
}

impl CommandFaultKind {
    pub fn word(self) -> &'static str {
        match self {
            CommandFaultKind::Fail => "fail",
            CommandFaultKind::Hang => "hang",
            CommandFaultKind::Garbage => "garbage",
        }
    }
}
