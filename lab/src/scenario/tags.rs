use std::collections::BTreeSet;

use super::Scenario;

/// Protocols that a Service or a container port must name.
const PROTOCOLS: [&str; 2] = ["SCTP", "UDP"];

impl Scenario {
    /// Returns what `--tag` and `--skip` choose by: the words of the name, the promises of the scenario and its steps, its needs, and
    /// the protocols in its manifests besides TCP.
    pub fn tags(&self) -> BTreeSet<String> {
        let words = self.name.split('-').map(str::to_owned);
        let promises = self.steps.iter().filter_map(|step| step.promise).chain(self.promise);
        let promises = promises.map(|promise| promise.id.to_owned());
        let needs = self.needs.iter().map(|need| need.name().to_owned());
        let is_named = |protocol: &&str| self.manifests.iter().any(|one| one.document.text.contains(*protocol));
        let protocols = PROTOCOLS.into_iter().filter(is_named).map(str::to_lowercase);
        words.chain(promises).chain(needs).chain(protocols).collect()
    }
}
