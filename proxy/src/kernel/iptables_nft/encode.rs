//! A rule as iptables-nft 1.8.9 would write it.

use ipnet::IpNet;
use nf_tables::iptables::{self, Builder};
use nf_tables::{Verdict, xt};

use crate::model::{Family, Protocol};
use crate::nftables::text::of_kernel;
use crate::ruleset::{AddressTypeSide, InputInterface, Match, Not, Rule, RuleTarget, SetDirection};

fn prefix(net: &Not<IpNet>) -> iptables::Prefix {
    iptables::Prefix { address: net.value.addr(), length: net.value.prefix_len(), negated: net.negated }
}

fn interface(interface: &Not<InputInterface>) -> iptables::Interface<'_> {
    let (name, prefix) = match &interface.value {
        InputInterface::Name(name) => (name, false),
        InputInterface::Prefix(name) => (name, true),
    };
    iptables::Interface { name, prefix, negated: interface.negated }
}

/// Writes `rule` into `out`, in place of what is there. `set_index`: the number by which the kernel knows an IP set. What cannot
/// be encoded is kept as [`nf_tables::Rule::error`].
///
/// # Errors
/// The name of a set that is not there.
pub(super) fn encode<'r, E>(
    rule: &'r Rule,
    of: Family,
    out: &mut nf_tables::Rule,
    mut set_index: impl FnMut(&'r str) -> Result<u16, E>,
) -> Result<(), E> {
    out.clear();
    let header = iptables::Header {
        input: rule.input.as_ref().map(interface),
        output: None,
        protocol: rule.protocol.map(Protocol::number),
        source: rule.source.as_ref().map(prefix),
        destination: rule.destination.as_ref().map(prefix),
    };
    let mut builder = Builder::new(out, of_kernel(of), &header);
    for one in &rule.matches {
        builder = match one {
            Match::Comment(text) => builder.comment(text),
            Match::Port(_, port) => builder.destination_port(*port),
            Match::Transport(_) => builder.protocol_match(),
            Match::Conntrack(states) => builder.conntrack_state(states.value.0, states.negated),
            Match::LocalAddress(side) => builder.address_type(address_type(side)),
            Match::Set(Not { negated, value: (name, directions) }) => {
                let directions: Vec<xt::Direction> = directions.iter().map(direction).collect();
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
        RuleTarget::Accept => builder.verdict(Verdict::Accept),
        RuleTarget::Drop => builder.verdict(Verdict::Drop),
        RuleTarget::Return => builder.verdict(Verdict::Return),
        RuleTarget::Reject(_) => builder.reject(),
        RuleTarget::Mark { mark, mask } => builder.set_xmark(*mark, *mask),
        RuleTarget::Masquerade { random_fully } => builder.masquerade(*random_fully),
        RuleTarget::Dnat(to) => builder.dnat(*to),
        RuleTarget::Redirect(port) => builder.redirect(*port),
    }
    Ok(())
}

fn address_type(side: &Not<AddressTypeSide>) -> xt::AddressType {
    let local = xt::AddressType::LOCAL;
    match side.value {
        AddressTypeSide::Source => {
            xt::AddressType { source: local, source_inverted: side.negated, ..xt::AddressType::default() }
        }
        AddressTypeSide::Destination => {
            xt::AddressType { destination: local, destination_inverted: side.negated, ..xt::AddressType::default() }
        }
    }
}

fn direction(direction: &SetDirection) -> xt::Direction {
    match direction {
        SetDirection::Source => xt::Direction::Source,
        SetDirection::Destination => xt::Direction::Destination,
    }
}
