use crate::inspect::Expression;

/// The most comparisons to sort: iptables writes up to seven.
const MOST: usize = 8;

/// Expressions that read no register. Others may read the last comparison's register, so with them the comparisons keep
/// their order.
const READ_NO_REGISTER: [&str; 7] = ["counter", "match", "target", "immediate", "reject", "limit", "log"];

/// `NFTA_META_DREG` and `NFTA_PAYLOAD_DREG`; `NFTA_BITWISE_SREG` and `NFTA_CMP_SREG`.
const REGISTER: u16 = 1;
/// `NFTA_BITWISE_DREG`.
const BITWISE_DREG: u16 = 2;

pub struct LeadingComparisons {
    begin: usize,
    ends: [usize; MOST],
    count: usize,
    /// The register of an incomplete comparison.
    loaded: Option<u32>,
    /// Whether all expressions so far are comparisons.
    leading: bool,
    /// Whether only comparisons read registers.
    independent: bool,
}

impl LeadingComparisons {
    /// `begin`: the offset of the rule's canonical form.
    pub fn from(begin: usize) -> LeadingComparisons {
        LeadingComparisons { begin, ends: [0; MOST], count: 0, loaded: None, leading: true, independent: true }
    }

    /// Adds an expression, whose canonical form ends at `end`.
    pub fn push(&mut self, expression: &Expression<'_>, end: usize) {
        let (name, register) = (expression.name, expression.attributes.be32(REGISTER));
        match (name, self.loaded) {
            ("meta" | "payload", None) if register.is_some() => self.loaded = register,
            ("bitwise", Some(_)) if register == self.loaded => {
                self.independent &= expression.attributes.be32(BITWISE_DREG) == register;
            }
            ("cmp", Some(_)) if register == self.loaded => {
                self.loaded = None;
                self.leading &= self.count < MOST;
                if let (true, Some(slot)) = (self.leading, self.ends.get_mut(self.count)) {
                    *slot = end;
                    self.count += 1;
                }
            }
            _ => {
                self.leading = false;
                self.independent &= self.loaded.is_none() && READ_NO_REGISTER.contains(&name);
            }
        }
    }

    /// Sorts comparisons by their bytes. This crate's rules are already sorted.
    pub fn sort(self, out: &mut [u8]) {
        let ends = self.ends.get(..self.count).unwrap_or_default();
        let begins = std::iter::once(self.begin).chain(ends.iter().copied());
        if !self.independent || self.loaded.is_some() || self.count < 2 {
            return;
        }
        let mut all: [&[u8]; MOST] = [&[]; MOST];
        for (slot, (begin, end)) in all.iter_mut().zip(begins.zip(ends)) {
            *slot = out.get(begin..*end).unwrap_or_default();
        }
        let Some(all) = all.get_mut(..self.count) else { return };
        if !all.is_sorted() {
            all.sort_unstable();
            let sorted = all.concat();
            if let Some(place) = out.get_mut(self.begin..self.begin + sorted.len()) {
                place.copy_from_slice(&sorted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::canonical::canonical;
    use crate::family::Family;
    use crate::netlink::AttributeWriter;
    use crate::rule::{CmpOp, Lookup, Register, Rule};
    use crate::verdict::NfVerdict;

    type Step = fn(&mut Rule);

    fn raw(rule: &mut Rule, name: &str, numbers: &[(u16, u32)]) {
        let mut data = AttributeWriter::default();
        numbers.iter().for_each(|(kind, number)| data.put(*kind, &number.to_be_bytes()));
        rule.raw(name, &data.bytes);
    }

    fn compare(rule: &mut Rule, byte: u8) {
        rule.cmp(Register::R1, CmpOp::Equal, &[byte]);
    }

    fn protocol(rule: &mut Rule) {
        raw(rule, "meta", &[(1, 1), (2, 16)]);
        compare(rule, 6);
    }

    fn source(rule: &mut Rule) {
        raw(rule, "payload", &[(1, 1), (2, 1), (3, 12), (4, 1)]);
        raw(rule, "bitwise", &[(1, 1), (2, 1), (3, 1)]);
        compare(rule, 10);
    }

    fn destination(rule: &mut Rule) {
        raw(rule, "payload", &[(1, 1), (2, 1), (3, 16), (4, 1)]);
        compare(rule, 10);
    }

    fn counter(rule: &mut Rule) {
        raw(rule, "counter", &[]);
    }

    fn accept(rule: &mut Rule) {
        rule.verdict(NfVerdict::Accept);
    }

    fn lookup(rule: &mut Rule) {
        rule.lookup(Register::R1, Lookup::set("set"));
    }

    fn form(steps: &[Step]) -> Vec<u8> {
        let mut rule = Rule::new();
        steps.iter().for_each(|step| step(&mut rule));
        canonical(Family::Ipv4, rule.expressions())
    }

    #[test]
    fn the_order_of_leading_comparisons_does_not_matter() {
        let expected = form(&[protocol, source, destination, counter, accept]);
        for steps in [[source, destination, protocol], [destination, protocol, source], [source, protocol, destination]]
        {
            assert_eq!(form(&[&steps[..], &[counter, accept]].concat()), expected);
        }
        assert_eq!(form(&[source, destination]), form(&[destination, source]), "with nothing behind them");
        assert_ne!(form(&[protocol, source, counter, accept]), expected, "one less");
        assert_ne!(form(&[protocol, source, source, counter, accept]), expected, "another one");
    }

    #[test]
    fn what_may_depend_on_the_order_stays_as_it_is() {
        let pairs: [[&[Step]; 2]; 4] = [
            // The lookup reads the last comparison's register.
            [&[source, destination, lookup], &[destination, source, lookup]],
            [&[source, destination, counter, lookup], &[destination, source, counter, lookup]],
            // A counter counts packets that reach it.
            [&[protocol, counter, source], &[source, counter, protocol]],
            // Comparisons that share a load.
            [&[source, |rule| compare(rule, 1), destination], &[destination, |rule| compare(rule, 1), source]],
        ];
        for [one, other] in pairs {
            assert_ne!(form(one), form(other));
        }
    }

    #[test]
    fn more_comparisons_than_are_sorted_lose_nothing() {
        let many = |count: u8| {
            let mut rule = Rule::new();
            for number in (0..count).rev() {
                raw(&mut rule, "meta", &[(1, 1), (2, u32::from(number))]);
                compare(&mut rule, number);
            }
            canonical(Family::Ipv4, rule.expressions())
        };
        let lengths: Vec<usize> = (7..12).map(|count| many(count).len()).collect();
        assert!(lengths.windows(2).all(|pair| pair[1] - pair[0] == lengths[1] - lengths[0]), "{lengths:?}");
    }
}
