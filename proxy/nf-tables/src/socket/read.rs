use std::io;

use nix::libc;

use super::NfSocket;
use super::ask::Request;
use super::error::QueryError;
use crate::batch::{NFT_OBJECT_COUNTER, flag};
use crate::family::{Family, Table};
use crate::netlink::{Attributes, NET_BYTE_ORDER};
use crate::objects::{ChainInfo, CounterInfo, ElementInfo, FlowtableInfo, RuleInfo, SetInfo, TableInfo};

/// `include/uapi/linux/netfilter/ipset/ip_set.h`; the upper byte is `NFNL_SUBSYS_IPSET`.
const IPSET_CMD_GET_BYNAME: u16 = 6 << 8 | 14;
const IPSET_CMD_GET_BYINDEX: u16 = 6 << 8 | 15;
const IPSET_PROTOCOL: u8 = 7;
/// `IPSET_ATTR_PROTOCOL`, `IPSET_ATTR_SETNAME`, `IPSET_ATTR_INDEX`.
const IPSET_ATTR_PROTOCOL: u16 = 1;
const IPSET_ATTR_SETNAME: u16 = 2;
const IPSET_ATTR_INDEX: u16 = 11;

impl NfSocket {
    /// Returns this network namespace's generation, which every effective commit changes.
    pub fn generation(&mut self) -> Result<u32, QueryError> {
        // `NFTA_GEN_ID`.
        let request = Request::new("the generation", libc::NFT_MSG_GETGEN, 0, Family::Inet);
        self.ask(&request, |_| {})?;
        let generation = self.objects().find_map(|attributes| attributes.be32(1));
        generation.ok_or(QueryError { what: "the generation", source: io::ErrorKind::InvalidData.into() })
    }

    /// Returns the last dump's generation.
    pub fn read_at(&self) -> Option<u32> {
        self.read_at
    }

    /// Lists a family's tables.
    pub fn tables(&mut self, family: Family) -> Result<impl Iterator<Item = TableInfo<'_>>, QueryError> {
        let request = Request::new("tables", libc::NFT_MSG_GETTABLE, flag::DUMP, family);
        self.ask(&request, |_| {})?;
        Ok(self.objects().filter_map(TableInfo::read))
    }

    /// Lists all tables' chains.
    pub fn chains(&mut self, family: Family) -> Result<impl Iterator<Item = ChainInfo<'_>>, QueryError> {
        let request = Request::new("chains", libc::NFT_MSG_GETCHAIN, flag::DUMP, family);
        self.ask(&request, |_| {})?;
        Ok(self.objects().filter_map(ChainInfo::read))
    }

    /// Returns the chain, if it exists.
    pub fn chain(&mut self, table: Table<'_>, chain: &str) -> Result<Option<ChainInfo<'_>>, QueryError> {
        // `NFTA_CHAIN_TABLE`, `NFTA_CHAIN_NAME`.
        let request = Request::new("a chain", libc::NFT_MSG_GETCHAIN, flag::ACK, table.family);
        let there = self.ask_for(&request, |writer| {
            writer.name(1, "table", table.name);
            writer.name(3, "chain", chain);
        })?;
        Ok(if there { self.objects().find_map(ChainInfo::read) } else { None })
    }

    /// Returns the table, if it exists.
    pub fn table(&mut self, table: Table<'_>) -> Result<Option<TableInfo<'_>>, QueryError> {
        // `NFTA_TABLE_NAME`.
        let request = Request::new("a table", libc::NFT_MSG_GETTABLE, flag::ACK, table.family);
        let there = self.ask_for(&request, |writer| writer.name(1, "table", table.name))?;
        Ok(if there { self.objects().find_map(TableInfo::read) } else { None })
    }

    /// Lists rules chain by chain. Costs the square of their number.
    pub fn table_rules(&mut self, table: Table<'_>) -> Result<impl Iterator<Item = RuleInfo<'_>>, QueryError> {
        // `NFTA_RULE_TABLE`.
        let request = Request::new("the rules of a table", libc::NFT_MSG_GETRULE, flag::DUMP, table.family);
        self.ask_for(&request, |writer| writer.name(1, "table", table.name))?;
        Ok(self.objects().filter_map(RuleInfo::read))
    }

    /// Lists a chain's rules in time proportional to their number.
    pub fn rules(&mut self, table: Table<'_>, chain: &str) -> Result<impl Iterator<Item = RuleInfo<'_>>, QueryError> {
        // `NFTA_RULE_TABLE`, `NFTA_RULE_CHAIN`.
        let request = Request::new("the rules of a chain", libc::NFT_MSG_GETRULE, flag::DUMP, table.family);
        self.ask_for(&request, |writer| {
            writer.name(1, "table", table.name);
            writer.name(2, "chain", chain);
        })?;
        Ok(self.objects().filter_map(RuleInfo::read))
    }

    /// Lists a table's flowtables.
    pub fn flowtables(&mut self, table: Table<'_>) -> Result<impl Iterator<Item = FlowtableInfo<'_>>, QueryError> {
        const NFT_MSG_GETFLOWTABLE: libc::c_int = 23;
        // `NFTA_FLOWTABLE_TABLE`.
        let request = Request::new("flowtables", NFT_MSG_GETFLOWTABLE, flag::DUMP, table.family);
        self.ask_for(&request, |writer| writer.name(1, "table", table.name))?;
        Ok(self.objects().filter_map(FlowtableInfo::read))
    }

    /// Lists a table's counters.
    pub fn counters(&mut self, table: Table<'_>) -> Result<impl Iterator<Item = CounterInfo<'_>>, QueryError> {
        // `NFTA_OBJ_TABLE`, `NFTA_OBJ_TYPE`.
        let request = Request::new("counters", libc::NFT_MSG_GETOBJ, flag::DUMP, table.family);
        self.ask_for(&request, |writer| {
            writer.name(1, "table", table.name);
            writer.be32(3, NFT_OBJECT_COUNTER);
        })?;
        Ok(self.objects().filter_map(CounterInfo::read))
    }

    /// Lists a table's sets.
    pub fn sets(&mut self, table: Table<'_>) -> Result<impl Iterator<Item = SetInfo<'_>>, QueryError> {
        // `NFTA_SET_TABLE`.
        let request = Request::new("sets", libc::NFT_MSG_GETSET, flag::DUMP, table.family);
        self.ask_for(&request, |writer| writer.name(1, "table", table.name))?;
        Ok(self.objects().filter_map(SetInfo::read))
    }

    /// Lists a set's elements. Packets and timeouts change sets without a new generation. So a large dump is not
    /// repeated, and may miss elements during another program's commits.
    pub fn elements(
        &mut self,
        table: Table<'_>,
        set: &str,
    ) -> Result<impl Iterator<Item = ElementInfo<'_>>, QueryError> {
        // `NFTA_SET_ELEM_LIST_TABLE`, `NFTA_SET_ELEM_LIST_SET`, `NFTA_SET_ELEM_LIST_ELEMENTS`.
        let request = Request::new("the elements of a set", libc::NFT_MSG_GETSETELEM, flag::DUMP, table.family);
        self.ask_for(&request, |writer| {
            writer.name(1, "table", table.name);
            writer.name(2, "set", set);
        })?;
        let lists = self.objects().map(|attributes| attributes.nested(3));
        Ok(lists.flatten().filter_map(|element| ElementInfo::read(Attributes::new(element.value))))
    }

    /// Returns an IP set's number for [`xt::set`](crate::xt::set). Swaps and new sets change it.
    pub fn ip_set(&mut self, name: &str) -> Result<Option<u16>, QueryError> {
        let request = Request { what: "an IP set", kind: IPSET_CMD_GET_BYNAME, flags: flag::ACK, family: Family::Ipv4 };
        let there = self.ask_for(&request, |writer| {
            writer.put(IPSET_ATTR_PROTOCOL, &[IPSET_PROTOCOL]);
            writer.name(IPSET_ATTR_SETNAME, "IP set", name);
        })?;
        let index =
            |attributes: Attributes<'_>| Some(u16::from_be_bytes(attributes.get(IPSET_ATTR_INDEX)?.try_into().ok()?));
        Ok(if there { self.objects().find_map(index) } else { None })
    }

    /// Returns the name of the IP set with this number.
    pub fn ip_set_name(&mut self, index: u16) -> Result<Option<String>, QueryError> {
        let request =
            Request { what: "an IP set", kind: IPSET_CMD_GET_BYINDEX, flags: flag::ACK, family: Family::Ipv4 };
        let there = self.ask_for(&request, |writer| {
            writer.put(IPSET_ATTR_PROTOCOL, &[IPSET_PROTOCOL]);
            writer.put(NET_BYTE_ORDER | IPSET_ATTR_INDEX, &index.to_be_bytes());
        })?;
        let name = |attributes: Attributes<'_>| attributes.text(IPSET_ATTR_SETNAME).map(str::to_owned);
        Ok(if there { self.objects().find_map(name) } else { None })
    }
}
