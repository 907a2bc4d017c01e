use std::collections::BTreeSet;
use std::time::Instant;

use svcproxy::config::NodeAddresses;
use svcproxy::mode::Plans;
use svcproxy::mode::iptables_family::engine::render::{ChainId, FixedChain, FollowUp, Renderer, ServiceRules};
use svcproxy::mode::iptables_family::engine::{Engine, HasPacketFilter};
use svcproxy::mode::iptables_family::rules::jumps::Jump;
use svcproxy::model::{Protocol, ServicePortName};
use svcproxy::plan::stale_flows::Frontend;
use svcproxy::plan::{NodePlan, ServicePortPlan};
use svcproxy::ruleset::SavedTables;

use super::kernel::CallLog;

/// Times [`Renderer::render`] and [`Renderer::fixed`], which do not call the kernel.
pub struct Timed<R> {
    renderer: R,
    log: CallLog,
}

impl<R> Timed<R> {
    pub fn engine<K: HasPacketFilter>(engine: Engine<R, K>, log: &CallLog) -> Engine<Timed<R>, K>
    where
        R: Renderer<K>,
    {
        let (kernel, renderer) = engine.into_parts();
        Engine::with(kernel, Timed { renderer, log: log.clone() })
    }

    fn timed<T>(&self, start: Instant, value: T) -> T {
        self.log.lock().rendered += start.elapsed();
        value
    }
}

impl<K, R: Renderer<K>> Renderer<K> for Timed<R> {
    type Error = R::Error;
    type Node = R::Node;

    const READ: &'static [ChainId] = R::READ;

    fn node(&mut self, plan: NodePlan, addresses: &NodeAddresses, plans: &dyn Plans) -> Self::Node {
        self.renderer.node(plan, addresses, plans)
    }

    fn depends_on(&self, node: &NodePlan, before: &NodeAddresses, after: &NodeAddresses) -> bool {
        self.renderer.depends_on(node, before, after)
    }

    fn jumps(node: &Self::Node) -> Vec<&'static Jump> {
        R::jumps(node)
    }

    fn fixed(&self, node: &Self::Node, random_fully: bool) -> Vec<FixedChain> {
        let start = Instant::now();
        let fixed = self.renderer.fixed(node, random_fully);
        self.timed(start, fixed)
    }

    fn render(&mut self, node: &Self::Node, name: &ServicePortName, plan: Option<&ServicePortPlan>) -> ServiceRules {
        let start = Instant::now();
        let rules = self.renderer.render(node, name, plan);
        self.timed(start, rules)
    }

    fn begin(&mut self, saved: &SavedTables) {
        self.renderer.begin(saved);
    }

    fn before_rules(&mut self, kernel: &mut K, node: &Self::Node, saved: Option<&SavedTables>) -> Result<(), R::Error> {
        self.renderer.before_rules(kernel, node, saved)
    }

    fn after_rules(&mut self, kernel: &mut K, node: &Self::Node) -> Result<usize, R::Error> {
        self.renderer.after_rules(kernel, node)
    }

    fn detect_flush(&mut self, kernel: &mut K, node: &Self::Node) -> Result<Option<String>, R::Error> {
        self.renderer.detect_flush(kernel, node)
    }

    fn follow_up(&mut self, kernel: &mut K, now: Instant) -> Result<FollowUp, R::Error> {
        self.renderer.follow_up(kernel, now)
    }

    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        self.renderer.take_previous_frontends()
    }

    fn relay_ports(&self, name: &ServicePortName) -> Vec<u16> {
        self.renderer.relay_ports(name)
    }
}
