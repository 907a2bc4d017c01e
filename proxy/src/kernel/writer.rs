//! Writes a family's iptables tables, by netlink or commands.

use std::io;

use super::iptables::{CommandCounters, Commands, CountedRule, IptablesError};
use super::iptables_nft::NfTables;
use super::packet_filter::PacketFilter;
use crate::config::{Variant, WriterChoice};
use crate::model::Family;
use crate::ruleset::{SavedTables, Table, Transaction};

pub enum IptablesWriter {
    Commands(Commands),
    Netlink(Box<NfTables>),
}

pub struct OpenedWriter {
    pub writer: IptablesWriter,
    pub because: &'static str,
}

impl IptablesWriter {
    /// Opens the configured writer, or the fastest for the variant that the node's commands use.
    pub fn open(family: Family, variant: Variant, choice: WriterChoice) -> Result<OpenedWriter, IptablesError> {
        let netlink = |because| {
            Ok(OpenedWriter {
                writer: IptablesWriter::Netlink(Box::new(NfTables::open(family)?.with_comparer()?)),
                because,
            })
        };
        let commands =
            |because| Ok(OpenedWriter { writer: IptablesWriter::Commands(Commands::find(family, variant)?), because });
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
                    Ok(OpenedWriter { writer: IptablesWriter::Commands(found), because })
                }
                Err(IptablesError::Missing { .. }) => netlink("there is no iptables on this node"),
                Err(error) => Err(error),
            },
        }
    }

    pub fn probe(&mut self) -> Result<(), IptablesError> {
        match self {
            // A dump is the cheapest command that accesses the tables.
            IptablesWriter::Commands(commands) => commands.read(&[Table::Nat]).map(drop),
            IptablesWriter::Netlink(tables) => tables.reference_counts(Table::Nat, &["PREROUTING"]).map(drop),
        }
    }

    pub fn family(&self) -> Family {
        match self {
            IptablesWriter::Commands(commands) => commands.family(),
            IptablesWriter::Netlink(tables) => tables.family(),
        }
    }

    pub fn is_nft(&self) -> bool {
        match self {
            IptablesWriter::Commands(commands) => commands.is_nft(),
            IptablesWriter::Netlink(_) => true,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            IptablesWriter::Commands(_) => "commands",
            IptablesWriter::Netlink(_) => "netlink",
        }
    }

    pub fn counters(&self) -> CounterReader {
        match self {
            IptablesWriter::Commands(commands) => CounterReader::Commands(commands.counters()),
            IptablesWriter::Netlink(tables) => CounterReader::Netlink(tables.family()),
        }
    }
}

impl IptablesWriter {
    fn filter(&mut self) -> &mut dyn PacketFilter {
        match self {
            IptablesWriter::Commands(commands) => commands,
            IptablesWriter::Netlink(netlink) => &mut **netlink,
        }
    }
}

impl PacketFilter for IptablesWriter {
    fn inner(&mut self) -> Option<&mut dyn PacketFilter> {
        Some(self.filter())
    }

    fn list(&mut self, tables: &[Table], unread: &dyn Fn(Table, &str) -> bool) -> Result<SavedTables, IptablesError> {
        self.filter().list(tables, unread)
    }

    fn commit(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        self.filter().commit(change)
    }

    fn reference_counts(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        self.filter().reference_counts(table, chains)
    }

    fn random_fully(&mut self) -> bool {
        self.filter().random_fully()
    }
}

#[derive(Debug, Clone)]
pub enum CounterReader {
    Commands(CommandCounters),
    /// Opens a socket for each read, because reads are rare.
    Netlink(Family),
}

impl CounterReader {
    pub fn of_chain(&self, table: Table, chain: &str) -> Result<Vec<CountedRule>, IptablesError> {
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

    pub fn of_table(&self, table: Table) -> Result<Vec<CountedRule>, IptablesError> {
        match self {
            CounterReader::Commands(counters) => counters.of_table(table),
            CounterReader::Netlink(family) => NfTables::open(*family)?.counted(table, None),
        }
    }
}
