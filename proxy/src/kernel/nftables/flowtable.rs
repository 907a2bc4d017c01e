//! A flowtable in a table of its own: a chain that puts connections there, and links whose packets it leads.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use nf_tables::{Batch, CommitError, Socket, Table};

use super::{NftTableError, encode};
use crate::model::Family;
use crate::nftables::text::of_kernel;
use crate::nftables::{Chain, Name};

/// Links in one operation: the kernel takes 256 (`NFT_NETDEVICE_MAX`).
const AT_ONCE: usize = 128;

/// A flowtable and what belongs to it.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Its table, in which there is nothing else.
    pub table: &'static str,
    /// What the table says of itself.
    pub comment: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its place among what packets meet on their way in.
    pub priority: i32,
    /// The chain that leads there.
    pub chain: (Name, Chain),
}

/// The flowtable of one family.
pub trait Flowtable {
    /// Sees to it that it is there, on these links at least: the kernel takes out those that are gone, and what is no link by now is
    /// passed over.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn bring(&mut self, links: &BTreeSet<String>) -> Result<(), NftTableError>;

    /// Whether it is there.
    ///
    /// # Errors
    /// When the kernel does not say.
    fn stands(&mut self) -> Result<bool, NftTableError>;
}

/// The flowtable in this network namespace.
pub struct NetlinkFlowtable {
    family: Family,
    spec: Spec,
    socket: Socket,
    /// It was made by this process: its rules are those of the spec.
    made: bool,
}

fn failed(operation: &str, reason: impl ToString) -> NftTableError {
    NftTableError { operation: operation.to_owned(), reason: reason.to_string() }
}

impl NetlinkFlowtable {
    /// Opens a socket for it.
    ///
    /// # Errors
    /// When the kernel has no nf_tables.
    pub fn open(family: Family, spec: Spec) -> Result<NetlinkFlowtable, NftTableError> {
        let socket = Socket::open().map_err(|source| failed("open a socket", source))?;
        Ok(NetlinkFlowtable { family, spec, socket, made: false })
    }

    /// Makes one like it on the loopback device, without a hook for its chain, and deletes it again.
    ///
    /// # Errors
    /// Where the kernel has no flowtables, or the rights lack.
    pub fn probe(family: Family, spec: Spec) -> Result<(), NftTableError> {
        let (name, chain) = spec.chain;
        let mut own = NetlinkFlowtable::open(family, Spec { chain: (name, Chain { base: None, ..chain }), ..spec })?;
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

    /// The table with everything but links, in place of one of this name.
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
        // A name that is none is no link's.
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
            // One of them may have gone meanwhile.
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
