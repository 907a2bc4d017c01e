use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;
use svclab_oracle::generate::{self, ApiWrite, HistoryChange, ObjectName, histories, recipes, writes};
use svclab_oracle::{ClusterModel, Mode, Objects, Promise, PromisedReply, PromisedVerdict, Rule};

const SEEDS: std::ops::Range<u64> = 0..300;

fn sample(cluster: &ClusterModel, seed: u64) -> Vec<svclab_oracle::Question> {
    let skip = usize::try_from(seed % 17).unwrap();
    cluster.questions().into_iter().skip(skip).step_by(17).collect()
}

fn in_mode(seed: u64) -> ClusterModel {
    let mut cluster = generate::cluster(seed);
    cluster.world.proxy.mode = Mode::ALL[usize::try_from(seed).unwrap() % Mode::ALL.len()];
    cluster
}

#[test]
fn equal_seeds_give_equal_clusters() {
    for seed in SEEDS.take(20) {
        let (one, other) = (generate::cluster(seed), generate::cluster(seed));
        assert_eq!(one, other);
        assert_eq!(one.questions(), other.questions());
        assert_eq!(generate::history(seed, 10), generate::history(seed, 10));
    }
    assert_ne!(generate::cluster(1), generate::cluster(2));
}

#[test]
fn every_rule_decides_some_promise() {
    let never = [
        Rule::Headless,
        Rule::ExternalName,
        Rule::Martian,
        Rule::NodePortAddressesOtherFamily,
        Rule::Scheduled,
        Rule::ExternalIpsShut,
        // No cluster is drawn with these settings and annotations; scenarios have them.
        Rule::NoMasquerade,
        Rule::MasqueradeSource,
        Rule::ConsistentHash,
    ];
    // Rules that promises about generated clusters never give as reason.
    let unsaid = [Rule::SourceRangesFamily, Rule::HealthCheck, Rule::Family, Rule::Undecided];
    let mut reached: BTreeMap<Rule, usize> = BTreeMap::new();
    let mut undefined = 0;
    let mut all = 0;
    for seed in SEEDS.start..2 * SEEDS.end {
        let cluster = in_mode(seed);
        let oracle = cluster.oracle();
        for question in sample(&cluster, seed) {
            let promise = oracle.ask(&question);
            all += 1;
            undefined += usize::from(promise.verdict == PromisedVerdict::Undefined);
            for rule in promise.because.iter().map(|reason| reason.rule).collect::<BTreeSet<_>>() {
                *reached.entry(rule).or_default() += 1;
            }
        }
    }
    let missing: Vec<Rule> = Rule::ALL
        .into_iter()
        .filter(|rule| !never.contains(rule) && !unsaid.contains(rule) && !reached.contains_key(rule))
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {reached:?}");
    assert!(undefined * 25 < all, "{undefined} of {all} questions have no answer");
}

fn check(cluster: &ClusterModel, promise: &Promise, question: &svclab_oracle::Question) {
    let PromisedVerdict::Deliver(delivery) = &promise.verdict else { return };
    let addresses: BTreeSet<_> = delivery.backends.iter().map(|backend| backend.address).collect();
    assert_eq!(addresses.len(), delivery.backends.len(), "an endpoint twice\n{promise}");
    let count = u32::try_from(delivery.backends.len()).unwrap();
    assert!(delivery.backends.iter().all(|backend| backend.share.is_none_or(|share| share.of == count)), "{promise}");
    for backend in &delivery.backends {
        assert_eq!(backend.address.is_ipv4(), question.to.is_ipv4(), "{promise}");
        assert!(backend.pod.is_some(), "{promise}");
        assert!(!backend.sees.is_empty(), "{promise}");
        let node = cluster.world.nodes.iter().find(|node| node.name == delivery.node).unwrap();
        if backend.masqueraded {
            assert!(backend.sees.iter().all(|address| node.has(*address)), "{promise}");
            assert_eq!(backend.reply, PromisedReply::From(question.to), "{promise}");
        }
        assert!(!backend.sees.contains(&backend.address.ip()) || node.has(backend.address.ip()), "{promise}");
    }
}

#[test]
fn promises_are_consistent() {
    for seed in SEEDS {
        let cluster = in_mode(seed);
        let oracle = cluster.oracle();
        for question in sample(&cluster, seed) {
            let promise = oracle.ask(&question);
            check(&cluster, &promise, &question);
            let dropped = matches!(promise.verdict, PromisedVerdict::Drop);
            let reasons =
                [Rule::NoLocalEndpoints, Rule::SourceRanges, Rule::AnnotatedSourceRanges, Rule::UnusedClusterIp];
            assert!(!dropped || reasons.iter().any(|rule| promise.rests_on(*rule)), "{question}: {promise}");
        }
    }
}

#[test]
fn order_and_other_services_do_not_matter() {
    for seed in SEEDS.take(60) {
        let cluster = in_mode(seed);
        let mut reversed = cluster.clone();
        reversed.objects.services.reverse();
        reversed.objects.slices.reverse();
        let oracle = cluster.oracle();
        for question in sample(&cluster, seed) {
            let promise = oracle.ask(&question);
            assert_eq!(promise.verdict, reversed.oracle().ask(&question).verdict, "{question}");
            let PromisedVerdict::Deliver(delivery) = &promise.verdict else { continue };
            let mut alone = cluster.clone();
            let name = (Some(&delivery.service.namespace), Some(&delivery.service.service));
            let named = |of: &ObjectMeta| (of.namespace.as_ref(), of.name.as_ref()) == name;
            alone.objects.services.retain(|service| named(&service.metadata));
            assert_eq!(promise.verdict, alone.oracle().ask(&question).verdict, "{question}");
        }
    }
}

#[test]
fn masquerade_all_keeps_endpoints_and_shares() {
    for seed in SEEDS.take(60) {
        let cluster = generate::cluster(seed);
        let mut all = cluster.clone();
        all.world.proxy.masquerade_all = true;
        for question in sample(&cluster, seed) {
            let (one, other) = (cluster.oracle().ask(&question), all.oracle().ask(&question));
            let who = |promise: &Promise| -> Option<Vec<_>> {
                let backends = promise.verdict.backends()?;
                Some(backends.iter().map(|backend| (backend.address, backend.share)).collect())
            };
            assert_eq!(who(&one), who(&other), "{question}");
        }
    }
}

#[test]
fn scenario_files_have_the_top_level_keys() {
    for seed in SEEDS.take(40) {
        let cluster = in_mode(seed);
        for question in sample(&cluster, seed).into_iter().take(5) {
            let text = cluster.scenario_yaml("generated", &question);
            let value: serde_json::Value =
                serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            for key in ["name", "about", "modes", "cluster", "proxy", "manifests", "steps"] {
                assert!(!value[key].is_null(), "{key}\n{text}");
            }
            let step = &value["steps"][0];
            assert!(step["probe"]["to"].is_string() || step["exec"]["at"].is_string(), "{text}");
        }
    }
}

fn apply(objects: &mut Objects, write: ApiWrite) {
    match write {
        ApiWrite::Service(service) => {
            objects.services.retain(|old| ObjectName::of(&old.metadata) != ObjectName::of(&service.metadata));
            objects.services.push(service);
        }
        ApiWrite::Slice(slice) => {
            objects.slices.retain(|old| ObjectName::of(&old.metadata) != ObjectName::of(&slice.metadata));
            objects.slices.push(slice);
        }
        ApiWrite::DeleteService(name) => objects.services.retain(|old| ObjectName::of(&old.metadata) != name),
        ApiWrite::DeleteSlice(name) => objects.slices.retain(|old| ObjectName::of(&old.metadata) != name),
    }
}

fn sorted(objects: &Objects) -> (Vec<String>, Vec<String>) {
    let texts = |values: Vec<serde_json::Value>| {
        let mut texts: Vec<String> = values.iter().map(ToString::to_string).collect();
        texts.sort();
        texts
    };
    let services = objects.services.iter().map(|service| serde_json::to_value(service).unwrap()).collect();
    let slices = objects.slices.iter().map(|slice| serde_json::to_value(slice).unwrap()).collect();
    (texts(services), texts(slices))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn writes_lead_to_the_next_state(history in histories(12)) {
        let states = history.states();
        let mut objects = states[0].objects.clone();
        for pair in states.windows(2) {
            for write in writes(&pair[0].objects, &pair[1].objects) {
                apply(&mut objects, write);
            }
            prop_assert_eq!(sorted(&objects), sorted(&pair[1].objects));
        }
    }

    #[test]
    fn a_change_of_a_missing_object_has_no_effect(recipe in recipes(), at in any::<u8>()) {
        let bare = generate::Recipe { services: Vec::new(), ..recipe };
        let history = generate::History { start: bare, changes: vec![HistoryChange::Delete(at), HistoryChange::RemoveEndpoint(at, at)] };
        let states = history.states();
        prop_assert!(states.iter().all(|state| *state == states[0]));
    }
}
