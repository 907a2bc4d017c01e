//! `expect:`: one field of [`ExpectFile`] and one row of [`EXPECT_KEYS`] per key. [`super::STEP_KEYS`] lists the keys
//! of each step.

use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::meaning::meaning;
use super::{FindingFile, RuleFile, STEP_KEYS};
use crate::expect::counters::PacketCount;
use crate::scenario::values::{OneOrMany, PlainText, PodRef, Sensitivity, Share, SourceAddress, TimeBound};

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[schemars(transform = describe)]
pub struct ExpectFile {
    #[schemars(with = "Option<ExpectedServers>")]
    pub answered: Option<Spanned<ExpectedServers>>,
    pub spread: Option<Spread>,
    #[schemars(with = "Option<Sensitivity>")]
    pub sensitivity: Option<Spanned<Sensitivity>>,
    /// `--sensitivity` of the run.
    #[serde(skip)]
    pub sensitivity_of_run: Option<f64>,
    pub sticky: Option<bool>,
    #[schemars(with = "Option<String>")]
    pub same_as: Option<Spanned<String>>,
    #[schemars(with = "Option<String>")]
    pub differs_from: Option<Spanned<String>>,
    pub saw_source: Option<OneOrMany<SourceAddress>>,
    #[schemars(with = "Option<u8>")]
    pub saw_dscp: Option<Spanned<u8>>,
    pub refused: Option<bool>,
    pub dropped: Option<bool>,
    pub unanswered: Option<bool>,
    pub took: Option<OneOrMany<TimeBound>>,
    #[schemars(with = "Vec<RuleFile>")]
    pub counters: Vec<Spanned<RuleFile>>,
    pub status: Option<i32>,
    pub output: Option<OneOrMany<PlainText>>,
    pub lacks: Option<OneOrMany<PlainText>>,
    pub local_endpoints: Option<u64>,
    #[schemars(with = "Option<Vec<String>>")]
    pub healthy_nodes: Option<Vec<Spanned<String>>>,
    pub alive: Option<bool>,
    pub reset: Option<bool>,
    #[schemars(with = "Option<Vec<u16>>")]
    pub open: Option<Spanned<Vec<u16>>>,
    pub made: Option<PacketCount>,
    pub failed: Option<PacketCount>,
    pub misdelivered: Option<PacketCount>,
    pub grew: Option<PacketCount>,
    pub processor: Option<OneOrMany<TimeBound>>,
    pub wake_ups: Option<PacketCount>,
    pub kernel: Option<OneOrMany<TimeBound>>,
    #[schemars(with = "Option<Vec<FindingFile>>")]
    pub findings: Option<Vec<Spanned<FindingFile>>>,
}

/// Describes each property by its rows in [`EXPECT_KEYS`].
fn describe(schema: &mut Schema) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (key, property) in properties.into_iter().flatten() {
        property["description"] = meaning(key, EXPECT_KEYS.iter().flat_map(|row| row.docs)).into();
    }
}

pub struct ExpectKey {
    pub key: &'static str,
    pub is_set: fn(&ExpectFile) -> bool,
    pub docs: &'static [(&'static str, &'static str)],
}

const fn key(
    key: &'static str,
    is_set: fn(&ExpectFile) -> bool,
    docs: &'static [(&'static str, &'static str)],
) -> ExpectKey {
    ExpectKey { key, is_set, docs }
}

/// The keys of `expect` in documentation order. A key without `docs` shares another key's row.
#[rustfmt::skip]
pub static EXPECT_KEYS: [ExpectKey; 29] = [
    key("answered", |expect| expect.answered.is_some(), &[
        ("`answered: POD`", "every request was answered, by this pod or by one of a list"),
        ("`answered: {web-1: 1/3, web-2: 2/3}`", "`probe`: in these proportions (`1/3`, `0.25`, `25%`)"),
    ]),
    key("spread", |expect| expect.spread.is_some(), &[
        ("`spread: even`", "the listed pods answered equally often"),
        ("`spread: all`", "each of the listed pods answered at least once"),
        ("`spread: turns`", "the listed pods answered in turn, always in the same order (requests go out one at a time); with `concurrency` each pod answered as often as its turns, give or take so many"),
    ]),
    key("sensitivity", |expect| expect.sensitivity.is_some(), &[("`sensitivity: 20%`", "with shares or `spread: even`: the check notices a share that is too large or too small by that part of it, and sends as many requests as that takes (default 50 %)")]),
    key("sticky", |expect| expect.sticky.is_some(), &[("`sticky: true`", "all answers came from one pod")]),
    key("sameAs", |expect| expect.same_as.is_some(), &[("`sameAs: STEP`", "the same pods answered as in that step")]),
    key("differsFrom", |expect| expect.differs_from.is_some(), &[("`differsFrom: STEP`", "none of these pods answered in that step")]),
    key("sawSource", |expect| expect.saw_source.is_some(), &[("`sawSource`", "the peer address that the server saw: `client`, `not-client`, `node`, `node/NAME`, `pod/NAME`, `load-balancer`, an address, or a list. In userspace mode `client` means the node that relays: no proxy could keep the client's address there")]),
    key("sawDscp", |expect| expect.saw_dscp.is_some(), &[("`sawDscp`", "the DSCP that the server saw, TCP: of the connection's first packet; not with SCTP. Not promised in userspace mode, where relays send packets of their own; the simulator leaves it out")]),
    key("refused", |expect| expect.refused.is_some(), &[("`refused: true`", "a TCP reset, or ICMP port unreachable")]),
    key("dropped", |expect| expect.dropped.is_some(), &[("`dropped: true`", "no answer at all")]),
    key("unanswered", |expect| expect.unanswered.is_some(), &[("`unanswered: true`", "anything but an answer")]),
    key("took", |expect| expect.took.is_some(), &[("`took: \">=50ms\"`, `took: \"<=2s\"`", "how long each request took, or a list of both; upper bounds are for virtual time, which no load delays. With a change: how long until every proxy had applied it, also on the host's clock; leave room for a loaded machine, where a change takes some 100 ms")]),
    key("counters", |expect| !expect.counters.is_empty(), &[("`counters: [RULE, …]`", "packets that [rules](#rules) matched during this step")]),
    key("alive", |expect| expect.alive.is_some(), &[("`alive: false`", "the connection is dead")]),
    key("reset", |expect| expect.reset.is_some(), &[("`reset: true`", "the connection was reset: it is dead, and the client is told so at once")]),
    key("open", |expect| expect.open.is_some(), &[("`open: [PORT, …]`", "exactly these ports accept a connection")]),
    key("status", |expect| expect.status.is_some(), &[("`status`", "`exec`: the exit status (default 0); `healthCheck`: the HTTP status")]),
    key("output", |expect| expect.output.is_some(), &[("`output`, `lacks`", "text that the output contains, does not contain")]),
    key("lacks", |expect| expect.lacks.is_some(), &[]),
    key("localEndpoints", |expect| expect.local_endpoints.is_some(), &[("`localEndpoints`", "the number of local endpoints")]),
    key("made", |expect| expect.made.is_some(), &[("`made`, `failed`, `misdelivered`", "how many requests: a number, `\">=50\"` or `\"<=3\"`; default at least one, 0 and 0. Traffic continues until it has `made` the least number asked for, for a minute at most")]),
    key("failed", |expect| expect.failed.is_some(), &[]),
    key("misdelivered", |expect| expect.misdelivered.is_some(), &[]),
    key("grew", |expect| expect.grew.is_some(), &[("`grew`", "by how much since the previous note: a number, `\">=2\"` or `\"<=3\"`")]),
    key("processor", |expect| expect.processor.is_some(), &[("`processor: \"<=20ms\"`, `wakeUps: \"<=30\"`", "the processor time of each proxy with its children, and how often their threads woke up; for virtual time, where both are counts")]),
    key("wakeUps", |expect| expect.wake_ups.is_some(), &[]),
    key("kernel", |expect| expect.kernel.is_some(), &[("`kernel: \"<=200ms\"`", "the processor time of the whole microVM without the proxies and the lab; not measured on this machine's own kernel")]),
    key("findings", |expect| expect.findings.is_some(), &[("`findings: [FINDING, …]`", "exactly these findings, each on at least one of the nodes; default: none. A FINDING is a [kind](audit.md#what-is-found) (`dropped`), or `{kind: dropped, service: NAMESPACE/NAME:PORT, cause: TEXT}`: namespace, port and `cause`, a text or a list of texts that the cause contains, may be left out")]),
    key("healthyNodes", |expect| expect.healthy_nodes.is_some(), &[("`healthyNodes: [NODE, …]`", "exactly these nodes get traffic (waits up to 15 s)")]),
];

impl ExpectKey {
    pub fn goes_with(&self) -> Vec<&'static str> {
        STEP_KEYS.iter().filter(|step| step.expects.contains(&self.key)).map(|step| step.key).collect()
    }
}

impl ExpectFile {
    pub fn keys(&self) -> impl Iterator<Item = &'static ExpectKey> {
        EXPECT_KEYS.iter().filter(|row| (row.is_set)(self))
    }
}

/// `spread: even`, `spread: all` or `spread: turns`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    Even,
    /// Each at least once, in whatever proportions.
    All,
    /// One after the other, always in the same order, as a round robin serves a single client.
    Turns,
}

#[derive(Debug, Clone)]
pub enum ExpectedServers {
    By(Vec<PodRef>),
    Shares(BTreeMap<String, Share>),
}

impl<'de> Deserialize<'de> for ExpectedServers {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnsweredVisitor;
        impl<'de> serde::de::Visitor<'de> for AnsweredVisitor {
            type Value = ExpectedServers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pod, a list of pods, or pods with their shares ({web-1: 1/3, web-2: 2/3})")
            }

            fn visit_str<E: serde::de::Error>(self, pod: &str) -> Result<ExpectedServers, E> {
                pod.parse().map(|pod| ExpectedServers::By(vec![pod])).map_err(E::custom)
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, sequence: A) -> Result<ExpectedServers, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(sequence)).map(ExpectedServers::By)
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<ExpectedServers, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(ExpectedServers::Shares)
            }
        }
        deserializer.deserialize_any(AnsweredVisitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn fields_rows_and_steps_have_the_same_keys() {
        let schema = schemars::schema_for!(ExpectFile).to_value();
        let fields: BTreeSet<&str> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, EXPECT_KEYS.iter().map(|row| row.key).collect());
        assert_eq!(fields, STEP_KEYS.iter().flat_map(|step| step.expects).copied().collect());
    }
}
