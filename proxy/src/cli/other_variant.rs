//! Rules of this proxy or of kube-proxy in the tables of the iptables variant that this proxy does not use.

use tracing::{debug, info, warn};

use crate::config::{Variant, WriterChoice};
use crate::kernel::iptables::{IptablesError, holds_any};
use crate::kernel::packet_filter::PacketFilter;
use crate::kernel::writer::Writer;
use crate::mode::iptables_family::rules::cleanup::{CleanupCount, cleanup, count};
use crate::mode::iptables_family::rules::names;
use crate::model::Family;
use crate::ruleset::Table;

/// Kubelet creates this chain, so that proxies in containers find the variant that the node uses (KEP-3178).
const HINT: [(Table, &str); 1] = [(Table::Mangle, "KUBE-IPTABLES-HINT")];

/// Warns at start about leftover rules in the other variant, because packets traverse both variants' tables, and about
/// a kubelet that uses the other variant.
pub(super) fn warn_of_rules(family: Family, is_nft: bool) {
    let (own, other) = if is_nft { (Variant::Nft, Variant::Legacy) } else { (Variant::Legacy, Variant::Nft) };
    let hinted = |variant| holds_any(family, variant, &HINT).unwrap_or(false);
    if hinted(other) && !hinted(own) {
        warn!(
            %family,
            "kubelet uses the {other} tables of iptables on this node (chain KUBE-IPTABLES-HINT), and the {own} ones are written here: \
             packets meet both, and a policy DROP of FORWARD in either drops what the other accepts; have iptables of the {other} variant \
             on the path of svcproxy, or ask for it by --iptables-variant"
        );
    }
    match open(family, other) {
        Ok(None) => {}
        Ok(Some(mut commands)) => match found(&mut commands) {
            Ok(CleanupCount { chains: 0, .. }) => {}
            Ok(CleanupCount { chains, rules }) => warn!(
                %family, chains, rules,
                "the {other} tables hold rules of a service proxy as well, beside the {own} ones that are written here: packets meet \
                 both; to be rid of them, stop this proxy, run svcproxy --cleanup, which cleans both variants, and start it again"
            ),
            Err(error) => warn!(%family, %error, "cannot look through the {other} tables"),
        },
        Err(IptablesError::Missing { command }) => warn!(
            %family,
            "the {other} tables hold rules of a service proxy as well, and packets meet them; without {command} they cannot be shown \
             or taken away"
        ),
        Err(error) => debug!(%family, %error, "cannot look for rules in the {other} tables"),
    }
}

/// Removes this proxy's rules from the tables of `other`. A variant that is not installed has none.
pub(super) fn clean(family: Family, other: Variant) -> Result<(), IptablesError> {
    match open(family, other) {
        Ok(None) => Ok(()),
        Ok(Some(mut commands)) => {
            let removed = cleanup(&mut commands)?;
            info!(%family, removed, "cleaned up the {other} tables of iptables");
            Ok(())
        }
        Err(IptablesError::Missing { command }) => {
            warn!(%family, "the {other} tables hold rules of a service proxy, and {command} is not there to take them away");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Whether the tables of a variant contain rules of a service proxy.
pub(super) fn holds_rules(family: Family, variant: Variant) -> Result<bool, IptablesError> {
    Ok(holds_any(family, variant, &names::FIXED)?)
}

/// Opens a writer if the variant's tables contain rules of a service proxy.
fn open(family: Family, variant: Variant) -> Result<Option<Writer>, IptablesError> {
    if !holds_rules(family, variant)? {
        return Ok(None);
    }
    Writer::open(family, variant, WriterChoice::Auto).map(|opened| Some(opened.writer))
}

fn found(writer: &mut Writer) -> Result<CleanupCount, IptablesError> {
    Ok(count(&writer.read(&Table::ALL)?))
}
