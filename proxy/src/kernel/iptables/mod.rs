//! The iptables commands: dump and transactional restore.

mod beside;
mod commands;
mod counters;
mod fake;
mod legacy;
mod references;

use super::netlink::NetlinkError;
pub use crate::ruleset::Table;
use crate::ruleset::Transaction;

pub use beside::holds_any;
pub use commands::Commands;
pub use counters::{Counted, Counters};
pub use fake::Fake;
pub(crate) use legacy::fuzz;
pub use legacy::{Legacy, Size};

/// The kernel's packet filter of one address family.
pub trait Iptables {
    /// What `iptables-save` prints of these tables, without counters; of others, too. A table that is not there is left out.
    ///
    /// # Errors
    /// When the command fails.
    fn save(&mut self, tables: &[Table]) -> Result<String, IptablesError>;

    /// `iptables-restore --noflush` of the change's [`Transaction::lines`]: each table's part is taken as a whole or not at all.
    ///
    /// # Errors
    /// When a part is refused; parts before it may have been taken.
    fn restore(&mut self, change: &Transaction) -> Result<(), IptablesError>;

    /// How much each of these chains is in use: its rules, plus the rules of whatever chain that lead to it. `None`: it is not
    /// there.
    ///
    /// # Errors
    /// When the kernel does not answer.
    fn uses(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError>;

    /// Whether MASQUERADE can draw ports at random (`--random-fully`, iptables 1.6.2).
    fn random_fully(&self) -> bool;
}

/// What went wrong with an iptables command.
#[derive(Debug, thiserror::Error)]
pub enum IptablesError {
    /// The command is not installed.
    #[error("the command {command} is not there: install the package iptables (Debian: apt-get install iptables)")]
    Missing {
        /// Its name.
        command: String,
    },
    /// The command could not be run.
    #[error("cannot run {command}: {source}")]
    Run {
        /// Its name.
        command: String,
        /// Why.
        source: std::io::Error,
    },
    /// The command did not end; it was killed. Worth another try: another program may have held the lock.
    #[error("{command} did not end within {limit:?} and was killed")]
    TimedOut {
        /// Its name.
        command: String,
        /// How long it may take.
        limit: std::time::Duration,
    },
    /// The command ended well, and what it printed is no dump; worth another try.
    #[error("{command} printed something else than whole tables")]
    NoDump {
        /// Its name and arguments.
        command: String,
    },
    /// No right to change the tables.
    #[error("{command} may not change this node's packet filter: {}", crate::kernel::capabilities::advice(.command != "netlink"))]
    NotPermitted {
        /// Its name.
        command: String,
    },
    /// The kernel takes no transaction of this size. Seen with the nft variant in a user namespace, where a netlink
    /// message cannot be longer than `net.core.wmem_max` allows: only the real root may ask for more.
    #[error("{command}: the change is too large for one transaction on this kernel")]
    TooLarge {
        /// Its name.
        command: String,
    },
    /// The command failed; worth another try, as another program may have been at work.
    #[error("{command} failed (exit status {status}): {message}")]
    Failed {
        /// Its name and arguments.
        command: String,
        /// Its exit status; 4 means that another program holds the lock.
        status: i32,
        /// What it said, with the line that it complained of.
        message: String,
    },
    /// nf_tables did not answer, or not as it should; worth another try.
    #[error("cannot {operation}: {source}")]
    NfTables {
        /// What was attempted.
        operation: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Rules, or chains, were refused, and so nothing of the change was taken.
    #[error("{}", of_all(.0))]
    Refused(Vec<Refusal>),
    /// A rule is about an IP set that is not there.
    #[error("there is no IP set {name}, which a rule is about [{rule}]")]
    NoSuchSet {
        /// Its name.
        name: String,
        /// The rule.
        rule: String,
    },
    /// What was asked for is not possible.
    #[error(
        "netlink writes the tables of the nft variant only: leave out --iptables-writer, or --iptables-variant legacy"
    )]
    LegacyByNetlink,
    /// The kernel did not say how chains are used.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// A part of a change that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The table.
    pub table: Table,
    /// The chain.
    pub chain: String,
    /// The rule, if it is one that was refused.
    pub rule: Option<String>,
    /// What the kernel, the encoder or the command said.
    pub problem: String,
}

impl Refusal {
    /// A line of a restore's input that appends a rule.
    fn of_line(table: Table, line: &str, problem: String) -> Option<Refusal> {
        let (chain, rule) = line.strip_prefix("-A ")?.split_once(' ')?;
        Some(Refusal { table, chain: chain.to_owned(), rule: Some(rule.to_owned()), problem })
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the change of chain {} in table {} is refused: {}", self.chain, self.table, self.problem)?;
        self.rule.iter().try_for_each(|rule| write!(f, " [{rule}]"))
    }
}

fn of_all(refusals: &[Refusal]) -> String {
    let first = refusals.first().map_or_else(String::new, ToString::to_string);
    match refusals.len() {
        0 | 1 => first,
        more => format!("{first}, and {} more", more - 1),
    }
}

impl IptablesError {
    /// The rules and chains that were refused, as far as they are known. A command names one.
    pub fn refusals(&self) -> &[Refusal] {
        match self {
            IptablesError::Refused(refusals) => refusals,
            _ => &[],
        }
    }

    /// The kernel, or the command, refused what it was given: the tables are not what the proxy takes them for. Anything else,
    /// such as a lock that another program holds (exit status 4, `RESOURCE_PROBLEM` in iptables' xtables.h), says nothing
    /// of them.
    pub fn is_refusal(&self) -> bool {
        match self {
            IptablesError::Failed { status, .. } => *status != 4,
            IptablesError::Refused(_) | IptablesError::NoSuchSet { .. } => true,
            _ => false,
        }
    }
}
