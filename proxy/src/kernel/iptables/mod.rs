mod commands;
mod counters;
mod fake;
mod legacy;
mod other_variant;
mod references;

use super::netlink::NetlinkError;
pub use crate::ruleset::Table;
use crate::ruleset::Transaction;

pub use commands::Commands;
pub use counters::{CommandCounters, CountedRule};
pub use fake::FakeIptables;
pub(crate) use legacy::fuzz;
pub use legacy::{LegacyTables, TableSize};
pub use other_variant::{has_any_chain, hides_legacy_tables};

pub trait Iptables {
    /// Returns a dump of at least these tables, without counters.
    fn save(&mut self, tables: &[Table]) -> Result<String, IptablesError>;

    /// Runs `iptables-restore --noflush`, which applies each table as a whole or not at all.
    fn restore(&mut self, change: &Transaction) -> Result<(), IptablesError>;

    fn reference_counts(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError>;

    /// Whether MASQUERADE supports `--random-fully` (iptables 1.6.2).
    fn random_fully(&self) -> bool;
}

#[derive(Debug, thiserror::Error)]
pub enum IptablesError {
    #[error("the command {command} is not there: install the package iptables (Debian: apt-get install iptables)")]
    Missing { command: String },
    #[error("cannot run {command}: {source}")]
    Run { command: String, source: std::io::Error },
    /// Another program may have held the lock: worth a retry.
    #[error("{command} did not end within {limit:?} and was killed")]
    TimedOut { command: String, limit: std::time::Duration },
    /// Success with unexpected output: worth a retry.
    #[error("{command} printed something else than whole tables")]
    NoDump { command: String },
    /// The process may not change the tables.
    #[error("{command} may not change this node's packet filter: {}", crate::kernel::capabilities::advice(.command != "netlink"))]
    NotPermitted { command: String },
    /// Seen with the nft variant in a user namespace: `net.core.wmem_max` limits netlink messages.
    #[error("{command}: the change is too large for one transaction on this kernel")]
    TooLarge { command: String },
    /// Worth a retry.
    #[error("{command} failed (exit status {status}): {message}")]
    Failed {
        command: String,
        /// The exit status; 4: another program holds the lock.
        status: i32,
        /// Standard error, plus the input line that it names.
        message: String,
    },
    /// Worth a retry.
    #[error("cannot {operation}: {source}")]
    NfTables { operation: String, source: std::io::Error },
    /// Nothing was applied.
    #[error("{}", of_all(.0))]
    Refused(Vec<RuleRefusal>),
    /// A rule refers to a missing IP set.
    #[error("there is no IP set {name}, which a rule is about [{rule}]")]
    NoSuchSet { name: String, rule: String },
    #[error(
        "netlink writes the tables of the nft variant only: leave out --iptables-writer, or --iptables-variant legacy"
    )]
    LegacyByNetlink,
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleRefusal {
    pub table: Table,
    pub chain: String,
    /// `None`: the chain was refused.
    pub rule: Option<String>,
    pub problem: String,
}

impl RuleRefusal {
    fn of_line(table: Table, line: &str, problem: String) -> Option<RuleRefusal> {
        let (chain, rule) = line.strip_prefix("-A ")?.split_once(' ')?;
        Some(RuleRefusal { table, chain: chain.to_owned(), rule: Some(rule.to_owned()), problem })
    }
}

impl std::fmt::Display for RuleRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the change of chain {} in table {} is refused: {}", self.chain, self.table, self.problem)?;
        self.rule.iter().try_for_each(|rule| write!(f, " [{rule}]"))
    }
}

fn of_all(refusals: &[RuleRefusal]) -> String {
    let first = refusals.first().map_or_else(String::new, ToString::to_string);
    match refusals.len() {
        0 | 1 => first,
        more => format!("{first}, and {} more", more - 1),
    }
}

impl IptablesError {
    /// Returns refused rules; a command names only one.
    pub fn refusals(&self) -> &[RuleRefusal] {
        match self {
            IptablesError::Refused(refusals) => refusals,
            _ => &[],
        }
    }

    /// Whether the tables differ from the proxy's expectation. False for a lock of another program (exit status 4,
    /// `RESOURCE_PROBLEM` in iptables' xtables.h).
    pub fn is_refusal(&self) -> bool {
        match self {
            IptablesError::Failed { status, .. } => *status != 4,
            IptablesError::Refused(_) | IptablesError::NoSuchSet { .. } => true,
            _ => false,
        }
    }
}
