//! Logs ServiceCIDRs that contain addresses of pods or nodes: the proxy drops nothing there.

use std::collections::BTreeSet;

use ipnet::IpNet;

#[derive(Debug, Default)]
pub(super) struct SparedRanges(BTreeSet<(IpNet, IpNet)>);

impl SparedRanges {
    pub(super) fn note(&mut self, now: Vec<(IpNet, IpNet)>) -> Vec<String> {
        let now: BTreeSet<_> = now.into_iter().collect();
        let new = now.difference(&self.0).map(|(range, within)| {
            format!(
                "the ServiceCIDR {range} contains {within}, where pods or nodes have their addresses: what goes there is not dropped, though no \
                 Service has the address; delete that ServiceCIDR, or make it smaller"
            )
        });
        let new = new.collect();
        self.0 = now;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_reported_once_and_again_after_it_was_removed() {
        let spared = vec![("10.240.0.0/12".parse().unwrap(), "10.244.0.0/16".parse().unwrap())];
        let mut known = SparedRanges::default();
        let told = [spared.clone(), spared.clone(), Vec::new(), spared].map(|now| known.note(now));
        assert_eq!(told.each_ref().map(Vec::len), [1, 0, 0, 1]);
        assert!(told[0][0].contains("10.240.0.0/12 contains 10.244.0.0/16"), "{told:?}");
    }
}
