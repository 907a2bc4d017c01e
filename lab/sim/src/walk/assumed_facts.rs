//! A path's assumptions: equal unknown facts get equal answers.

use std::collections::BTreeMap;

use super::unknown_fact::FactScope;
use crate::packet::Packet;
use crate::rules::header::InterfacePattern;

#[derive(Debug, Clone, Default)]
pub(crate) struct AssumedFacts {
    packets: BTreeMap<(String, Packet), bool>,
    machine: BTreeMap<String, bool>,
    names: Vec<(usize, InterfacePattern, bool)>,
}

fn beginning(pattern: &InterfacePattern) -> Option<&str> {
    pattern.0.strip_suffix('+')
}

impl AssumedFacts {
    pub(super) fn of(&self, same: &FactScope, what: &str, packet: &Packet) -> Option<bool> {
        let of_packet = |key: &str| self.packets.get(&(key.to_owned(), packet.clone())).copied();
        match same {
            FactScope::Nothing => None,
            FactScope::Packet(None) => of_packet(what),
            FactScope::Packet(Some((key, not))) => of_packet(key).map(|is| is != *not),
            FactScope::Machine(key) => self.machine.get(key).copied(),
            FactScope::Name(at, pattern, not) => self.of_name(*at, pattern).map(|is| is != *not),
        }
    }

    pub(super) fn take(&mut self, same: FactScope, what: String, packet: &Packet, holds: bool) {
        match same {
            FactScope::Nothing => {}
            FactScope::Packet(None) => {
                self.packets.insert((what, packet.clone()), holds);
            }
            FactScope::Packet(Some((key, not))) => {
                self.packets.insert((key, packet.clone()), holds != not);
            }
            FactScope::Machine(key) => {
                self.machine.insert(key, holds);
            }
            FactScope::Name(at, pattern, not) => self.names.push((at, pattern, holds != not)),
        }
    }

    fn of_name(&self, interface: usize, pattern: &InterfacePattern) -> Option<bool> {
        self.names.iter().find_map(|(of, known, fits)| {
            if *of != interface {
                // Another interface has this name.
                let taken = *fits && beginning(pattern).is_none() && known == pattern;
                return taken.then_some(false);
            }
            follows(known, *fits, pattern)
        })
    }
}

/// Whether a name matches `asked`, given whether it matches `known` (`fits`); `None` if undetermined.
fn follows(known: &InterfacePattern, fits: bool, asked: &InterfacePattern) -> Option<bool> {
    match (beginning(known), beginning(asked), fits) {
        (None, _, true) => Some(asked.matches(&known.0)),
        (None, None, false) => (known == asked).then_some(false),
        (None, Some(_), false) => None,
        (Some(start), None, true) => (!asked.0.starts_with(start)).then_some(false),
        (Some(start), None, false) => asked.0.starts_with(start).then_some(false),
        (Some(start), Some(other), true) if start.starts_with(other) => Some(true),
        (Some(start), Some(other), true) => (!other.starts_with(start)).then_some(false),
        (Some(start), Some(other), false) => other.starts_with(start).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_answers_imply_later_ones() {
        let pattern = |text: &str| InterfacePattern(text.to_owned());
        for (known, fits, asked, expected) in [
            ("eth0", true, "eth0", Some(true)),
            ("eth0", true, "eth1", Some(false)),
            ("eth0", true, "eth+", Some(true)),
            ("eth0", true, "cali+", Some(false)),
            ("eth0", false, "eth0", Some(false)),
            ("eth0", false, "eth1", None),
            ("eth0", false, "eth+", None),
            ("cali+", true, "eth0", Some(false)),
            ("cali+", true, "cali12", None),
            ("cali+", true, "ca+", Some(true)),
            ("cali+", true, "cali1+", None),
            ("cali+", true, "tunl+", Some(false)),
            ("cali+", false, "cali12", Some(false)),
            ("cali+", false, "cali1+", Some(false)),
            ("cali+", false, "ca+", None),
            ("cali+", false, "eth0", None),
        ] {
            assert_eq!(follows(&pattern(known), fits, &pattern(asked)), expected, "{known} {fits} {asked}");
        }
        let mut assumed_facts = AssumedFacts::default();
        assumed_facts.names.push((1, pattern("eth0"), true));
        assert_eq!(assumed_facts.of_name(2, &pattern("eth0")), Some(false));
        assert_eq!(assumed_facts.of_name(2, &pattern("eth+")), None);
    }
}
