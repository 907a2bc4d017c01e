use std::net::IpAddr;

use netlink_packet_core::Nla;
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};

use super::{nowhere, range};
use crate::network::Rule;

/// Reads a rule; without ranges it matches all addresses.
pub(super) fn rule(message: &RuleMessage, family: &str) -> Rule {
    let header = &message.header;
    let mut rule = Rule {
        family: family.to_owned(),
        priority: 0,
        from: None,
        to: None,
        input: None,
        output: None,
        mark: None,
        invert: header.flags.contains(RuleFlags::Invert),
        action: action(header.action),
        table: 0,
        suppress_prefix: None,
        unknown: Vec::new(),
    };
    let mut table = u32::from(header.table);
    let (mut from, mut to) = (nowhere(header.family), nowhere(header.family));
    let (mut mark, mut mask) = (None, u32::MAX);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Source(address) => from = Some(*address),
            RuleAttribute::Destination(address) => to = Some(*address),
            RuleAttribute::Iifname(name) => rule.input = Some(name.clone()),
            RuleAttribute::Oifname(name) => rule.output = Some(name.clone()),
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::FwMark(value) => mark = Some(*value),
            RuleAttribute::FwMask(value) => mask = *value,
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::Goto(priority) => rule.table = *priority,
            // -1 means unset.
            RuleAttribute::SuppressPrefixLen(u32::MAX) | RuleAttribute::SuppressIfGroup(u32::MAX) => {}
            RuleAttribute::SuppressPrefixLen(length) => rule.suppress_prefix = Some(*length),
            // The rule's origin is no condition.
            RuleAttribute::Protocol(_) => {}
            RuleAttribute::L3MDev(false) => {}
            other => rule.unknown.push(name(other)),
        }
    }
    rule.from = ranged(from, header.src_len);
    rule.to = ranged(to, header.dst_len);
    // A mask of 0 matches every mark.
    rule.mark = mark.filter(|_| mask != 0).map(|mark| (mark, mask));
    if header.action == RuleAction::ToTable {
        rule.table = table;
    }
    if header.tos != 0 {
        rule.unknown.push("tos".to_owned());
    }
    rule
}

fn ranged(address: Option<IpAddr>, length: u8) -> Option<ipnet::IpNet> {
    (length > 0).then(|| range(address?, length)).flatten()
}

fn action(action: RuleAction) -> String {
    let name = match action {
        RuleAction::ToTable => "lookup",
        RuleAction::Goto => "goto",
        RuleAction::Nop => "nop",
        RuleAction::Blackhole => "blackhole",
        RuleAction::Unreachable => "unreachable",
        RuleAction::Prohibit => "prohibit",
        other => return u8::from(other).to_string(),
    };
    name.to_owned()
}

/// Returns the name from `include/uapi/linux/fib_rules.h`.
fn name(attribute: &RuleAttribute) -> String {
    let name = match attribute {
        RuleAttribute::Realm(_) => "realms",
        RuleAttribute::TunId(_) => "tun_id",
        RuleAttribute::SuppressIfGroup(_) => "suppress_ifgroup",
        RuleAttribute::L3MDev(_) => "l3mdev",
        RuleAttribute::UidRange(_) => "uidrange",
        RuleAttribute::IpProtocol(_) => "ipproto",
        RuleAttribute::SourcePortRange(_) => "sport",
        RuleAttribute::DestinationPortRange(_) => "dport",
        other => match other.kind() {
            25 => "dscp",
            26 => "flowlabel",
            27 => "flowlabel_mask",
            number => return format!("attribute {number}"),
        },
    };
    name.to_owned()
}
