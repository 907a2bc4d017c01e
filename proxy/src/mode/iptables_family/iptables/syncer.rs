use std::collections::BTreeSet;
use std::time::Instant;

use super::jumps;
use super::lost_frontends::LostFrontends;
use super::objects::{EndpointComments, render};
use super::ruleset;
use crate::config::NodeAddresses;
use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::mode::Plans;
use crate::mode::iptables_family::engine::Engine;
use crate::mode::iptables_family::engine::render::{FixedChain, Renderer, ServiceRules};
use crate::mode::iptables_family::rules::jumps::Jump;
use crate::model::ServicePortName;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::SavedTables;

pub type IptablesSyncer<K> = Engine<IptablesRenderer, K>;

#[derive(Debug, Clone, Default)]
pub struct IptablesRenderer {
    /// Whether even large clusters' rules have comments, which [`super::connections`] needs.
    counts_by_comment: bool,
    lost_frontends: LostFrontends,
}

impl IptablesRenderer {
    pub fn new(counts_by_comment: bool) -> IptablesRenderer {
        IptablesRenderer { counts_by_comment, lost_frontends: LostFrontends::default() }
    }
}

impl<K: PacketFilter> IptablesSyncer<K> {
    pub fn new(kernel: K, counts_by_comment: bool) -> IptablesSyncer<K> {
        Engine::with(kernel, IptablesRenderer::new(counts_by_comment))
    }
}

impl<K: PacketFilter> Renderer<K> for IptablesRenderer {
    type Error = IptablesError;
    /// Only full syncs decide about comments: otherwise a cluster near the limit would be rewritten often.
    type Node = (NodePlan, EndpointComments);

    fn node(&mut self, plan: NodePlan, _: &NodeAddresses, plans: &dyn Plans) -> Self::Node {
        let comments = if self.counts_by_comment { EndpointComments::Written } else { EndpointComments::of(plans) };
        (plan, comments)
    }

    fn jumps((node, _): &Self::Node) -> Vec<&'static Jump> {
        jumps::wanted(node).collect()
    }

    fn fixed(&self, (node, _): &Self::Node, random_fully: bool) -> Vec<FixedChain> {
        ruleset::fixed(node, random_fully)
    }

    fn render(
        &mut self,
        (node, comments): &Self::Node,
        name: &ServicePortName,
        plan: Option<&ServicePortPlan>,
    ) -> ServiceRules {
        let mut rules = plan.map(|plan| render(plan, node, *comments)).unwrap_or_default();
        if let Some(memory) = node.lost_flows {
            rules.lines.extend(self.lost_frontends.render(name, plan, memory, Instant::now()));
        }
        rules
    }

    fn begin(&mut self, _: &SavedTables) {
        self.lost_frontends.begin(Instant::now());
    }

    fn take_unrendered(&mut self) -> BTreeSet<ServicePortName> {
        self.lost_frontends.take_unrendered()
    }
}
