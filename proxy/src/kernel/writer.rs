//! Who writes the tables of a family: netlink, or the iptables commands.

use std::io;

use super::iptables::{Commands, Counted, Counters, IptablesError};
use super::iptables_nft::NfTables;
use super::packet_filter::{Compare, PacketFilter};
use crate::config::{Variant, WriterChoice};
use crate::model::Family;
use crate::ruleset::{Rule, SavedTables, Table, Transaction};

/// The writer of one family's tables.
pub enum Writer {
    /// The iptables commands.
    Commands(Commands),
    /// nf_tables, spoken directly.
    Netlink(Box<NfTables>),
}

/// A writer that was opened, and why it was chosen.
pub struct Opened {
    /// The writer.
    pub writer: Writer,
    /// For the log.
    pub because: &'static str,
}

impl Writer {
    /// Opens the writer that an operator asks for, or the fastest that writes the tables which the node's commands show.
    ///
    /// # Errors
    /// When the commands are not installed, the kernel has no nf_tables, or netlink is asked for with the legacy tables.
    pub fn open(family: Family, variant: Variant, choice: WriterChoice) -> Result<Opened, IptablesError> {
        let netlink = |because| {
            Ok(Opened { writer: Writer::Netlink(Box::new(NfTables::open(family)?.with_comparer()?)), because })
        };
        let commands = |because| Ok(Opened { writer: Writer::Commands(Commands::find(family, variant)?), because });
        match (choice, variant) {
            (WriterChoice::Commands, _) => commands("--iptables-writer says so"),
            (WriterChoice::Netlink, Variant::Legacy) => Err(IptablesError::LegacyByNetlink),
            (WriterChoice::Netlink, _) => netlink("--iptables-writer says so"),
            (WriterChoice::Auto, Variant::Legacy) => commands("legacy tables are written by the commands only"),
            (WriterChoice::Auto, Variant::Nft) => netlink("the tables are those of the nft variant"),
            (WriterChoice::Auto, Variant::Auto) => match Commands::find(family, variant) {
                Ok(found) if found.is_nft() => netlink("the node's iptables is of the nft variant"),
                Ok(found) => {
                    let because = "the node's iptables is of the legacy variant";
                    Ok(Opened { writer: Writer::Commands(found), because })
                }
                Err(IptablesError::Missing { .. }) => netlink("there is no iptables on this node"),
                Err(error) => Err(error),
            },
        }
    }

    /// Asks for something that needs the rights and the kernel support which the work needs.
    ///
    /// # Errors
    /// When they are not there.
    pub fn probe(&mut self) -> Result<(), IptablesError> {
        match self {
            // A dump is the cheapest question.
            Writer::Commands(commands) => commands.read(&[Table::Nat]).map(drop),
            Writer::Netlink(tables) => tables.uses(Table::Nat, &["PREROUTING"]).map(drop),
        }
    }

    /// The family.
    pub fn family(&self) -> Family {
        match self {
            Writer::Commands(commands) => commands.family(),
            Writer::Netlink(tables) => tables.family(),
        }
    }

    /// Whether the tables are the nft variant's.
    pub fn is_nft(&self) -> bool {
        match self {
            Writer::Commands(commands) => commands.is_nft(),
            Writer::Netlink(_) => true,
        }
    }

    /// The word of `--iptables-writer`.
    pub fn name(&self) -> &'static str {
        match self {
            Writer::Commands(_) => "commands",
            Writer::Netlink(_) => "netlink",
        }
    }

    /// Reads the counters of the same tables.
    pub fn counters(&self) -> CounterReader {
        match self {
            Writer::Commands(commands) => CounterReader::Commands(commands.counters()),
            Writer::Netlink(tables) => CounterReader::Netlink(tables.family()),
        }
    }
}

impl Writer {
    fn filter(&mut self) -> &mut dyn PacketFilter {
        match self {
            Writer::Commands(commands) => commands,
            Writer::Netlink(netlink) => &mut **netlink,
        }
    }
}

impl PacketFilter for Writer {
    fn look(&mut self, tables: &[Table], unread: &dyn Fn(Table, &str) -> bool) -> Result<SavedTables, IptablesError> {
        self.filter().look(tables, unread)
    }

    fn rules(&mut self, table: Table, chain: &str, present: &[String]) -> Result<Vec<String>, IptablesError> {
        self.filter().rules(table, chain, present)
    }

    fn holds(
        &mut self,
        table: Table,
        chain: &str,
        present: &[String],
        rules: &mut dyn Iterator<Item = &Rule>,
    ) -> Result<bool, IptablesError> {
        self.filter().holds(table, chain, present, rules)
    }

    fn comparer(&mut self) -> Option<Box<dyn Compare>> {
        self.filter().comparer()
    }

    fn takes_chains_ahead(&self) -> bool {
        matches!(self, Writer::Netlink(_))
    }

    fn commit(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        self.filter().commit(change)
    }

    fn uses(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        self.filter().uses(table, chains)
    }

    fn generation(&mut self) -> Result<Option<u32>, IptablesError> {
        self.filter().generation()
    }

    fn is_untouched(&mut self, now: Option<u32>) -> bool {
        self.filter().is_untouched(now)
    }

    fn trust(&mut self, generation: Option<u32>) {
        self.filter().trust(generation);
    }

    fn random_fully(&self) -> bool {
        match self {
            Writer::Commands(commands) => PacketFilter::random_fully(commands),
            Writer::Netlink(netlink) => netlink.random_fully(),
        }
    }
}

/// Reads what rules have counted, for metrics. Changes nothing.
#[derive(Debug, Clone)]
pub enum CounterReader {
    /// By the commands.
    Commands(Counters),
    /// By netlink, on a socket for each look: looks come from a thread of their own, and seldom.
    Netlink(Family),
}

impl CounterReader {
    /// The rules of one chain.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn of_chain(&self, table: Table, chain: &str) -> Result<Vec<Counted>, IptablesError> {
        match self {
            CounterReader::Commands(counters) => counters.of_chain(table, chain),
            CounterReader::Netlink(family) => {
                let counted = NfTables::open(*family)?.counted(table, Some(chain))?;
                if counted.is_empty() {
                    let operation = format!("read the chain {chain} of table {table}");
                    return Err(IptablesError::NfTables { operation, source: io::ErrorKind::NotFound.into() });
                }
                Ok(counted)
            }
        }
    }

    /// The rules of a whole table.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn of_table(&self, table: Table) -> Result<Vec<Counted>, IptablesError> {
        match self {
            CounterReader::Commands(counters) => counters.of_table(table),
            CounterReader::Netlink(family) => NfTables::open(*family)?.counted(table, None),
        }
    }
}
