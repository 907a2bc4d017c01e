use nf_tables::{NfSocket, Table};

use crate::kernel::netlink::NetlinkError;
use crate::model::Family;
use crate::nftables::text::of_kernel;
use crate::ruleset;

#[derive(Default)]
pub(super) struct ReferenceCounts {
    socket: Option<Box<NfSocket>>,
}

impl ReferenceCounts {
    pub(super) fn read(
        &mut self,
        family: Family,
        table: ruleset::Table,
        chain: &str,
    ) -> Result<Option<usize>, NetlinkError> {
        let failed =
            |source| NetlinkError::new(format!("ask nf_tables for the chain {chain} of the table {table}"), source);
        let opened = self.socket.take().map_or_else(|| NfSocket::open().map(Box::new), Ok);
        let mut socket = opened.map_err(failed)?;
        let found = socket.chain(Table::new(of_kernel(family), table.as_str()), chain);
        let uses = found.map_err(|error| failed(error.source))?.map(|chain| chain.uses);
        self.socket = Some(socket);
        Ok(uses.map(|uses| usize::try_from(uses).unwrap_or(usize::MAX)))
    }
}
