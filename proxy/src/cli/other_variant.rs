//! Rules of a service proxy in the tables of the other iptables variant.

use tracing::{debug, info, warn};

use crate::config::{Variant, WriterChoice};
use crate::kernel::iptables::{IptablesError, has_any_chain, hides_legacy_tables};
use crate::kernel::packet_filter::PacketFilter;
use crate::kernel::writer::IptablesWriter;
use crate::mode::iptables_family::rules::cleanup::{CleanupCount, cleanup, count};
use crate::mode::iptables_family::rules::names;
use crate::model::Family;
use crate::ruleset::Table;

/// Kubelet's chains in the node's variant: one tells it to programs in containers (KEP-3178), the other notices flushed tables.
const HINTS: [(Table, &str); 2] = [(Table::Mangle, "KUBE-IPTABLES-HINT"), (Table::Mangle, "KUBE-KUBELET-CANARY")];

/// Warns about rules of the other variant, which packets traverse, too, and about a kubelet that uses it.
pub(super) fn warn_about_rules(family: Family, is_nft: bool) {
    let (own, other) = if is_nft { (Variant::Nft, Variant::Legacy) } else { (Variant::Legacy, Variant::Nft) };
    if !is_readable(family, other) {
        return;
    }
    let hinted = |variant| has_any_chain(family, variant, &HINTS).unwrap_or(false);
    let is_kubelets = hinted(other) && !hinted(own);
    if is_kubelets {
        warn!(
            %family,
            "kubelet uses the {other} tables of iptables on this node (chain KUBE-IPTABLES-HINT or KUBE-KUBELET-CANARY), but this proxy writes the {own} tables: packets traverse both, \
             and a DROP in either wins; set --iptables-variant={other}, or put iptables of the {other} variant into the PATH"
        );
    }
    match open(family, other) {
        Ok(None) => {}
        Ok(Some(mut commands)) => match found(&mut commands) {
            Ok(CleanupCount { chains: 0, .. }) => {}
            Ok(CleanupCount { chains, rules }) => {
                let remedy = if is_kubelets {
                    format!(
                        "with --iptables-variant={other} this proxy takes them over; to write the {own} tables instead"
                    )
                } else {
                    "to remove them".to_owned()
                };
                warn!(
                    %family, chains, rules,
                    "the {other} tables of iptables also contain rules of a service proxy, and packets traverse both variants; \
                     {remedy}, stop this proxy, run svcproxy --cleanup and start it again"
                );
            }
            Err(error) => warn!(%family, %error, "cannot read the {other} tables"),
        },
        Err(IptablesError::Missing { command }) => warn!(
            %family,
            "the {other} tables of iptables also contain rules of a service proxy; without {command} they cannot be listed or removed"
        ),
        Err(error) => debug!(%family, %error, "cannot check for rules in the {other} tables"),
    }
}

/// Warns about legacy tables that this process cannot read.
pub(super) fn is_readable(family: Family, variant: Variant) -> bool {
    let is_hidden = variant == Variant::Legacy && hides_legacy_tables(family);
    if is_hidden {
        warn!(
            %family,
            "the tables of legacy iptables exist and may contain rules of a service proxy, which packets traverse, too: they cannot be \
             read without CAP_NET_RAW; svcproxy check and svcproxy --cleanup as root tell and remove them"
        );
    }
    !is_hidden
}

/// Does nothing if the variant is not installed.
pub(super) fn clean_up(family: Family, other: Variant) -> Result<(), IptablesError> {
    match open(family, other) {
        Ok(None) => Ok(()),
        Ok(Some(mut commands)) => {
            let removed = cleanup(&mut commands)?;
            info!(%family, removed, "cleaned up the {other} tables of iptables");
            Ok(())
        }
        Err(IptablesError::Missing { command }) => {
            warn!(%family, "the {other} tables contain rules of a service proxy, and {command} is missing to remove them");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

pub(super) fn holds_rules(family: Family, variant: Variant) -> Result<bool, IptablesError> {
    Ok(has_any_chain(family, variant, &names::FIXED)?)
}

fn open(family: Family, variant: Variant) -> Result<Option<IptablesWriter>, IptablesError> {
    if !holds_rules(family, variant)? {
        return Ok(None);
    }
    IptablesWriter::open(family, variant, WriterChoice::Auto).map(|opened| Some(opened.writer))
}

fn found(writer: &mut IptablesWriter) -> Result<CleanupCount, IptablesError> {
    Ok(count(&writer.read(&Table::ALL)?))
}
