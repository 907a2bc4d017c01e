//! What a step promises of its requests, and how many requests show it.

use serde_saphyr::{Location, Spanned};
use svclab_apiserver::objects::{ObjectKey, Store};
use svclab_cluster::traffic::probe::ClusterHost;

use super::{addresses, dscp};
use crate::expect::{ProbePromise, SourcePromise, stats};
use crate::scenario::error::Problem;
use crate::scenario::file::{ExpectFile, ExpectedServers, Spread};
use crate::scenario::values::SourceAddress;

/// The least requests of a `sticky` check: a random choice of two backends passes with probability 2^-19.
const STICKY_PROBES: usize = 20;
/// The rounds of a `turns` check: a random choice of two backends passes with probability 2^-19.
const TURNS: usize = 10;
/// The most requests of a step: the lab keeps each outcome until the step is judged.
const MOST_PROBES: usize = 1_000_000;

pub(super) fn wanted(
    store: &Store,
    expect: &ExpectFile,
    from: &ClusterHost,
    at: Location,
) -> Result<ProbePromise, Problem> {
    let (refused, dropped) = (expect.refused == Some(true), expect.dropped == Some(true));
    if [expect.refused, expect.dropped, expect.unanswered].contains(&Some(false)) {
        return Err(Problem::new(at, "refused, dropped and unanswered are `true` or left out; say `answered` instead"));
    }
    let details = expect.spread.is_some()
        || expect.sticky.is_some()
        || expect.saw_source.is_some()
        || expect.saw_dscp.is_some()
        || expect.same_as.is_some()
        || expect.differs_from.is_some();
    match (&expect.answered, refused, dropped, expect.unanswered == Some(true)) {
        (None, true, false, false) if !details => Ok(ProbePromise::Refused),
        (None, false, true, false) if !details => Ok(ProbePromise::Dropped),
        (None, false, false, true) if !details => Ok(ProbePromise::Unanswered),
        (Some(answered), false, false, false) => {
            let by = backends(store, answered, expect.spread)?;
            let source = source(store, expect, from)?;
            let turns = (expect.spread == Some(Spread::Turns)).then_some(1);
            let all = expect.spread == Some(Spread::All);
            if all && expect.sticky == Some(true) {
                return Err(Problem::new(answered.referenced, "spread: all contradicts `sticky`"));
            }
            let dscp = expect.saw_dscp.as_ref().map(dscp).transpose()?;
            Ok(ProbePromise::Answered { by, source, sticky: expect.sticky == Some(true), turns, all, dscp })
        }
        _ => Err(Problem::new(
            at,
            "expect: exactly one of `answered` (with its details), `refused: true`, `dropped: true` or `unanswered: true`",
        )),
    }
}

fn backends(
    store: &Store,
    answered: &Spanned<ExpectedServers>,
    spread: Option<Spread>,
) -> Result<Vec<(String, Option<f64>)>, Problem> {
    let problem = |message: String| Problem::new(answered.referenced, message);
    let known = |key: &ObjectKey| store.pod(key).map(|_| key.to_string()).map_err(|error| problem(error.to_string()));
    match &answered.value {
        ExpectedServers::By(pods) if pods.is_empty() => Err(problem("answered: expected at least one pod".to_owned())),
        ExpectedServers::By(pods) => {
            let even = spread == Some(Spread::Even);
            let share = even.then(|| 1.0 / pods.len() as f64);
            pods.iter().map(|pod| Ok((known(&pod.0)?, share))).collect()
        }
        ExpectedServers::Shares(_) if spread.is_some() => {
            Err(problem("shares are written out already: leave out `spread`".to_owned()))
        }
        ExpectedServers::Shares(shares) => {
            let sum: f64 = shares.values().map(|share| share.0).sum();
            if (sum - 1.0).abs() > 1e-9 {
                return Err(problem(format!("the shares add up to {sum:.4}; expected 1")));
            }
            let pair = |(name, share): (&String, &crate::scenario::values::Share)| {
                let key: crate::scenario::values::PodRef = name.parse().map_err(problem)?;
                Ok((known(&key.0)?, Some(share.0)))
            };
            shares.iter().map(pair).collect()
        }
    }
}

fn source(store: &Store, expect: &ExpectFile, from: &ClusterHost) -> Result<Option<SourcePromise>, Problem> {
    let Some(written) = &expect.saw_source else { return Ok(None) };
    let mut wanted = SourcePromise { words: String::new(), client: false, addresses: Vec::new(), not: false };
    let mut words = Vec::new();
    for source in &written.0 {
        let problem = |message: String| Problem::new(source.referenced, message);
        words.push(source.value.to_string());
        match &source.value {
            SourceAddress::Client => wanted.client = true,
            SourceAddress::NotClient if written.0.len() == 1 => {
                (wanted.client, wanted.not) = (true, true);
                wanted.addresses = addresses(store, from).map_err(problem)?;
            }
            SourceAddress::NotClient => return Err(problem("not-client stands alone".to_owned())),
            SourceAddress::AnyNode => {
                for node in store.cluster_spec().nodes {
                    wanted.addresses.extend(addresses(store, &ClusterHost::Node(node.name)).map_err(problem)?);
                }
            }
            SourceAddress::ClusterHost(place) => wanted.addresses.extend(addresses(store, place).map_err(problem)?),
            SourceAddress::Address(address) => wanted.addresses.push(*address),
        }
    }
    wanted.words = words.join(" or ");
    Ok(Some(wanted))
}

/// Returns the written number of requests if it is enough for the claim, else the needed number.
pub(super) fn count(
    written: Option<&Spanned<usize>>,
    wanted: &ProbePromise,
    expect: &ExpectFile,
) -> Result<usize, Problem> {
    let at = written.map_or(Location::UNKNOWN, |count| count.referenced);
    let for_shares = |by: &[(String, Option<f64>)], skew: f64| {
        let shares: Vec<f64> = by.iter().filter_map(|(_, share)| *share).collect();
        let needed = if shares.is_empty() { Some(1) } else { stats::needed(&shares, skew) };
        needed.ok_or_else(|| {
            Problem::new(at, "a share or its sensitivity is too small for a reasonable number of probes")
        })
    };
    let (mut needed, mut asked) = (1, 1);
    match wanted {
        ProbePromise::Answered { by, turns: Some(at_a_time), .. } => needed = TURNS * at_a_time * by.len(),
        ProbePromise::Answered { by, all: true, .. } => needed = stats::until_all(by.len()),
        ProbePromise::Answered { by, sticky, .. } => {
            let skew = sensitivity(expect, by)?;
            needed = for_shares(by, skew)?.max(if *sticky { STICKY_PROBES } else { 1 });
            if let Some(finer) = expect.sensitivity_of_run.filter(|of_run| *of_run < skew) {
                asked = for_shares(by, finer)?;
            }
        }
        _ => {}
    }
    match written {
        Some(count) if count.value < needed => {
            let message = format!(
                "count: {} probes cannot show that; at least {needed} are needed (false-alarm bound {:e})",
                count.value,
                stats::FALSE_ALARM
            );
            Err(Problem::new(count.referenced, message))
        }
        Some(count) if count.value > MOST_PROBES => {
            Err(Problem::new(count.referenced, format!("count: expected at most {MOST_PROBES} probes")))
        }
        Some(count) => Ok(count.value.max(asked)),
        None => Ok(needed.max(asked)),
    }
}

fn sensitivity(expect: &ExpectFile, by: &[(String, Option<f64>)]) -> Result<f64, Problem> {
    let Some(written) = &expect.sensitivity else { return Ok(stats::SENSITIVITY) };
    if by.iter().all(|(_, share)| share.is_none()) {
        return Err(Problem::new(
            written.referenced,
            "sensitivity: it is for promised shares; say `spread: even`, or who gets which",
        ));
    }
    Ok(written.value.0)
}
