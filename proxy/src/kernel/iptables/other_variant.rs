//! The tables of the iptables variant that is not configured.

use super::references::ReferenceCounts;
use super::{LegacyTables, Table};
use crate::config::Variant;
use crate::kernel::netlink::NetlinkError;
use crate::model::Family;

/// Whether any of the chains exists. Starts no process, and loads no module.
pub fn has_any_chain(family: Family, variant: Variant, chains: &[(Table, &str)]) -> Result<bool, NetlinkError> {
    if variant == Variant::Legacy {
        return in_legacy(family, chains);
    }
    let mut questions = ReferenceCounts::default();
    for (table, chain) in chains {
        match questions.read(family, *table, chain) {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(true),
            // The kernel lacks nf_tables (`nfnetlink_rcv_msg`).
            Err(error) if matches!(error.code(), Some(nix::libc::EINVAL | nix::libc::EPROTONOSUPPORT)) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Whether legacy tables exist that this process cannot read, for want of `CAP_NET_RAW`.
pub fn hides_legacy_tables(family: Family) -> bool {
    let refused = || LegacyTables::open(family).is_err_and(|error| error.raw_os_error() == Some(nix::libc::EPERM));
    !LegacyTables::names(family).trim().is_empty() && refused()
}

fn in_legacy(family: Family, chains: &[(Table, &str)]) -> Result<bool, NetlinkError> {
    let names = LegacyTables::names(family);
    for table in Table::ALL.into_iter().filter(|table| names.lines().any(|name| name == table.as_str())) {
        let failed = |source| NetlinkError::new(format!("read the legacy table {table} of {family}"), source);
        let uses = LegacyTables::open(family).and_then(|legacy| legacy.reference_counts(table)).map_err(failed)?;
        if chains.iter().any(|(of, chain)| *of == table && uses.contains_key(*chain)) {
            return Ok(true);
        }
    }
    Ok(false)
}
