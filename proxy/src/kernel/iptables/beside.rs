//! The other variant's tables: rules in them are met as well, and each variant's commands show their own alone.

use super::references::ReferenceCounts;
use super::{Legacy, Table};
use crate::config::Variant;
use crate::kernel::netlink::NetlinkError;
use crate::model::Family;

/// Whether tables of a variant, `Nft` or `Legacy`, hold one of these chains. Starts no process; and legacy tables, which come with
/// kernel modules, are not made by looking at them.
///
/// # Errors
/// When the kernel refuses to say; one that does not know the variant holds nothing.
pub fn holds_any(family: Family, variant: Variant, chains: &[(Table, &str)]) -> Result<bool, NetlinkError> {
    if variant == Variant::Legacy {
        return in_legacy(family, chains);
    }
    let mut questions = ReferenceCounts::default();
    for (table, chain) in chains {
        match questions.read(family, *table, chain) {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(true),
            // The kernel has no nf_tables (nfnetlink_rcv_msg answers EINVAL for a subsystem that is not there).
            Err(error) if matches!(error.code(), Some(nix::libc::EINVAL | nix::libc::EPROTONOSUPPORT)) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

fn in_legacy(family: Family, chains: &[(Table, &str)]) -> Result<bool, NetlinkError> {
    let names = Legacy::names(family);
    for table in Table::ALL.into_iter().filter(|table| names.lines().any(|name| name == table.as_str())) {
        let failed = |source| NetlinkError::new(format!("read the legacy table {table} of {family}"), source);
        let uses = Legacy::open(family).and_then(|legacy| legacy.uses(table)).map_err(failed)?;
        if chains.iter().any(|(of, chain)| *of == table && uses.contains_key(*chain)) {
            return Ok(true);
        }
    }
    Ok(false)
}
