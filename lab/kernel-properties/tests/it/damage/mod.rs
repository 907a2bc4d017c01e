//! Negative controls: rules that are broken on purpose, on one node, behind the judges' backs.

use std::time::Duration;

use svclab::expect::chi_square::Tails;
use svclab::expect::stats::FALSE_ALARM;
use svclab_cluster::Cluster as Lab;
use svclab_kernel_properties::ask::ProbeState;
use svclab_kernel_properties::cluster_case::ClusterCase;
use svclab_kernel_properties::observation::Observation;
use svclab_kernel_properties::proxy::{self, AppliedRules};
use svclab_kernel_properties::question_sample::choose;
use svclab_kernel_properties::round_robin;
use svclab_kernel_properties::testbed::{self, Testbed};
use svclab_oracle::generate::{
    Condition, Copies, EndpointRecipe, Hints, Kind, PortRecipe, Recipe, ServiceRecipe, Stack,
};
use svclab_oracle::{ClusterModel, Mode};
use svclab_properties::proxies::Dump;
use svcproxy::model::Family;

use crate::support::CaseContext;

/// A node-port service over TCP and UDP with an endpoint on each of the first three pods.
fn cluster(testbed: &Testbed) -> ClusterModel {
    let port = |protocol| PortRecipe { protocol, node_port: true, same_number: false };
    let endpoint = |pod| EndpointRecipe {
        pod,
        condition: Condition::Ready,
        slice: 0,
        copy: Copies::None,
        without_node: false,
        left_out: 0,
        hinted: 0,
    };
    let service = ServiceRecipe {
        kind: Kind::NodePort,
        stack: Stack::Both,
        internal_local: false,
        external_local: false,
        affinity: None,
        ports: vec![port(0), port(1)],
        external_ips: Vec::new(),
        ingress: Vec::new(),
        source_ranges: Vec::new(),
        endpoints: (0..3).map(endpoint).collect(),
        hints: Hints::None,
        other_targets: false,
        other_names: false,
        disjoint: false,
        left_out: 0,
        claims: None,
        made: None,
        newer: 0,
    };
    Recipe { services: vec![service], ..testbed.recipe() }.build()
}

/// A testbed with a cluster's rules on it.
struct DamagedTestbed {
    testbed: Testbed,
    lab: Lab,
    cluster: ClusterModel,
    applied: AppliedRules,
}

impl DamagedTestbed {
    async fn build() -> DamagedTestbed {
        let testbed = testbed::ALL[2];
        let lab = Lab::build(&testbed.spec()).await.unwrap();
        let cluster = cluster(&testbed);
        let applied = proxy::apply(&lab, testbed.variant, &cluster, 0).await.unwrap();
        DamagedTestbed { testbed, lab, cluster, applied }
    }

    fn case(&self) -> ClusterCase<'_> {
        ClusterCase::open(&self.cluster, &self.applied.dumps, choose(&self.cluster, 1, 60)).unwrap()
    }

    /// Puts rules that are changed like this in the place of a node's own.
    async fn damage(&self, node: &str, how: impl Fn(&str) -> String) -> Dump {
        let dump = &self.applied.dumps[node];
        let texts = [(Family::V4, &dump.v4), (Family::V6, &dump.v6)];
        let changed = texts.map(|(family, text)| (family, how(text)));
        assert!(texts.iter().zip(&changed).all(|((_, before), (_, after))| *before != after), "{}", dump.v4);
        proxy::replace(&self.lab, self.testbed.variant, node, changed.into(), dump).await.unwrap()
    }

    /// What the kernel does now.
    async fn ask(&self, case: &ClusterCase<'_>, pace: &mut ProbeState) -> Vec<Vec<Observation>> {
        proxy::forget(&self.lab, self.testbed.variant, &self.cluster, &mut self.applied.dumps.clone()).await.unwrap();
        case.ask(&self.lab, pace).await.unwrap()
    }
}

/// Without the jumps to the services' chains: the kernel does otherwise than the simulator, which has the rules as they were,
/// and than was promised; with the rules as they are the simulator agrees with the kernel, and the oracle with neither.
pub fn of_one_node_is_noticed(inside: &CaseContext<'_>) {
    inside.runtime.block_on(async {
        let mut bench = DamagedTestbed::build().await;
        let mut pace = ProbeState::default();
        let case = bench.case();
        let seen = bench.ask(&case, &mut pace).await;
        assert_eq!((case.against_simulator(&seen), case.against_oracle(&seen)), (vec![], vec![]));

        let without = |text: &str| {
            let kept = |line: &&str| !line.starts_with("-A KUBE-SERVICES ") || line.contains("KUBE-NODEPORTS");
            text.lines().filter(kept).map(|line| format!("{line}\n")).collect()
        };
        let after = bench.damage("node-a", without).await;
        // Answers are expected that do not come.
        let seen = bench.ask(&case, &mut ProbeState { patience: Duration::from_secs(1), ..pace.clone() }).await;
        assert!(!case.against_simulator(&seen).is_empty());
        let promised: Vec<String> = case.against_oracle(&seen).into_iter().map(|fault| fault.says).collect();
        assert!(promised.iter().any(|says| says.ends_with("the kernel: silence")), "{promised:?}");
        drop(case);

        let before = bench.applied.dumps.insert("node-a".to_owned(), after).unwrap();
        let case = bench.case();
        let seen = bench.ask(&case, &mut pace).await;
        assert_eq!(case.against_simulator(&seen), []);
        assert!(!case.against_oracle(&seen).is_empty());
        drop(case);

        // The next cluster's proxies mend it.
        bench.applied = proxy::apply(&bench.lab, bench.testbed.variant, &bench.cluster, 0).await.unwrap();
        let rules =
            |text: &str| text.lines().filter(|line| line.starts_with('-')).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(rules(&bench.applied.dumps["node-a"].v4), rules(&before.v4));
        let case = bench.case();
        let seen = bench.ask(&case, &mut pace).await;
        assert_eq!((case.against_simulator(&seen), case.against_oracle(&seen)), (vec![], vec![]));
    });
}

/// Relays that are gone, while the rules that lead to them stay; or that have one endpoint less than the simulator was told.
pub fn of_relays_is_noticed(inside: &CaseContext<'_>) {
    inside.runtime.block_on(async {
        let mut bench = DamagedTestbed::build().await;
        bench.cluster.world.proxy.mode = Mode::Userspace;
        bench.applied = proxy::apply(&bench.lab, bench.testbed.variant, &bench.cluster, 0).await.unwrap();
        let mut pace = ProbeState::default();
        let case = bench.case();
        let mut seen = bench.ask(&case, &mut pace).await;
        assert_eq!((case.against_simulator(&seen), case.against_oracle(&seen)), (vec![], vec![]));
        // One endpoint has another's turns.
        assert_eq!(round_robin::out_of_turn(&case, &seen), []);
        assert!(round_robin::looked_at(&case).0 > 0);
        for seen in &mut seen {
            let first = seen[0].clone();
            let half = seen.len() / 2;
            seen[..half].fill(first);
        }
        let uneven = round_robin::out_of_turn(&case, &seen);
        assert!(uneven.iter().any(|fault| fault.says.contains("take turns, and were met")), "{uneven:?}");
        drop(case);

        let dumps = bench.applied.dumps.clone();
        for relays in bench.applied.dumps.values_mut().map(|dump| &mut dump.relays) {
            for relay in relays.values_mut() {
                relay.to.pop();
            }
        }
        let case = bench.case();
        let seen = bench.ask(&case, &mut pace).await;
        let says: Vec<String> = case.against_simulator(&seen).into_iter().map(|fault| fault.says).collect();
        assert!(says.iter().any(|says| says.contains("no such outcome")), "{says:?}");
        drop(case);

        bench.applied.end_relays();
        bench.applied.dumps = dumps;
        let case = bench.case();
        let seen = bench.ask(&case, &mut pace).await;
        let promised: Vec<String> = case.against_oracle(&seen).into_iter().map(|fault| fault.says).collect();
        assert!(promised.iter().any(|says| says.ends_with("the kernel: refused")), "{promised:?}");
    });
}

/// The first of three endpoints gets two thirds: everybody is where they should be, and only the χ² test sees it.
pub fn of_shares_is_noticed(inside: &CaseContext<'_>) {
    inside.runtime.block_on(async {
        let bench = DamagedTestbed::build().await;
        let case = bench.case();
        let mut tails = Tails::default();
        let (mut pace, mut bounds) = (ProbeState::default(), Vec::new());
        for damaged in [false, true] {
            for node in bench.applied.dumps.keys().filter(|_| damaged) {
                bench.damage(node, |text| text.replace("0.33333333349", "0.66666666651")).await;
            }
            let seen = bench.ask(&case, &mut pace).await;
            assert_eq!((case.against_simulator(&seen), case.against_oracle(&seen)), (vec![], vec![]));
            let mut drawn = case.drawn(&seen).into_iter().map(|(_, drawn)| drawn);
            bounds.push(tails.bound([&drawn.find(|drawn| drawn.total() == 240).unwrap()]));
        }
        assert!(bounds[0] > FALSE_ALARM && bounds[1] < FALSE_ALARM, "{bounds:?}");
    });
}
