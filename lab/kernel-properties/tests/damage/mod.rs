//! Negative controls: rules that are broken on purpose, on one node, behind the judges' backs.

use std::collections::BTreeMap;

use svclab::cluster::Cluster as Lab;
use svclab::expect::chi_square::Tails;
use svclab::expect::stats::FALSE_ALARM;
use svclab_kernel_properties::choice::choose;
use svclab_kernel_properties::frame::{self, Frame};
use svclab_kernel_properties::hearing::Hearing;
use svclab_kernel_properties::{ask, proxy};
use svclab_oracle::Cluster;
use svclab_oracle::generate::{Condition, EndpointRecipe, Hints, Kind, PortRecipe, Recipe, ServiceRecipe, Stack};
use svclab_properties::proxies::Dump;
use svcproxy::model::Family;

use crate::support::Runtime;

/// A node-port service over TCP and UDP with an endpoint on each of the first three pods.
fn cluster(frame: &Frame) -> Cluster {
    let port = |protocol| PortRecipe { protocol, node_port: true, same_number: false };
    let endpoint = |pod| EndpointRecipe {
        pod,
        condition: Condition::Ready,
        slice: 0,
        copied: false,
        homeless: false,
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
    };
    Recipe { services: vec![service], ..frame.recipe() }.build()
}

/// A frame with a cluster's rules on it.
struct Bench {
    frame: Frame,
    lab: Lab,
    cluster: Cluster,
    dumps: BTreeMap<String, Dump>,
}

impl Bench {
    async fn build() -> Bench {
        let frame = frame::ALL[2];
        let lab = Lab::build(&frame.spec()).await.unwrap();
        let cluster = cluster(&frame);
        let dumps = proxy::apply(&lab, frame.variant, &cluster, 0).await.unwrap();
        Bench { frame, lab, cluster, dumps }
    }

    fn hearing(&self) -> Hearing<'_> {
        Hearing::open(&self.cluster, &self.dumps, choose(&self.cluster, 1, 60)).unwrap()
    }

    /// Puts rules that are changed like this in the place of those of the first node.
    async fn damage(&self, how: impl Fn(&str) -> String) -> (String, Dump) {
        let (node, dump) = self.dumps.first_key_value().unwrap();
        let texts = [(Family::V4, &dump.v4), (Family::V6, &dump.v6)];
        let changed = texts.map(|(family, text)| (family, how(text)));
        assert!(texts.iter().zip(&changed).all(|((_, before), (_, after))| *before != after), "{}", dump.v4);
        let after = proxy::replace(&self.lab, self.frame.variant, node, changed.into()).await.unwrap();
        (node.clone(), after)
    }
}

/// Without the jumps to the services' chains: the kernel does otherwise than the simulator, which has the rules as they were,
/// and than was promised; with the rules as they are the simulator agrees with the kernel, and the oracle with neither.
pub fn of_one_node_is_noticed(_: &str, runtime: &Runtime) {
    runtime.block_on(async {
        let mut bench = Bench::build().await;
        let hearing = bench.hearing();
        let seen = hearing.ask(&bench.lab, &mut ask::first_port()).await.unwrap();
        assert_eq!(hearing.against_simulator(&seen), []);
        assert_eq!(hearing.against_oracle(&seen), []);

        let without = |text: &str| {
            let lines = text.lines().filter(|line| !line.starts_with("-A KUBE-SERVICES ") || line.contains("KUBE-NODEPORTS"));
            lines.map(|line| format!("{line}\n")).collect()
        };
        let (node, after) = bench.damage(without).await;
        proxy::forget(&bench.lab, &bench.cluster).await.unwrap();
        let seen = hearing.ask(&bench.lab, &mut ask::first_port()).await.unwrap();
        assert!(!hearing.against_simulator(&seen).is_empty());
        let promised: Vec<String> = hearing.against_oracle(&seen).into_iter().map(|fault| fault.says).collect();
        assert!(promised.iter().any(|says| says.ends_with("the kernel: silence")), "{promised:?}");
        drop(hearing);

        bench.dumps.insert(node, after);
        let hearing = bench.hearing();
        proxy::forget(&bench.lab, &bench.cluster).await.unwrap();
        let seen = hearing.ask(&bench.lab, &mut ask::first_port()).await.unwrap();
        assert_eq!(hearing.against_simulator(&seen), []);
        assert!(!hearing.against_oracle(&seen).is_empty());

        // The next cluster's proxies mend it.
        let again = proxy::apply(&bench.lab, bench.frame.variant, &bench.cluster, 0).await.unwrap();
        bench.dumps = again;
        let hearing = bench.hearing();
        proxy::forget(&bench.lab, &bench.cluster).await.unwrap();
        let seen = hearing.ask(&bench.lab, &mut ask::first_port()).await.unwrap();
        assert_eq!(hearing.against_simulator(&seen), []);
    });
}

/// The first of three endpoints gets two thirds: everybody is where they should be, and only the χ² test sees it.
pub fn of_shares_is_noticed(_: &str, runtime: &Runtime) {
    runtime.block_on(async {
        let bench = Bench::build().await;
        let hearing = bench.hearing();
        let mut tails = Tails::default();
        let (mut port, mut bounds) = (ask::first_port(), Vec::new());
        for damaged in [false, true] {
            if damaged {
                bench.damage(|text| text.replace("--probability 0.33333333349", "--probability 0.66666666651")).await;
            }
            proxy::forget(&bench.lab, &bench.cluster).await.unwrap();
            let seen = hearing.ask(&bench.lab, &mut port).await.unwrap();
            assert_eq!(hearing.against_simulator(&seen), []);
            let here: Vec<_> = hearing.drawn(&seen).into_iter().map(|(_, drawn)| drawn).collect();
            assert!(here.iter().any(|drawn| drawn.total() >= 240), "one is asked often");
            bounds.push(tails.bound(&here));
        }
        assert!(bounds[0] > FALSE_ALARM && bounds[1] < FALSE_ALARM, "{bounds:?}");
    });
}
