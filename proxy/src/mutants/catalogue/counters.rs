//! Counts of service ports (`--service-counters`).

use crate::config::Mode;
use crate::habits::Habit;
use crate::model::Protocol;
use crate::mutants::{Hook, Mutant};
use crate::nftables::{NftVerdict, Rule, Statement};

const fn counters(id: &'static str, does: &'static str, hook: Hook) -> Mutant {
    Mutant::new(id, does, "service-counters", hook).only(&[Mode::Nftables])
}

fn jumps_to(rule: &Rule, chain: &str) -> bool {
    let to = |statement: &Statement| matches!(statement, Statement::Verdict(NftVerdict::Jump(to)) if &**to == chain);
    rule.statements.iter().any(to)
}

pub(super) const MUTANTS: &[Mutant] = &[
    counters(
        "counters-of-every-service",
        "ignores the list of --service-counters",
        Hook::Config(|config| {
            if let (Some(_), Ok(all)) = (&config.service_counters, "*/*".parse()) {
                config.service_counters = Some(all);
            }
        }),
    )
    .only(&[Mode::Iptables, Mode::Nftables]),
    counters(
        "counters-packets-as-connections",
        "counts every packet that it forwards as a connection",
        Hook::NftRules(|chain, rules| {
            let counts = chain == "filter-forward" && rules.iter().any(|rule| jumps_to(rule, "count-traffic"));
            let to = Statement::Verdict(NftVerdict::Jump("count-connections".into()));
            rules.extend(counts.then(|| Rule::new([Statement::Translated, to])));
        }),
    ),
    counters(
        "counters-of-own-calls-only",
        "counts no packet that it forwards",
        Hook::NftRules(|chain, rules| {
            rules.retain(|rule| chain != "filter-forward" || !jumps_to(rule, "count-traffic"));
        }),
    ),
    counters(
        "counters-no-udp",
        "counts no datagram",
        Hook::NftRules(|chain, rules| {
            let udp = |statement: &Statement| matches!(statement, Statement::Protocol(Protocol::Udp));
            rules.retain(|rule| chain != "count-traffic" || !rule.statements.iter().any(udp));
        }),
    ),
    counters("counters-answers-as-requests", "counts answers as requests", Hook::Habit(Habit::AnswersCountAsRequests)),
    counters(
        "counters-of-another-service",
        "counts the traffic of all Services for one",
        Hook::Habit(Habit::ServicesShareCounters),
    ),
];
