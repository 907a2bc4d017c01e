//! Answers that were taken on one way through all machines, so that no question gets both.

use std::collections::BTreeMap;

use crate::packet::Packet;
use crate::rules::header::InterfacePattern;

/// What was taken on a machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    packets: BTreeMap<(String, Packet), bool>,
    /// Whether an interface's name fits a pattern.
    names: Vec<(usize, InterfacePattern, bool)>,
}

/// The beginning that a pattern asks for, if it does not ask for a whole name.
fn beginning(pattern: &InterfacePattern) -> Option<&str> {
    pattern.0.strip_suffix('+')
}

impl Answers {
    pub(super) fn of_packet(&self, what: &str, packet: &Packet) -> Option<bool> {
        if self.packets.is_empty() {
            return None;
        }
        self.packets.get(&(what.to_owned(), packet.clone())).copied()
    }

    pub(super) fn take_packet(&mut self, what: String, packet: Packet, holds: bool) {
        self.packets.insert((what, packet), holds);
    }

    pub(super) fn take_name(&mut self, interface: usize, pattern: InterfacePattern, fits: bool) {
        self.names.push((interface, pattern, fits));
    }

    /// What earlier answers say of an interface's name.
    pub(super) fn of_name(&self, interface: usize, pattern: &InterfacePattern) -> Option<bool> {
        self.names.iter().find_map(|(of, known, fits)| {
            if *of != interface {
                // Two interfaces have two names.
                let taken = *fits && beginning(pattern).is_none() && known == pattern;
                return taken.then_some(false);
            }
            follows(known, *fits, pattern)
        })
    }
}

/// Whether a name fits `asked`, if it is known of it whether it fits `known`.
fn follows(known: &InterfacePattern, fits: bool, asked: &InterfacePattern) -> Option<bool> {
    match (beginning(known), beginning(asked), fits) {
        // The whole name is known.
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
    fn answers_follow_from_answers() {
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
        let mut answers = Answers::default();
        answers.take_name(1, pattern("eth0"), true);
        assert_eq!(answers.of_name(2, &pattern("eth0")), Some(false));
        assert_eq!(answers.of_name(2, &pattern("eth+")), None);
    }
}
