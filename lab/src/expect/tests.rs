#![allow(clippy::unwrap_used, reason = "tests")]
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use proptest::prelude::*;
use svclab_cluster::traffic::probe::{ProbeAnswer, ProbeOutcome};

use super::counters::{PacketCount, Ruleset};
use super::*;

fn reply(server: &str, peer: &str) -> ProbeOutcome {
    let peer = SocketAddr::new(peer.parse().unwrap(), 40_000);
    let client = Some("10.0.0.9:40000".parse().unwrap());
    ProbeOutcome {
        answer: ProbeAnswer::Replied { server: server.into(), peer, at: peer, dscp: None },
        client,
        took: Duration::ZERO,
    }
}

fn replies(counts: &[(&str, usize)]) -> Vec<ProbeOutcome> {
    counts.iter().flat_map(|(server, count)| std::iter::repeat_n(reply(server, "10.0.0.9"), *count)).collect()
}

fn even(names: &[&str]) -> ProbePromise {
    let share = 1.0 / names.len() as f64;
    let by = names.iter().map(|name| ((*name).to_owned(), Some(share))).collect();
    ProbePromise::Answered { by, source: None, sticky: false, turns: None, all: false, dscp: None }
}

fn source(addresses: &[&str], client: bool, not: bool) -> ProbePromise {
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let source = Some(SourcePromise { words: "x".into(), client, addresses, not });
    ProbePromise::Answered {
        by: vec![("d/a".into(), None)],
        source,
        sticky: false,
        turns: None,
        all: false,
        dscp: None,
    }
}

#[test]
fn a_changed_dscp_breaks_the_promise() {
    let wanted = |dscp| ProbePromise::Answered {
        by: vec![("d/a".into(), None)],
        source: None,
        sticky: false,
        turns: None,
        all: false,
        dscp: Some(dscp),
    };
    let saw = |seen| {
        let mut outcome = reply("d/a", "10.0.0.9");
        if let ProbeAnswer::Replied { dscp, .. } = &mut outcome.answer {
            *dscp = seen;
        }
        outcome
    };
    assert_eq!(judge(&wanted(46), &[saw(Some(46)), saw(Some(46))]), []);
    let cleared = Mismatch::new("servers see DSCP 46", "DSCP 0 ×1, DSCP 46 ×1");
    assert_eq!(judge(&wanted(46), &[saw(Some(46)), saw(Some(0))]), [cleared]);
    let unknown = Mismatch::new("servers see DSCP 0", "no DSCP ×1");
    assert_eq!(judge(&wanted(0), &[saw(None)]), [unknown]);
}

#[test]
fn probe_counts_are_enough_and_one_less_is_not() {
    for (backends, expected) in [(1, 1), (2, 441), (3, 1_053), (4, 1_666), (10, 5_427)] {
        let shares = vec![1.0 / backends as f64; backends];
        let needed = stats::needed(&shares, 0.5).unwrap();
        assert!(stats::enough(needed, &shares, 0.5));
        assert!(needed == 1 || !stats::enough(needed - 1, &shares, 0.5));
        assert_eq!(needed, expected, "{backends} backends");
    }
}

#[test]
fn the_smallest_detectable_skew_shrinks_with_the_root_of_the_probes() {
    let halves = [0.5, 0.5];
    let skews = [441, 4 * 441, 16 * 441, 30].map(|probes| stats::smallest_skew(probes, &halves));
    assert_eq!(skews, [Some(52), Some(27), Some(14), None]);
    for skew in [0.2, 0.5] {
        let needed = stats::needed(&[1.0 / 3.0; 3], skew).unwrap();
        let told = f64::from(stats::smallest_skew(needed, &[1.0 / 3.0; 3]).unwrap()) / 100.0;
        assert!((skew..skew + 0.04).contains(&told), "{needed} probes for {skew}: {told}");
    }
    assert_eq!(stats::smallest_skew(5, &[1.0]), Some(1));
}

#[test]
fn an_even_spread_passes_and_a_missing_or_favoured_backend_does_not() {
    let wanted = even(&["d/a", "d/b", "d/c"]);
    let verdict = |counts: &[(&str, usize)]| judge(&wanted, &replies(counts)).is_empty();
    assert!(verdict(&[("d/a", 100), ("d/b", 90), ("d/c", 110)]));
    assert!(!verdict(&[("d/a", 150), ("d/b", 150)]), "missing");
    assert!(!verdict(&[("d/a", 200), ("d/b", 50), ("d/c", 50)]), "doubled");
    assert!(!verdict(&[("d/a", 100), ("d/b", 100), ("d/c", 99), ("d/d", 1)]), "stranger");
}

#[test]
fn a_server_without_an_answer_fails_a_check_of_all() {
    let by = ["d/a", "d/b", "d/c"].map(|name| (name.to_owned(), None)).to_vec();
    let wanted = ProbePromise::Answered { by, source: None, sticky: false, turns: None, all: true, dscp: None };
    assert_eq!(judge(&wanted, &replies(&[("d/a", 50), ("d/b", 1), ("d/c", 20)])), []);
    let found = judge(&wanted, &replies(&[("d/a", 50), ("d/c", 21)]));
    assert_eq!(found, [Mismatch::new("each of 3 pods answers some of 71 probes", "none from d/b")]);
    assert_eq!([1, 2, 3, 110].map(stats::until_all), [1, 31, 54, 2_784]);
}

#[test]
fn turns_may_begin_with_any_server() {
    let by = ["d/a", "d/b", "d/c"].map(|name| (name.to_owned(), None)).to_vec();
    let wanted = ProbePromise::Answered { by, source: None, sticky: false, turns: Some(1), all: false, dscp: None };
    let verdict = |order: &str| {
        let outcomes: Vec<ProbeOutcome> = order.chars().map(|pod| reply(&format!("d/{pod}"), "10.0.0.9")).collect();
        judge(&wanted, &outcomes)
    };
    assert_eq!(verdict("abcabcabc"), []);
    assert_eq!(verdict("cabcabca"), []);
    assert_eq!(verdict("abcabca"), [], "the last round is cut short");
    let wrong = Mismatch::new("3 servers answer in turn", "d/a, d/b, d/c, d/a, d/c, d/b");
    assert_eq!(verdict("abcacb"), [wrong], "the same shares in another order");
    assert_eq!(verdict("abababab").len(), 1, "one never has its turn");
    assert_eq!(verdict("aabbcc").len(), 1);
    assert_eq!(verdict("abcdabcd").len(), 1, "a stranger");
}

#[test]
fn refused_and_dropped_accept_nothing_else() {
    let with = |answer: ProbeAnswer| vec![ProbeOutcome { answer, client: None, took: Duration::ZERO }];
    assert!(judge(&ProbePromise::Refused, &with(ProbeAnswer::Refused)).is_empty());
    assert!(judge(&ProbePromise::Dropped, &with(ProbeAnswer::TimedOut)).is_empty());
    assert!(!judge(&ProbePromise::Refused, &with(ProbeAnswer::TimedOut)).is_empty());
    assert!(!judge(&ProbePromise::Dropped, &with(ProbeAnswer::Refused)).is_empty());
    assert!(!judge(&ProbePromise::Dropped, &with(ProbeAnswer::Unreachable("no route".into()))).is_empty());
    assert!(!judge(&ProbePromise::Dropped, &[]).is_empty(), "no probe proves nothing");
}

#[test]
fn sources_match_the_client_or_a_list() {
    let kept = [reply("d/a", "10.0.0.9")];
    let masked = [reply("d/a", "172.18.0.2")];
    assert!(judge(&source(&[], true, false), &kept).is_empty());
    assert!(!judge(&source(&[], true, false), &masked).is_empty());
    assert!(judge(&source(&["172.18.0.2"], false, false), &masked).is_empty());
    assert!(judge(&source(&[], true, true), &masked).is_empty());
    assert!(!judge(&source(&[], true, true), &kept).is_empty());
}

#[test]
fn one_silent_probe_or_a_second_server_breaks_the_promise() {
    let by = vec![("d/a".to_owned(), None), ("d/b".to_owned(), None)];
    let wanted =
        |sticky| ProbePromise::Answered { by: by.clone(), source: None, sticky, turns: None, all: false, dscp: None };
    let mut outcomes = replies(&[("d/a", 3), ("d/b", 2)]);
    assert!(judge(&wanted(false), &outcomes).is_empty());
    assert!(!judge(&wanted(true), &outcomes).is_empty());
    outcomes.push(ProbeOutcome { answer: ProbeAnswer::TimedOut, client: None, took: Duration::ZERO });
    let mismatches = judge(&wanted(false), &outcomes);
    assert_eq!(mismatches[0].seen, "d/a ×3, d/b ×2; saw 10.0.0.9; no answer ×1");
}

#[test]
fn iptables_save_is_read_with_counters() {
    let saved = "# comment\n*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-X - [0:0]\n[3:180] -A KUBE-SERVICES -d 10.0.0.1/32 -j KUBE-SVC-X\n[1:60] -A KUBE-SVC-X -j KUBE-SEP-Y\nCOMMIT\n";
    let rules = Ruleset::parse(saved);
    assert!(rules.has_chain("nat", "KUBE-SVC-X") && !rules.has_chain("filter", "KUBE-SVC-X"));
    let parts = ["10.0.0.1".to_owned(), "KUBE-SVC-X".to_owned()];
    let found: Vec<_> = rules.matching("nat", "KUBE-SERVICES", &parts).collect();
    assert_eq!((found.len(), found[0].packets), (1, Some(3)));
}

#[test]
fn packet_counts_accept_their_numbers() {
    let accepts =
        |text: &str, seen| text.parse::<PacketCount>().unwrap().accepts(seen, |pod| u64::from(pod == "a") * 7);
    assert!(accepts("3", 3) && !accepts("3", 4));
    assert!(accepts(">= 3", 4) && !accepts(">=3", 2));
    assert!(accepts("<=3", 3) && !accepts("<=3", 4));
    assert!(accepts("answers of a", 7) && !accepts("answers of a", 6));
    assert!("three".parse::<PacketCount>().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn intervals_contain_the_expected_count(n in 1_usize..2_000, percent in 1_u32..100, k in 1_usize..20) {
        let p = f64::from(percent) / 100.0;
        let (low, high) = stats::accepted(n, p, k);
        let mean = n as f64 * p;
        prop_assert!(low as f64 <= mean.ceil() && high as f64 >= mean.floor() && low <= high && high <= n);
    }

    #[test]
    fn twice_the_needed_probes_are_enough(weights in proptest::collection::vec(1_u32..5, 2..6)) {
        let sum: u32 = weights.iter().sum();
        let shares: Vec<f64> = weights.iter().map(|weight| f64::from(*weight) / f64::from(sum)).collect();
        let needed = stats::needed(&shares, 0.5).unwrap();
        prop_assert!(stats::enough(needed * 2, &shares, 0.5));
    }

    #[test]
    fn a_fair_draw_is_accepted(seed in any::<u64>(), backends in 2_usize..8) {
        let names: Vec<String> = (0..backends).map(|number| format!("d/{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let count = stats::needed(&vec![1.0 / backends as f64; backends], 0.5).unwrap();
        let mut counts = vec![0; backends];
        for draw in 0..count {
            let random = svclab_apiserver::objects::mix(seed, &draw.to_string()) >> 16;
            counts[usize::try_from(random % backends as u64).unwrap()] += 1;
        }
        let pairs: Vec<(&str, usize)> = names.iter().copied().zip(counts).collect();
        prop_assert!(judge(&even(&names), &replies(&pairs)).is_empty());
    }
}

#[test]
fn samples_differ_only_beyond_chance() {
    for (a, b, differs) in [
        ((10, 20), (10, 20), false),
        ((500, 1_000), (400, 1_000), false),
        ((500, 1_000), (350, 1_000), true),
        // Too few probes to show anything.
        ((5, 5), (0, 5), false),
        ((20, 20), (0, 20), true),
        ((0, 1_000), (0, 7), false),
        ((1_000, 1_000), (7, 7), false),
    ] {
        assert_eq!(stats::differ(a, b, 2), differs, "{a:?} {b:?}");
        assert_eq!(stats::differ(b, a, 2), differs, "{b:?} {a:?}");
    }
}

proptest! {
    #[test]
    fn an_even_split_never_differs(sent_a in 1_usize..300, sent_b in 1_usize..300, share in 0.0_f64..1.0) {
        let all = ((sent_a + sent_b) as f64 * share) as usize;
        let first = all.saturating_sub(sent_b);
        // The most even split, which no test may reject.
        let even = (all * sent_a / (sent_a + sent_b)).clamp(first, all.min(sent_a));
        prop_assert!(!stats::differ((even, sent_a), (all - even, sent_b), 1));
    }
}
