//! Queries for tables, chains, rules, sets and elements.

use std::io;

use nix::libc;

use super::Socket;
use super::ask::Request;
use super::error::ReadError;
use crate::batch::flag;
use crate::family::{Family, Table};
use crate::netlink::Attributes;
use crate::objects::{ChainInfo, ElementInfo, FlowtableInfo, RuleInfo, SetInfo, TableInfo};

/// `NFNL_SUBSYS_IPSET`, `IPSET_CMD_GET_BYNAME`, `IPSET_CMD_GET_BYINDEX`, `IPSET_PROTOCOL`
/// (`include/uapi/linux/netfilter/ipset/ip_set.h`).
const IP_SET_BY_NAME: u16 = 6 << 8 | 14;
const IP_SET_BY_INDEX: u16 = 6 << 8 | 15;
const IP_SET_PROTOCOL: u8 = 7;
/// `IPSET_ATTR_PROTOCOL`, `IPSET_ATTR_SETNAME`, `IPSET_ATTR_INDEX`.
const IP_SET_ATTR_PROTOCOL: u16 = 1;
const IP_SET_ATTR_NAME: u16 = 2;
const IP_SET_ATTR_INDEX: u16 = 11;
/// `NLA_F_NET_BYTEORDER`.
const NETWORK_ORDER: u16 = 1 << 14;

/// Every dump is of one generation. The results borrow the answer.
impl Socket {
    /// The generation of the tables in this network namespace; every effective commit of any process changes it.
    pub fn generation(&mut self) -> Result<u32, ReadError> {
        // `NFTA_GEN_ID`.
        let request = Request::new("the generation", libc::NFT_MSG_GETGEN, 0, Family::Inet);
        self.ask(&request, |_| {})?;
        let generation = self.objects().find_map(|attributes| attributes.be32(1));
        generation.ok_or(ReadError { what: "the generation", source: io::ErrorKind::InvalidData.into() })
    }

    /// The generation of the last dump.
    pub fn read_at(&self) -> Option<u32> {
        self.read_at
    }

    /// The tables of a family.
    pub fn tables(&mut self, family: Family) -> Result<impl Iterator<Item = TableInfo<'_>>, ReadError> {
        let request = Request::new("tables", libc::NFT_MSG_GETTABLE, flag::DUMP, family);
        self.ask(&request, |_| {})?;
        Ok(self.objects().filter_map(TableInfo::read))
    }

    /// The chains of all tables of a family.
    pub fn chains(&mut self, family: Family) -> Result<impl Iterator<Item = ChainInfo<'_>>, ReadError> {
        let request = Request::new("chains", libc::NFT_MSG_GETCHAIN, flag::DUMP, family);
        self.ask(&request, |_| {})?;
        Ok(self.objects().filter_map(ChainInfo::read))
    }

    /// One chain, if it exists.
    pub fn chain(&mut self, table: Table<'_>, chain: &str) -> Result<Option<ChainInfo<'_>>, ReadError> {
        // `NFTA_CHAIN_TABLE`, `NFTA_CHAIN_NAME`.
        let request = Request::new("a chain", libc::NFT_MSG_GETCHAIN, flag::ACK, table.family);
        let there = self.ask_for(&request, |writer| {
            writer.name(1, "table", table.name);
            writer.name(3, "chain", chain);
        })?;
        Ok(if there { self.objects().find_map(ChainInfo::read) } else { None })
    }

    /// One table, if it exists.
    pub fn table(&mut self, table: Table<'_>) -> Result<Option<TableInfo<'_>>, ReadError> {
        // `NFTA_TABLE_NAME`.
        let request = Request::new("a table", libc::NFT_MSG_GETTABLE, flag::ACK, table.family);
        let there = self.ask_for(&request, |writer| writer.name(1, "table", table.name))?;
        Ok(if there { self.objects().find_map(TableInfo::read) } else { None })
    }

    /// The rules of a table, chain by chain, in order; none without the table. Costs the kernel the square of their
    /// number: for tables of some thousands at most.
    pub fn table_rules(&mut self, table: Table<'_>) -> Result<impl Iterator<Item = RuleInfo<'_>>, ReadError> {
        // `NFTA_RULE_TABLE`.
        let request = Request::new("the rules of a table", libc::NFT_MSG_GETRULE, flag::DUMP, table.family);
        self.ask_for(&request, |writer| writer.name(1, "table", table.name))?;
        Ok(self.objects().filter_map(RuleInfo::read))
    }

    /// The rules of a chain, in order; none without the chain. Costs the kernel time proportional to the rules of the
    /// chain.
    pub fn rules(&mut self, table: Table<'_>, chain: &str) -> Result<impl Iterator<Item = RuleInfo<'_>>, ReadError> {
        // `NFTA_RULE_TABLE`, `NFTA_RULE_CHAIN`.
        let request = Request::new("the rules of a chain", libc::NFT_MSG_GETRULE, flag::DUMP, table.family);
        self.ask_for(&request, |writer| {
            writer.name(1, "table", table.name);
            writer.name(2, "chain", chain);
        })?;
        Ok(self.objects().filter_map(RuleInfo::read))
    }

    /// The flowtables of a table; none without the table, or without kernel support.
    pub fn flowtables(&mut self, table: Table<'_>) -> Result<impl Iterator<Item = FlowtableInfo<'_>>, ReadError> {
        /// `NFT_MSG_GETFLOWTABLE`.
        const GET_FLOWTABLE: libc::c_int = 23;
        // `NFTA_FLOWTABLE_TABLE`.
        let request = Request::new("flowtables", GET_FLOWTABLE, flag::DUMP, table.family);
        self.ask_for(&request, |writer| writer.name(1, "table", table.name))?;
        Ok(self.objects().filter_map(FlowtableInfo::read))
    }

    /// The sets and maps of a table; none without the table.
    pub fn sets(&mut self, table: Table<'_>) -> Result<impl Iterator<Item = SetInfo<'_>>, ReadError> {
        // `NFTA_SET_TABLE`.
        let request = Request::new("sets", libc::NFT_MSG_GETSET, flag::DUMP, table.family);
        self.ask_for(&request, |writer| writer.name(1, "table", table.name))?;
        Ok(self.objects().filter_map(SetInfo::read))
    }

    /// The elements of a set or map; none without the set. Packets and timeouts change sets without a new generation,
    /// so this does not repeat a large dump: it can miss elements while another program's batch changes the set.
    pub fn elements(
        &mut self,
        table: Table<'_>,
        set: &str,
    ) -> Result<impl Iterator<Item = ElementInfo<'_>>, ReadError> {
        // `NFTA_SET_ELEM_LIST_TABLE`, `NFTA_SET_ELEM_LIST_SET`, `NFTA_SET_ELEM_LIST_ELEMENTS`.
        let request = Request::new("the elements of a set", libc::NFT_MSG_GETSETELEM, flag::DUMP, table.family);
        self.ask_for(&request, |writer| {
            writer.name(1, "table", table.name);
            writer.name(2, "set", set);
        })?;
        let lists = self.objects().map(|attributes| attributes.nested(3));
        Ok(lists.flatten().filter_map(|element| ElementInfo::read(Attributes::new(element.value))))
    }

    /// The kernel's number of an IP set, for [`xt::set`](crate::xt::set), if the set exists. It changes when sets are
    /// swapped or created again.
    pub fn ip_set(&mut self, name: &str) -> Result<Option<u16>, ReadError> {
        let request = Request { what: "an IP set", kind: IP_SET_BY_NAME, flags: flag::ACK, family: Family::Ipv4 };
        let there = self.ask_for(&request, |writer| {
            writer.put(IP_SET_ATTR_PROTOCOL, &[IP_SET_PROTOCOL]);
            writer.name(IP_SET_ATTR_NAME, "IP set", name);
        })?;
        let index =
            |attributes: Attributes<'_>| Some(u16::from_be_bytes(attributes.get(IP_SET_ATTR_INDEX)?.try_into().ok()?));
        Ok(if there { self.objects().find_map(index) } else { None })
    }

    /// The name of the IP set with this number, if it exists.
    pub fn ip_set_name(&mut self, index: u16) -> Result<Option<String>, ReadError> {
        let request = Request { what: "an IP set", kind: IP_SET_BY_INDEX, flags: flag::ACK, family: Family::Ipv4 };
        let there = self.ask_for(&request, |writer| {
            writer.put(IP_SET_ATTR_PROTOCOL, &[IP_SET_PROTOCOL]);
            writer.put(NETWORK_ORDER | IP_SET_ATTR_INDEX, &index.to_be_bytes());
        })?;
        let name = |attributes: Attributes<'_>| attributes.text(IP_SET_ATTR_NAME).map(str::to_owned);
        Ok(if there { self.objects().find_map(name) } else { None })
    }
}
