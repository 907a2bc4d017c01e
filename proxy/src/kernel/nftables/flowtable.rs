//! A flowtable and the chain that adds connections to it, in their own table.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use nf_tables::{Batch, CommitError, NfSocket, Table};

use super::{NftTableError, encode};
use crate::model::Family;
use crate::nftables::text::of_kernel;
use crate::nftables::{Chain, Name};

/// The links per request, of which the kernel accepts 256 (`NFT_NETDEVICE_MAX`).
const AT_ONCE: usize = 128;

#[derive(Debug, Clone)]
pub struct FlowtableSpec {
    pub table: &'static str,
    pub comment: &'static str,
    pub name: &'static str,
    pub priority: i32,
    pub chain: (Name, Chain),
}

pub trait Flowtable {
    /// Creates the flowtable, and adds missing links. Ignores links that no longer exist.
    fn bring(&mut self, links: &BTreeSet<String>) -> Result<(), NftTableError>;

    fn stands(&mut self) -> Result<bool, NftTableError>;
}

pub struct NetlinkFlowtable {
    family: Family,
    spec: FlowtableSpec,
    socket: NfSocket,
    /// Whether this process created the table, with the spec's rules.
    made: bool,
}

fn failed(operation: &str, reason: impl ToString) -> NftTableError {
    NftTableError { operation: operation.to_owned(), reason: reason.to_string() }
}

impl NetlinkFlowtable {
    pub fn open(family: Family, spec: FlowtableSpec) -> Result<NetlinkFlowtable, NftTableError> {
        let socket = NfSocket::open().map_err(|source| failed("open a socket", source))?;
        Ok(NetlinkFlowtable { family, spec, socket, made: false })
    }

    /// Checks kernel support with a flowtable on the loopback device.
    pub fn probe(family: Family, spec: FlowtableSpec) -> Result<(), NftTableError> {
        let (name, chain) = spec.chain;
        let mut own =
            NetlinkFlowtable::open(family, FlowtableSpec { chain: (name, Chain { base: None, ..chain }), ..spec })?;
        own.make()?;
        let loopback = own.add(["lo"]);
        let mut batch = Batch::new();
        let deleted = batch.delete_table(own.table()).map_err(|source| failed("delete a flowtable", source));
        let deleted =
            deleted.and_then(|_| own.socket.commit(&batch).map_err(|source| failed("delete a flowtable", source)));
        loopback.map_err(|source| failed("make the flowtable on a link", source)).and(deleted.map(drop))
    }

    fn table(&self) -> Table<'static> {
        Table::new(of_kernel(self.family), self.spec.table)
    }

    fn standing(&mut self) -> Result<Option<BTreeSet<String>>, NftTableError> {
        let (table, name) = (self.table(), self.spec.name);
        let found = self.socket.flowtables(table).map_err(|source| failed("read flowtables", source))?;
        let links = |links: Vec<&str>| links.into_iter().map(str::to_owned).collect();
        Ok(found.filter(|flowtable| flowtable.name == name).map(|flowtable| links(flowtable.links)).last())
    }

    fn make(&mut self) -> Result<(), NftTableError> {
        let operation = "make the flowtable";
        let table = self.table();
        let there = self.socket.table(table).map_err(|source| failed(operation, source))?.is_some();
        let write = |batch: &mut Batch| {
            if there {
                batch.delete_table(table)?;
            }
            batch.add_table_with(table, &nf_tables::field::comment_user_data(self.spec.comment))?;
            batch.add_flowtable(table, self.spec.name, self.spec.priority, [])?;
            let (name, chain) = &self.spec.chain;
            match &chain.base {
                Some(base) => batch.add_base_chain(table, name, &encode::base(base))?,
                None => batch.add_chain(table, name)?,
            };
            let mut encoded = nf_tables::Rule::new();
            for rule in &chain.rules {
                encode::rule(rule, self.family, &mut encoded);
                batch.add_rule(table, name, &encoded)?;
            }
            Ok::<(), nf_tables::EncodeError>(())
        };
        let mut batch = Batch::new();
        write(&mut batch).map_err(|source| failed(operation, source))?;
        self.socket.commit(&batch).map_err(|source| failed(operation, source))?;
        self.made = true;
        Ok(())
    }

    fn add<'a>(&mut self, links: impl IntoIterator<Item = &'a str>) -> Result<(), CommitError> {
        let mut batch = Batch::new();
        let added = batch.add_flowtable(self.table(), self.spec.name, self.spec.priority, links);
        // Ignores encoding errors: no link has an invalid name.
        added.map_or(Ok(()), |_| self.socket.commit(&batch).map(drop))
    }
}

impl Flowtable for NetlinkFlowtable {
    fn bring(&mut self, links: &BTreeSet<String>) -> Result<(), NftTableError> {
        let standing = if self.made { self.standing()? } else { None };
        let has = match standing {
            Some(has) => has,
            None => {
                self.make()?;
                BTreeSet::new()
            }
        };
        let missing: Vec<&str> = links.difference(&has).map(String::as_str).collect();
        for some in missing.chunks(AT_ONCE) {
            if self.add(some.iter().copied()).is_ok() {
                continue;
            }
            // One of the links may have disappeared, so adds each alone.
            for link in some {
                match self.add([*link]) {
                    Err(error) if !is_gone(&error) => {
                        return Err(failed(&format!("put {link} into the flowtable"), error));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn stands(&mut self) -> Result<bool, NftTableError> {
        Ok(self.standing()?.is_some())
    }
}

fn is_gone(error: &CommitError) -> bool {
    match error {
        CommitError::Refused(refused) => refused.iter().all(|one| one.error.kind() == ErrorKind::NotFound),
        _ => false,
    }
}
