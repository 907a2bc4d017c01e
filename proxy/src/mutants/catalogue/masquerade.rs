//! `masqueradeSource` and `noMasqueradeCIDRs`.

use crate::config::{MasqueradeSource, Mode};
use crate::model::Family;
use crate::mutants::{Hook, Mutant};
use crate::nftables::Statement;
use crate::ruleset::{Match, Rule, RuleTarget};

const IPTABLES: &[Mode] = &[Mode::Iptables];
const NFTABLES: &[Mode] = &[Mode::Nftables];
const IPVS: &[Mode] = &[Mode::Ipvs];
/// Modes that have `masqueradeSource`.
const SOURCE: &[Mode] = &[Mode::Iptables, Mode::Ipvs, Mode::Nftables];
/// Modes that have `noMasqueradeCIDRs`.
const EXEMPT: &[Mode] = &[Mode::Iptables, Mode::Nftables];

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "masquerade-source-ignored",
        "ignores masqueradeSource",
        "masquerade-source",
        Hook::Config(|config| config.masquerade_source = MasqueradeSource::OutgoingInterface),
    )
    .only(SOURCE),
    Mutant::new(
        "masquerade-source-of-ipv4-only",
        "ignores masqueradeSource over IPv6",
        "masquerade-source",
        Hook::NodePlan(|plan| {
            if plan.family == Family::V6 {
                plan.masquerade_source = None;
            }
        }),
    )
    .only(SOURCE),
    Mutant::new(
        "masquerade-source-not-for-hairpins",
        "ignores masqueradeSource where a pod calls its own Service (IPVS)",
        "masquerade-source",
        Hook::Rules(|chain, rules| {
            let is_hairpin = |rule: &&mut Rule| rule.matches.iter().any(|one| matches!(one, Match::Set(_)));
            for rule in rules.iter_mut().filter(is_hairpin).filter(|_| chain == "KUBE-POSTROUTING") {
                rule.target = RuleTarget::Masquerade { random_fully: true };
            }
        }),
    )
    .only(IPVS),
    Mutant::new(
        "masquerade-source-not-for-hairpins-nftables",
        "ignores masqueradeSource where a pod calls its own Service (nftables)",
        "masquerade-source",
        Hook::NftRules(|chain, rules| {
            if let Some(hairpin) = rules.last_mut().filter(|_| chain == "masquerading") {
                let last = hairpin.statements.pop().map(|_| Statement::Masquerade);
                hairpin.statements.extend(last);
            }
        }),
    )
    .only(NFTABLES),
    Mutant::new(
        "masquerade-exceptions-ignored",
        "ignores noMasqueradeCIDRs",
        "no-masquerade",
        Hook::Config(|config| config.no_masquerade.clear()),
    )
    .only(EXEMPT),
    Mutant::new(
        "masquerade-exceptions-of-ipv4-only",
        "ignores noMasqueradeCIDRs over IPv6",
        "no-masquerade",
        Hook::Config(|config| config.no_masquerade.retain(|range| range.addr().is_ipv4())),
    )
    .only(EXEMPT),
    Mutant::new(
        "masquerade-exceptions-for-every-source",
        "exempts every source from masquerade to noMasqueradeCIDRs, not only the node's own",
        "no-masquerade",
        Hook::Rules(|chain, rules| {
            for rule in rules.iter_mut().filter(|_| chain == "KUBE-POSTROUTING") {
                rule.matches.retain(|one| !matches!(one, Match::LocalAddress(_)));
            }
        }),
    )
    .only(IPTABLES),
    Mutant::new(
        "masquerade-exceptions-for-every-source-nftables",
        "exempts every source from masquerade to noMasqueradeCIDRs, not only the node's own (nftables)",
        "no-masquerade",
        Hook::NftRules(|chain, rules| {
            for rule in rules.iter_mut().filter(|_| chain == "masquerading") {
                rule.statements.retain(|one| !matches!(one, Statement::Local(_)));
            }
        }),
    )
    .only(NFTABLES),
    Mutant::new(
        "masquerade-exceptions-for-loopback",
        "keeps loopback addresses as sources of packets to noMasqueradeCIDRs",
        "no-masquerade",
        Hook::Rules(|chain, rules| {
            rules.iter_mut().filter(|_| chain == "KUBE-POSTROUTING").for_each(|rule| rule.source = None);
        }),
    )
    .only(IPTABLES),
];
