use std::sync::Arc;

use super::labels::{self, row};
use super::line::{Ink, Span, TextRow, Tone};
use crate::fraction::Fraction;
use crate::packet::Packet;
use crate::render::text::describe;
use crate::trace::{Event, RuleRef};

/// A packet's way through the drawing, or one of its branches.
#[derive(Debug, Default)]
pub(super) struct Strand {
    pub(super) heading: Option<String>,
    pub(super) visits: Vec<HostVisit>,
    /// Probabilities of all results; empty except in the first strand.
    pub(super) summary: String,
    pub(super) verdict: VerdictBox,
}

/// The last box of a [`Strand`]: the packet's outcome.
#[derive(Debug, Default)]
pub(super) struct VerdictBox {
    pub(super) good: bool,
    pub(super) text: String,
    pub(super) rule: Option<String>,
    pub(super) lines: Vec<String>,
}

#[derive(Debug)]
pub(super) struct HostVisit {
    pub(super) machine: Arc<str>,
    pub(super) answer: bool,
    pub(super) begins: bool,
    pub(super) heading: String,
    pub(super) note: String,
    pub(super) arrived: Option<Packet>,
    pub(super) lanes: Vec<HookLane>,
}

#[derive(Debug, Default)]
pub(super) struct HookLane {
    pub(super) title: String,
    pub(super) note: String,
    /// Whether this is a hook, drawn as a band, not a line.
    pub(super) hook: bool,
    pub(super) rows: Vec<TextRow>,
}

#[derive(Debug, Default)]
pub(super) struct StrandBuilder {
    visits: Vec<HostVisit>,
    packet: Option<Packet>,
    answer: bool,
    /// The current base chain until a rule matches.
    chain: Option<RuleRef>,
}

impl StrandBuilder {
    pub(super) fn visits(mut self) -> Vec<HostVisit> {
        for at in 0..self.visits.len() {
            // The next arrow already shows the sent packet.
            let told = self.visits.get(at + 1).is_some_and(|next| next.arrived.is_some());
            let visit = &mut self.visits[at];
            if told && visit.begins {
                visit.lanes.remove(0);
            }
            visit.fold_routes();
            visit.join_silent_hooks();
        }
        self.visits
    }

    pub(super) fn answer_begins(&mut self) {
        self.answer = true;
    }

    pub(super) fn restart(&mut self) {
        let Some(last) = self.visits.pop() else { return };
        let lane = last.lanes.last();
        let lane = lane.map(|lane| HookLane { title: lane.title.clone(), hook: lane.hook, ..HookLane::default() });
        let heading = "goes on here".to_owned();
        let lanes = lane.into_iter().collect();
        self.visits = vec![HostVisit { heading, note: String::new(), arrived: None, lanes, begins: false, ..last }];
    }

    pub(super) fn rows(&mut self, rows: Vec<TextRow>) {
        self.lane().rows.extend(rows);
    }

    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Sent { host, packet } => self.visit(host, "sends", None, packet),
            Event::Arrived { host, interface, port, packet } => {
                let port = port.as_ref().map(|port| format!(", port {port}")).unwrap_or_default();
                self.visit(host, &format!("in by {interface}{port}"), Some(packet.clone()), packet);
            }
            Event::Hook(hook) => self.open(hook.chain(), "", true),
            Event::Tracked(tracked) => labels::tracked(*tracked).clone_into(&mut self.lane().note),
            Event::Table(_) => {}
            Event::Matched(rule) => self.rows(vec![labels::rule(rule)]),
            Event::Chance { rule, held, share } => self.chance(rule, *held, *share),
            Event::NftChain(chain) => self.chain = Some(chain.clone()),
            Event::NftMatched(rule) => self.nft_matched(rule),
            Event::Drawn { of: 0 | 1, .. } => {}
            Event::Drawn { number, of, .. } => {
                self.rows(vec![row("", Tone::Choice, vec![Span::new(Ink::Soft, format!("draws {number} of {of}"))])]);
            }
            Event::Policy(table, hook, policy) => {
                let text = format!("{policy:?}").to_uppercase();
                let spans =
                    vec![Span::new(Ink::Quiet, format!("policy of {}", hook.chain())), Span::new(Ink::Deny, text)];
                self.rows(vec![row(table.name(), Tone::Bad, spans)]);
            }
            Event::Mark { from, to } => self.mark(*from, *to),
            Event::Translated { by, packet } => {
                let rows = labels::translation(by, self.packet.as_ref(), packet);
                self.rows(rows);
                self.packet = Some(packet.clone());
            }
            Event::Scheduled { service, scheduler, server, .. } => {
                let spans = vec![
                    Span::new(Ink::Code, server.to_string()),
                    Span::new(Ink::Soft, format!("is chosen for {service} ({scheduler})")),
                ];
                self.rows(vec![row("scheduler", Tone::Plain, spans)]);
            }
            Event::Routed { interface: None, .. } => self.open("route", "to this machine", false),
            Event::Routed { interface: Some(interface), next_hop } => {
                let hop = next_hop.map(|hop| format!(" to {hop}")).unwrap_or_default();
                self.open("route", &format!("out by {interface}{hop}"), false);
            }
            Event::Arp { .. } => self.open("ARP", &describe(event).1, false),
            Event::Bridged { port } => self.open("route", &format!("in the bridge, out by port {port}"), false),
            Event::Delivered { packet, .. } => self.socket(Tone::Good, "takes it", packet),
            Event::Refused { packet, .. } => self.socket(Tone::Bad, "nothing listens at", packet),
            Event::Rejected(with) => {
                self.rows(vec![row("", Tone::Bad, vec![Span::new(Ink::Deny, format!("rejected with {with}"))])]);
            }
            Event::Lost(why) => {
                let spans = vec![Span::new(Ink::Strong, "lost"), Span::new(Ink::Deny, labels::lost(why))];
                self.rows(vec![TextRow { whole: why.to_string(), ..row("", Tone::Bad, spans) }]);
            }
            other => self.rows(vec![row("", Tone::Plain, vec![Span::new(Ink::Word, describe(other).1)])]),
        }
    }

    fn visit(&mut self, host: &Arc<str>, heading: &str, arrived: Option<Packet>, packet: &Packet) {
        let begins = arrived.is_none();
        let visit = HostVisit {
            machine: Arc::clone(host),
            answer: self.answer,
            begins,
            heading: heading.to_owned(),
            note: String::new(),
            arrived,
            lanes: Vec::new(),
        };
        self.visits.push(visit);
        self.packet = Some(packet.clone());
        if begins {
            let (ends, protocol) = labels::addresses(packet);
            let spans = vec![Span::new(Ink::Code, ends), Span::new(Ink::Soft, protocol)];
            self.open("", "", false);
            self.rows(vec![TextRow { whole: packet.to_string(), ..row("", Tone::Plain, spans) }]);
        }
    }

    fn open(&mut self, title: &str, note: &str, hook: bool) {
        self.chain = None;
        let lane = HookLane { title: title.to_owned(), note: note.to_owned(), hook, rows: Vec::new() };
        if let Some(visit) = self.visits.last_mut() {
            visit.lanes.push(lane);
        }
    }

    /// The current hook's lane; initially one without a machine.
    fn lane(&mut self) -> &mut HookLane {
        if self.visits.is_empty() {
            let answer = self.answer;
            let (machine, heading, note) = (Arc::from(""), String::new(), String::new());
            self.visits.push(HostVisit {
                machine,
                answer,
                begins: false,
                heading,
                note,
                arrived: None,
                lanes: Vec::new(),
            });
        }
        let last = self.visits.len() - 1;
        let lanes = &mut self.visits[last].lanes;
        if lanes.is_empty() {
            lanes.push(HookLane::default());
        }
        let last = lanes.len() - 1;
        &mut lanes[last]
    }

    fn chance(&mut self, rule: &RuleRef, held: bool, share: (u64, u64)) {
        let share = super::share::about(&Fraction::new(share.0, share.1));
        let verdict = if held { format!("met, {share}") } else { format!("missed, {share}") };
        let mut line = TextRow { by: "chance".to_owned(), tone: Tone::Choice, ..labels::rule(rule) };
        line.spans.iter_mut().take(2).for_each(|span| span.ink = Ink::Quiet);
        line.spans.insert(line.spans.len().min(2), Span::new(Ink::Strong, verdict));
        self.rows(vec![line]);
    }

    fn nft_matched(&mut self, rule: &RuleRef) {
        if let Some(chain) = self.chain.take() {
            let place = format!("{}, {}", chain.nft_table(), chain.chain());
            self.rows(vec![row("nft", Tone::Plain, vec![Span::new(Ink::Soft, place)])]);
        }
        self.rows(vec![labels::nft_rule(rule)]);
    }

    fn mark(&mut self, from: u32, to: u32) {
        let change = Span::new(Ink::Change, format!("mark 0x{from:x} → 0x{to:x}"));
        let Some(last) = self.lane().rows.last_mut() else {
            self.rows(vec![row("", Tone::Plain, vec![change])]);
            return;
        };
        last.whole = format!("{}: {}", last.whole, change.text);
        match last.spans.get_mut(1).filter(|action| matches!(action.text.as_str(), "MARK" | "set")) {
            Some(action) => *action = change,
            None => last.spans.insert(last.spans.len().min(2), change),
        }
    }

    fn socket(&mut self, tone: Tone, verb: &str, packet: &Packet) {
        let ink = if tone == Tone::Bad { Ink::Deny } else { Ink::Code };
        let spans = if tone == Tone::Bad {
            vec![Span::new(Ink::Strong, verb), Span::new(ink, labels::destination(packet))]
        } else {
            vec![Span::new(Ink::Strong, verb), Span::new(Ink::Soft, "from"), Span::new(ink, labels::source(packet))]
        };
        self.open("", "", false);
        self.rows(vec![TextRow { whole: packet.to_string(), ..row("", tone, spans) }]);
    }
}

impl HostVisit {
    fn fold_routes(&mut self) {
        let mut folded: Vec<HookLane> = Vec::with_capacity(self.lanes.len());
        let mut way: Option<HookLane> = None;
        for mut lane in self.lanes.drain(..) {
            match way.take() {
                Some(route) if lane.hook && lane.note.is_empty() => lane.note = route.note,
                Some(route) => folded.push(route),
                None => {}
            }
            let plain = lane.title == "route" && lane.rows.is_empty();
            if plain && folded.is_empty() && self.note.is_empty() {
                self.note = lane.note;
            } else if plain {
                way = Some(lane);
            } else {
                folded.push(lane);
            }
        }
        folded.extend(way);
        self.lanes = folded;
    }

    fn join_silent_hooks(&mut self) {
        let mut joined: Vec<HookLane> = Vec::with_capacity(self.lanes.len());
        for lane in self.lanes.drain(..) {
            let silent = |lane: &HookLane| lane.hook && lane.rows.is_empty();
            match joined.last_mut().filter(|last| silent(last) && silent(&lane) && lane.note.is_empty()) {
                Some(last) => last.title = format!("{}, {}", last.title, lane.title),
                None => joined.push(lane),
            }
        }
        self.lanes = joined;
    }
}
