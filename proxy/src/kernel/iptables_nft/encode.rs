//! Encodes rules like iptables-nft 1.8.9.

use ipnet::IpNet;
use nf_tables::iptables::{self, RuleBuilder};
use nf_tables::{NfVerdict, xt};

use crate::model::{Family, Protocol};
use crate::nftables::text::of_kernel;
use crate::ruleset::{AddressTypeSide, InputInterface, Match, Not, Rule, RuleTarget, SetDirection};

fn prefix(net: &Not<IpNet>) -> iptables::Prefix {
    iptables::Prefix { address: net.value.addr(), length: net.value.prefix_len(), negated: net.negated }
}

fn interface(interface: &Not<InputInterface>) -> iptables::InterfaceMatch<'_> {
    let (name, prefix) = match &interface.value {
        InputInterface::Name(name) => (name, false),
        InputInterface::Prefix(name) => (name, true),
    };
    iptables::InterfaceMatch { name, prefix, negated: interface.negated }
}

/// Encodes a rule. `set_index` returns the kernel's number of an IP set.
pub(super) fn encode<'r, E>(
    rule: &'r Rule,
    of: Family,
    out: &mut nf_tables::Rule,
    mut set_index: impl FnMut(&'r str) -> Result<u16, E>,
) -> Result<(), E> {
    out.clear();
    let header = iptables::RuleHeader {
        input: rule.input.as_ref().map(interface),
        output: None,
        protocol: rule.protocol.map(Protocol::number),
        source: rule.source.as_ref().map(prefix),
        destination: rule.destination.as_ref().map(prefix),
    };
    let mut builder = RuleBuilder::new(out, of_kernel(of), &header);
    for one in &rule.matches {
        builder = match one {
            Match::Comment(text) => builder.comment(text),
            Match::Port(_, port) => builder.destination_port(*port),
            Match::OpenPort(port) => builder.not_syn().destination_port(*port),
            Match::Transport(_) => builder.protocol_match(),
            Match::Conntrack(states) => builder.conntrack_state(states.value.0, states.negated),
            Match::LocalAddress(side) => builder.address_type(address_type(side)),
            Match::Set(Not { negated, value: (name, directions) }) => {
                let directions: Vec<xt::SetDirection> = directions.iter().map(direction).collect();
                builder.set(set_index(name)?, &directions, *negated)
            }
            Match::Mark(mark) => builder.mark(mark.value, mark.value, mark.negated),
            Match::OneIn(n) => builder.one_in(u32::try_from(*n).unwrap_or(u32::MAX)),
            Match::RecentCheck { list, seconds, .. } => builder.recent_check(list, *seconds),
            Match::RecentSet { list, .. } => builder.recent_set(list),
        };
    }
    match &rule.target {
        RuleTarget::None => builder.count(),
        RuleTarget::Jump(chain) => builder.jump(chain),
        RuleTarget::Accept => builder.verdict(NfVerdict::Accept),
        RuleTarget::Drop => builder.verdict(NfVerdict::Drop),
        RuleTarget::Return => builder.verdict(NfVerdict::Return),
        RuleTarget::Reject(_) => builder.reject(),
        RuleTarget::Reset => builder.reset(),
        RuleTarget::Mark { mark, mask } => builder.set_xmark(*mark, *mask),
        RuleTarget::Masquerade { random_fully } => builder.masquerade(*random_fully),
        RuleTarget::Snat { to, random_fully } => builder.snat(*to, *random_fully),
        RuleTarget::Dnat(to) => builder.dnat(*to),
        RuleTarget::Redirect(port) => builder.redirect(*port),
    }
    Ok(())
}

fn address_type(side: &Not<AddressTypeSide>) -> xt::AddrTypeMatch {
    let local = xt::AddrTypeMatch::LOCAL;
    match side.value {
        AddressTypeSide::Source => {
            xt::AddrTypeMatch { source: local, source_inverted: side.negated, ..xt::AddrTypeMatch::default() }
        }
        AddressTypeSide::Destination => {
            xt::AddrTypeMatch { destination: local, destination_inverted: side.negated, ..xt::AddrTypeMatch::default() }
        }
    }
}

fn direction(direction: &SetDirection) -> xt::SetDirection {
    match direction {
        SetDirection::Source => xt::SetDirection::Source,
        SetDirection::Destination => xt::SetDirection::Destination,
    }
}
