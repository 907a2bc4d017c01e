use svclab_cluster::traffic::probe::ClusterHost;

use super::lab::KernelLab;
use crate::expect::counters::Ruleset;
use crate::report::Figures;

impl KernelLab {
    /// Returns what the proxies cost; `None` if the rules cannot be read.
    pub(super) async fn figures(&self) -> Option<Figures> {
        let used = self.proxies.usage();
        let mut figures = Figures {
            applied: self.took.clone(),
            peak_memory: used.iter().map(|usage| usage.peak_memory).max().unwrap_or_default(),
            processor: used.iter().map(|usage| usage.processor).sum(),
            idle: self.idle_usage,
            ..Figures::default()
        };
        for node in self.nodes() {
            for program in ["iptables-save", "ip6tables-save"] {
                let text = self
                    .output_of(&ClusterHost::Node(node.clone()), &[program.to_owned(), "-c".to_owned()])
                    .await
                    .ok()?;
                let saved = Ruleset::parse(&text);
                figures.rules += saved.rules.len();
                figures.chains += saved.chains.len();
            }
            for table in self.proxies.nft_tables(&node) {
                let listed = Ruleset::parse_nft(&self.table(&ClusterHost::Node(node.clone()), &table).await.ok()?);
                figures.rules += listed.rules.len();
                figures.chains += listed.chains.iter().filter(|(_, object)| object.starts_with("chain ")).count();
            }
        }
        Some(figures)
    }
}
