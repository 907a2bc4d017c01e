//! How a plan becomes rules, in the modes iptables and nftables.

use crate::config::Mode;
use crate::mutants::{Hook, Mutant};
use crate::nftables::{NftVerdict, Statement};
use crate::ruleset::{Match, RuleTarget};

const IPTABLES: &[Mode] = &[Mode::Iptables];
const NFTABLES: &[Mode] = &[Mode::Nftables];

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "rules-hairpin-not-masqueraded",
        "does not masquerade a pod's call of its own Service",
        "hairpin",
        Hook::Rules(|chain, rules| {
            if chain.starts_with("KUBE-SEP-") {
                rules.retain(|rule| rule.source.is_none());
            }
        }),
    )
    .only(IPTABLES),
    Mutant::new(
        "rules-hairpin-of-ipv4-only",
        "does not masquerade a pod's call of its own Service over IPv6",
        "ipv6",
        Hook::Rules(|chain, rules| {
            if chain.starts_with("KUBE-SEP-") {
                rules.retain(|rule| rule.source.as_ref().is_none_or(|source| source.value.addr().is_ipv4()));
            }
        }),
    )
    .only(IPTABLES),
    Mutant::new(
        "rules-affinity-never-remembered",
        "remembers no client under session affinity",
        "affinity",
        Hook::Rules(|_, rules| {
            let remembers = |rule: &Match| matches!(rule, Match::RecentSet { .. });
            rules.iter_mut().for_each(|rule| rule.matches.retain(|found| !remembers(found)));
        }),
    )
    .only(IPTABLES),
    Mutant::new(
        "rules-affinity-never-expires",
        "remembers a client for a day, whatever the timeout of session affinity says",
        "affinity",
        Hook::Rules(|_, rules| {
            for found in rules.iter_mut().flat_map(|rule| &mut rule.matches) {
                if let Match::RecentCheck { seconds, .. } = found {
                    *seconds = 86_400;
                }
            }
        }),
    )
    .only(IPTABLES),
    Mutant::new(
        "rules-last-endpoint-too-rare",
        "gives the last endpoint one part in ten of its share, and the rest to no endpoint",
        "clusterip",
        Hook::Rules(|chain, rules| {
            if let (true, Some(last)) = (chain.starts_with("KUBE-SVC-") && rules.len() > 2, rules.last_mut()) {
                last.matches.push(Match::OneIn(10));
            }
        }),
    )
    .only(IPTABLES),
    Mutant::new(
        "rules-fixed-mark-cleared-late",
        "leaves the masquerade mark on packets",
        "packet-fields",
        Hook::Rules(|chain, rules| {
            if chain == "KUBE-POSTROUTING" {
                rules.retain(|rule| !matches!(rule.target, RuleTarget::Mark { .. }));
            }
        }),
    )
    .only(IPTABLES),
    Mutant::new(
        "rules-forward-not-accepted",
        "does not accept forwarded packets of its connections, where a firewall drops what no rule accepts",
        "strict-firewall",
        Hook::Rules(|chain, rules| {
            if chain == "KUBE-FORWARD" {
                rules.retain(|rule| rule.target != RuleTarget::Accept);
            }
        }),
    )
    .only(IPTABLES),
    Mutant::new(
        "rules-node-ports-before-addresses",
        "treats a packet to the node's own external IP as one to a node port",
        "node-as-load-balancer",
        Hook::Rules(|chain, rules| {
            if chain == "KUBE-SERVICES" {
                rules.retain(|rule| {
                    !comment(rule).contains("external IP") && !comment(rule).contains("loadbalancer IP")
                });
            }
        }),
    )
    .only(IPTABLES),
    Mutant::new(
        "rules-short-circuit-of-pods-missing",
        "forwards pods' calls of external addresses under policy Local to this node's endpoints only",
        "short-circuit",
        Hook::Rules(|chain, rules| {
            if chain.starts_with("KUBE-EXT-") && rules.len() > 2 {
                rules.retain(|rule| rule.source.is_none());
            }
        }),
    )
    .only(IPTABLES),
    Mutant::new(
        "rules-short-circuit-of-node-missing",
        "forwards the node's own calls of external addresses under policy Local to this node's endpoints only",
        "short-circuit",
        Hook::Rules(|chain, rules| {
            if chain.starts_with("KUBE-EXT-") && rules.len() > 2 {
                rules.retain(|rule| !comment(rule).contains("LOCAL"));
            }
        }),
    )
    .only(IPTABLES),
    Mutant::new(
        "rules-nft-affinity-never-remembered",
        "remembers no client under session affinity (nftables)",
        "affinity",
        Hook::NftRules(|_, rules| {
            rules.retain(|rule| !rule.statements.iter().any(|found| matches!(found, Statement::Remember { .. })));
        }),
    )
    .only(NFTABLES),
    Mutant::new(
        "rules-nft-affinity-of-minutes",
        "remembers a client for ten minutes, whatever the timeout of session affinity says (nftables)",
        "affinity",
        Hook::NftRules(|_, rules| {
            for found in rules.iter_mut().flat_map(|rule| &mut rule.statements) {
                if let Statement::Remember { timeout, .. } = found {
                    *timeout = std::time::Duration::from_secs(600);
                }
            }
        }),
    )
    .only(NFTABLES),
    Mutant::new(
        "rules-nft-hairpin-not-masqueraded",
        "does not masquerade a pod's call of its own Service (nftables)",
        "hairpin",
        Hook::NftRules(|chain, rules| {
            if chain == "masquerading" {
                rules.truncate(1);
            }
        }),
    )
    .only(NFTABLES),
    Mutant::new(
        "rules-nft-mark-left",
        "leaves the masquerade mark on packets (nftables)",
        "packet-fields",
        Hook::NftRules(|chain, rules| {
            if chain == "masquerading" {
                for rule in rules {
                    rule.statements.retain(|found| !matches!(found, Statement::Unmark(_)));
                }
            }
        }),
    )
    .only(NFTABLES),
    Mutant::new(
        "rules-nft-off-cluster-not-masqueraded",
        "does not masquerade calls of cluster IPs from outside the cluster (nftables)",
        "clusterip",
        Hook::NftRules(|chain, rules| {
            if chain.starts_with("cluster-ip-") {
                rules.retain(|rule| !rule.statements.iter().any(|found| matches!(found, Statement::Mark(_))));
            }
        }),
    )
    .only(NFTABLES),
    Mutant::new(
        "rules-nft-external-not-masqueraded",
        "does not masquerade calls of external frontends (nftables)",
        "nodeport",
        Hook::NftRules(|chain, rules| {
            if chain.starts_with("external-") || chain.starts_with("nodeport-external-") {
                rules.retain(|rule| !rule.statements.iter().any(|found| matches!(found, Statement::Mark(_))));
            }
        }),
    )
    .only(NFTABLES),
    Mutant::new(
        "rules-nft-rejects-drop",
        "drops what it should reject (nftables)",
        "no-endpoints",
        Hook::NftRules(|_, rules| {
            for found in rules.iter_mut().flat_map(|rule| &mut rule.statements) {
                if *found == Statement::Reject {
                    *found = Statement::Verdict(NftVerdict::Drop);
                }
            }
        }),
    )
    .only(NFTABLES),
    Mutant::new(
        "rules-nft-firewall-only-on-the-way-in",
        "checks source ranges of other machines' packets only, not of the node's own (nftables)",
        "source-ranges-own-node",
        Hook::NftRules(|chain, rules| {
            if chain == "filter-output-pre-dnat" {
                rules.clear();
            }
        }),
    )
    .only(NFTABLES),
    Mutant::new(
        "rules-nft-service-check-not-on-output",
        "rejects no calls of the node itself to Services without endpoints (nftables)",
        "no-endpoints",
        Hook::NftRules(|chain, rules| {
            if chain == "filter-output" {
                rules.clear();
            }
        }),
    )
    .only(NFTABLES),
];

fn comment(rule: &crate::ruleset::Rule) -> &str {
    let comment = rule.matches.iter().find_map(|found| match found {
        Match::Comment(text) => Some(&**text),
        _ => None,
    });
    comment.unwrap_or_default()
}
