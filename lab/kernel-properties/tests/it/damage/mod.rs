//! Negative controls: judges notice rules that a test breaks.

use std::time::Duration;

use svclab::expect::chi_square::TailBounds;
use svclab::expect::stats::FALSE_ALARM;
use svclab_cluster::Cluster as Lab;
use svclab_kernel_properties::ask::ProbeState;
use svclab_kernel_properties::cluster_case::ClusterCase;
use svclab_kernel_properties::observation::Observation;
use svclab_kernel_properties::proxy::{self, AppliedRules};
use svclab_kernel_properties::question_sample::choose;
use svclab_kernel_properties::round_robin;
use svclab_kernel_properties::testbed::{self, Testbed};
use svclab_oracle::generate::{EndpointRecipe, PortRecipe, Recipe, ServiceFamilies, ServiceKind, ServiceRecipe};
use svclab_oracle::{ClusterModel, Mode};
use svclab_properties::proxies::Dump;
use svcproxy::model::Family;

use crate::support::CaseContext;

fn cluster(testbed: &Testbed) -> ClusterModel {
    let port = |protocol| PortRecipe { protocol, node_port: true, same_number: false };
    let endpoint = |pod| EndpointRecipe { pod, ..EndpointRecipe::default() };
    let service = ServiceRecipe {
        kind: ServiceKind::NodePort,
        stack: ServiceFamilies::Both,
        ports: vec![port(0), port(1)],
        endpoints: (0..3).map(endpoint).collect(),
        ..ServiceRecipe::default()
    };
    Recipe { services: vec![service], ..testbed.recipe() }.build()
}

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

    async fn damage(&self, node: &str, how: impl Fn(&str) -> String) -> Dump {
        let dump = &self.applied.dumps[node];
        let texts = [(Family::V4, &dump.v4), (Family::V6, &dump.v6)];
        let changed = texts.map(|(family, text)| (family, how(text)));
        assert!(texts.iter().zip(&changed).all(|((_, before), (_, after))| *before != after), "{}", dump.v4);
        proxy::replace(&self.lab, self.testbed.variant, node, changed.into(), dump).await.unwrap()
    }

    async fn ask(&self, case: &ClusterCase<'_>, pace: &mut ProbeState) -> Vec<Vec<Observation>> {
        proxy::forget(&self.lab, self.testbed.variant, &self.cluster, &mut self.applied.dumps.clone()).await.unwrap();
        case.ask(&self.lab, pace).await.unwrap()
    }
}

/// The kernel contradicts oracle and simulator while the simulator has the old rules; with the new ones only the oracle
/// disagrees.
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
        // A short timeout: the expected answers do not arrive.
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

        // The proxies of the next cluster repair the rules.
        bench.applied = proxy::apply(&bench.lab, bench.testbed.variant, &bench.cluster, 0).await.unwrap();
        let rules =
            |text: &str| text.lines().filter(|line| line.starts_with('-')).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(rules(&bench.applied.dumps["node-a"].v4), rules(&before.v4));
        let case = bench.case();
        let seen = bench.ask(&case, &mut pace).await;
        assert_eq!((case.against_simulator(&seen), case.against_oracle(&seen)), (vec![], vec![]));
    });
}

/// Judges notice relays that have ended, and relays that lack an endpoint.
pub fn of_relays_is_noticed(inside: &CaseContext<'_>) {
    inside.runtime.block_on(async {
        let mut bench = DamagedTestbed::build().await;
        bench.cluster.world.proxy.mode = Mode::Userspace;
        bench.applied = proxy::apply(&bench.lab, bench.testbed.variant, &bench.cluster, 0).await.unwrap();
        let mut pace = ProbeState::default();
        let case = bench.case();
        let mut seen = bench.ask(&case, &mut pace).await;
        assert_eq!((case.against_simulator(&seen), case.against_oracle(&seen)), (vec![], vec![]));
        // Falsifies the observations: one endpoint gets the turns of another.
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

/// Every single packet is correct; only the χ² test notices wrong shares.
pub fn of_shares_is_noticed(inside: &CaseContext<'_>) {
    inside.runtime.block_on(async {
        let bench = DamagedTestbed::build().await;
        let case = bench.case();
        let mut tails = TailBounds::default();
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
