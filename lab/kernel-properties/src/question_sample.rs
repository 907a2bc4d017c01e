use std::collections::BTreeMap;
use std::net::IpAddr;

use svclab_oracle::{
    ClusterModel, FrontendKind, PacketSource, Promise, PromisedReply, PromisedVerdict, Protocol, Question, Rule,
};
use svclab_properties::sweep::mixed;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceKind {
    Pod,
    PodOnHostNetwork,
    Node,
    Loopback,
    Outside,
    LoadBalancer,
}

impl SourceKind {
    pub const ALL: [SourceKind; 6] = [
        SourceKind::Pod,
        SourceKind::PodOnHostNetwork,
        SourceKind::Node,
        SourceKind::Loopback,
        SourceKind::Outside,
        SourceKind::LoadBalancer,
    ];

    pub fn of(cluster: &ClusterModel, question: &Question) -> SourceKind {
        match &question.from {
            PacketSource::Pod(name) => {
                let on_host = cluster.world.pods.iter().any(|pod| pod.name == *name && pod.host_network);
                if on_host { SourceKind::PodOnHostNetwork } else { SourceKind::Pod }
            }
            PacketSource::Node(_) => SourceKind::Node,
            PacketSource::Loopback(_) => SourceKind::Loopback,
            PacketSource::Outside { .. } => SourceKind::Outside,
            PacketSource::LoadBalancer { .. } => SourceKind::LoadBalancer,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerdictKind {
    Deliver(FrontendKind),
    Drop,
    Reject,
    Refuse,
    Untouched,
    Undefined,
}

impl VerdictKind {
    /// The kinds that generated clusters often have.
    pub const COMMON: [VerdictKind; 7] = [
        VerdictKind::Deliver(FrontendKind::ClusterIp),
        VerdictKind::Deliver(FrontendKind::NodePort),
        VerdictKind::Deliver(FrontendKind::ExternalIp),
        VerdictKind::Deliver(FrontendKind::LoadBalancerIp),
        VerdictKind::Drop,
        VerdictKind::Reject,
        VerdictKind::Untouched,
    ];

    pub fn of(promise: &Promise) -> VerdictKind {
        match &promise.verdict {
            PromisedVerdict::Deliver(delivery) => VerdictKind::Deliver(delivery.frontend),
            PromisedVerdict::Drop => VerdictKind::Drop,
            PromisedVerdict::Reject => VerdictKind::Reject,
            PromisedVerdict::Refuse => VerdictKind::Refuse,
            PromisedVerdict::Untouched => VerdictKind::Untouched,
            PromisedVerdict::Undefined => VerdictKind::Undefined,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct SampledQuestion {
    pub question: Question,
    pub promise: Promise,
    pub often: bool,
}

/// The node where a host's packets to an address enter: a host has only one route.
#[derive(Debug, Default)]
struct Entrances(BTreeMap<(String, IpAddr), String>);

impl Entrances {
    fn admit(&mut self, question: &Question) -> bool {
        let PacketSource::Outside { client, enters } = &question.from else { return true };
        let way = self.0.entry((client.clone(), question.to.ip())).or_insert_with(|| enters.clone());
        way == enters
    }
}

/// Returns about `wanted` questions, one of each kind in turn (source, verdict, disputed address), and one for the
/// distribution. Omits SCTP, which the kernels lack.
pub fn choose(cluster: &ClusterModel, salt: u64, wanted: usize) -> Vec<SampledQuestion> {
    let oracle = cluster.oracle();
    let draw = |number: u64| mixed(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number));
    let mut kinds: BTreeMap<(SourceKind, VerdictKind, bool), Vec<(u64, SampledQuestion)>> = BTreeMap::new();
    let mut often: Option<(bool, u64, SampledQuestion)> = None;
    for (number, question) in (0..).zip(cluster.questions()) {
        if question.protocol == Protocol::Sctp {
            continue;
        }
        let (draw, promise) = (draw(number), oracle.ask(&question));
        let disputed = promise.rests_on(Rule::Shared);
        let kind = (SourceKind::of(cluster, &question), VerdictKind::of(&promise), disputed);
        let chosen = SampledQuestion { question, promise, often: false };
        // UDP probes are cheaper than TCP probes.
        let rank = (chosen.question.protocol == Protocol::Tcp, draw);
        if is_drawn(&chosen.promise) && often.as_ref().is_none_or(|(tcp, of, _)| rank < (*tcp, *of)) {
            often = Some((rank.0, rank.1, SampledQuestion { often: true, ..chosen.clone() }));
        }
        kinds.entry(kind).or_default().push((draw, chosen));
    }
    let often = often.map(|(_, _, chosen)| chosen);
    let mut kinds: Vec<(u64, Vec<(u64, SampledQuestion)>)> =
        (0..).zip(kinds.into_values()).map(|(number, questions)| (draw(u64::MAX - number), questions)).collect();
    kinds.sort_by_key(|(draw, _)| *draw);
    for (_, questions) in &mut kinds {
        questions.sort_by_key(|(draw, _)| std::cmp::Reverse(*draw));
    }
    let mut entrances = Entrances::default();
    let mut all: Vec<SampledQuestion> = often.into_iter().filter(|chosen| entrances.admit(&chosen.question)).collect();
    while all.len() < wanted && kinds.iter().any(|(_, questions)| !questions.is_empty()) {
        for (_, questions) in &mut kinds {
            let Some((_, chosen)) = questions.pop() else { continue };
            let known = all.iter().any(|other| other.question == chosen.question);
            if all.len() < wanted && !known && entrances.admit(&chosen.question) {
                all.push(chosen);
            }
        }
    }
    all
}

/// Whether every packet is a random draw and every endpoint can answer.
fn is_drawn(promise: &Promise) -> bool {
    let PromisedVerdict::Deliver(delivery) = &promise.verdict else { return false };
    let returns = delivery.backends.iter().all(|backend| matches!(backend.reply, PromisedReply::From(_)));
    delivery.backends.len() > 1 && delivery.affinity.is_none() && returns
}
