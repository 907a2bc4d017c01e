//! Cleanup of other modes' objects, after the first sync.

use std::time::Instant;

use tracing::{info, warn};

use super::other_variant;
use crate::config::{Config, NodeAddresses, Variant};
use crate::daemon::LeftoverCleanup;
use crate::kernel;
use crate::kernel::addresses;
use crate::kernel::conntrack::ConntrackNetlink;
use crate::kernel::dummy::DEVICE;
use crate::kernel::nftables::NftTable as _;
use crate::mode::Mode;
use crate::mode::family::FamilyProxy;
use crate::mode::iptables_family::ipvs::kernel::LinuxIpvs;
use crate::mode::iptables_family::ipvs::teardown::IpvsTeardown;
use crate::mode::nftables::{flowtable, layout};
use crate::model::Family;

pub(super) fn all(parts: Vec<Option<LeftoverCleanup>>) -> Option<LeftoverCleanup> {
    let mut parts: Vec<LeftoverCleanup> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return None;
    }
    Some(Box::new(move |now| {
        let (mut next, mut left, mut failure): (Option<Instant>, Vec<LeftoverCleanup>, _) = (None, Vec::new(), None);
        for mut part in parts.drain(..) {
            match part(now) {
                Ok(None) => continue,
                Ok(Some(again)) => next = Some(next.map_or(again, |next| next.min(again))),
                Err(error) => failure = Some(error),
            }
            left.push(part);
        }
        parts = left;
        failure.map_or(Ok(next), Err)
    }))
}

pub(super) fn ipvs(config: &Config) -> Option<LeftoverCleanup> {
    let kernel = LinuxIpvs::left_behind().unwrap_or_else(|error| {
        warn!(%error, "cannot clean up what IPVS mode left: {DEVICE} exists");
        None
    });
    let own = addresses::read().unwrap_or_else(|error| {
        warn!(%error, "cannot read this node's addresses: its own requests to services may fail while {DEVICE} is removed");
        NodeAddresses::default()
    });
    let mut leaving = IpvsTeardown::new(kernel?, ConntrackNetlink::default(), own.primary, config.ipvs.drain_limit);
    Some(Box::new(move |now| Ok(leaving.work(now)?)))
}

pub(super) fn nftables<M: Mode>(proxies: &[FamilyProxy<M>]) -> Option<LeftoverCleanup> {
    tables(proxies, &[layout::TABLE, flowtable::TABLE])
}

pub(super) fn flowtables<M: Mode>(proxies: &[FamilyProxy<M>]) -> Option<LeftoverCleanup> {
    tables(proxies, &[flowtable::TABLE])
}

fn tables<M: Mode>(proxies: &[FamilyProxy<M>], names: &[&'static str]) -> Option<LeftoverCleanup> {
    let families = proxies.iter().map(FamilyProxy::family);
    let all = families.flat_map(|family| names.iter().map(move |name| (family, *name)));
    let open = |(family, name)| Some((family, name, kernel::nftables::NetlinkTable::open(family, name, "").ok()?));
    let mut tables: Vec<(Family, &str, kernel::nftables::NetlinkTable)> = all.filter_map(open).collect();
    tables.retain_mut(|(_, _, table)| table.exists().unwrap_or(true));
    if tables.is_empty() {
        return None;
    }
    Some(Box::new(move |_| {
        for (family, name, table) in &mut tables {
            if table.delete()? {
                info!(%family, "the table {name} of nftables mode was deleted");
            }
        }
        Ok(None)
    }))
}

pub(super) fn iptables(families: impl IntoIterator<Item = Family>) -> Option<LeftoverCleanup> {
    let tables = families.into_iter().flat_map(|family| [(family, Variant::Nft), (family, Variant::Legacy)]);
    // The cleanup retries tables that cannot be read now.
    let holds_rules = |family, variant| other_variant::holds_rules(family, variant).unwrap_or(true);
    let tables = tables
        .filter(|(family, variant)| other_variant::is_readable(*family, *variant) && holds_rules(*family, *variant));
    let tables: Vec<_> = tables.collect();
    if tables.is_empty() {
        return None;
    }
    Some(Box::new(move |_| {
        tables.iter().try_for_each(|(family, variant)| other_variant::clean_up(*family, *variant))?;
        Ok(None)
    }))
}
