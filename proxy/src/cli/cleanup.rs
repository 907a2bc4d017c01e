use super::other_variant;
use crate::config::{Config, Variant};
use crate::kernel;
use crate::kernel::netlink::NetlinkError;
use crate::kernel::nftables::NftTable as _;
use crate::kernel::writer::IptablesWriter;
use crate::mode::iptables_family::ipvs::kernel::LinuxIpvs;
use crate::mode::iptables_family::ipvs::teardown::{remove_empty_device, tear_down};
use crate::mode::iptables_family::rules::cleanup::cleanup;
use crate::mode::nftables::{flowtable, layout};
use crate::model::Family;
use crate::mutants;

/// Continues after a failure; returns the last error.
pub fn run(config: &Config) -> anyhow::Result<()> {
    if mutants::skips(mutants::Duty::Cleanup) {
        return Ok(());
    }
    let mut failure: Option<anyhow::Error> = None;
    for family in Family::ALL {
        let result = IptablesWriter::open(family, config.variant, config.writer)
            .and_then(|mut opened| cleanup(&mut opened.writer));
        match result {
            Ok(removed) => tracing::info!(%family, removed, "cleaned up"),
            Err(error) => {
                tracing::error!(%family, %error, "cannot clean up");
                failure = Some(error.into());
            }
        }
        // The variant that `auto` selected is already clean.
        for variant in [Variant::Nft, Variant::Legacy].into_iter().filter(|variant| *variant != config.variant) {
            if let Err(error) = other_variant::clean_up(family, variant) {
                tracing::error!(%family, %error, "cannot clean up the {variant} tables");
                failure = Some(error.into());
            }
        }
    }
    for (family, name) in
        Family::ALL.into_iter().flat_map(|family| [(family, layout::TABLE), (family, flowtable::TABLE)])
    {
        match kernel::nftables::NetlinkTable::open(family, name, "").and_then(|mut table| table.delete()) {
            Ok(true) => tracing::info!(%family, "deleted the nftables table {name}"),
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%family, %error, "cannot delete the nftables table {name}");
                failure = Some(error.into());
            }
        }
    }
    // Rules refer to the IP sets, so the sets are removed after the rules.
    if let Err(error) = virtual_servers() {
        tracing::error!(%error, "cannot clean up virtual servers, sets and addresses");
        failure = Some(error.into());
    }
    failure.map_or(Ok(()), Err)
}

fn virtual_servers() -> Result<(), NetlinkError> {
    let Some(mut kernel) = LinuxIpvs::left_behind()? else { return Ok(()) };
    for family in Family::ALL {
        let removed = tear_down(&mut kernel, family, false)?.removed;
        tracing::info!(%family, removed, "virtual servers, sets and addresses cleaned up");
    }
    remove_empty_device(&mut kernel)
}
