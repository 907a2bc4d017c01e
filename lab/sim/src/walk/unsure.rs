//! Rules with parts that nobody can answer.
//!
//! The parts are asked in the rule's order, as the kernel does. Before the first that is unknown is decided, everything known that
//! stands behind it is asked as well, as long as asking changes nothing: if that fails, the rule does not match and the unknown
//! part has no say. What draws or counts (`statistic`, `recent`, `limit`) is asked at its place only: before an unknown part it is asked
//! in any case, behind one only where the answer is yes.

use std::sync::Arc;

use super::program::{Action, Check, Interfaces, Step};
use super::{Origin, Skb, Walker};
use crate::packet::{Body, Packet, TcpFlags};
use crate::protocol::{Family, Protocol};
use crate::rules::header::InterfacePattern;
use crate::rules::matches::{Owner, PacketType, Sizes};
use crate::trace::{AnyRule, Event, NotModelled, RuleRef};
use crate::walk::check::Drawn;

/// What a check says.
enum Answer {
    Known(bool),
    Unknown(Question),
}

/// What nobody can answer.
struct Question {
    name: Arc<str>,
    why: Arc<str>,
    /// Which other questions have the same answer.
    same: Same,
}

/// What an answer that was taken once holds for, so that no way takes both answers to one question.
enum Same {
    /// For nothing else.
    Nothing,
    /// For the same question about the same packet: what is asked without its `!`, and whether there is one; none is the match's
    /// whole text.
    Packet(Option<(String, bool)>),
    /// For the name of an interface; true if the match is turned around.
    Name(usize, InterfacePattern, bool),
}

impl Question {
    fn new(name: &str, why: &str) -> Question {
        Question { name: name.into(), why: why.into(), same: Same::Packet(None) }
    }

    /// About something that may be turned around.
    fn about(self, what: &dyn std::fmt::Display, not: bool) -> Question {
        let key = format!("{} {what}", self.name);
        Question { same: Same::Packet(Some((key, not))), ..self }
    }
}

/// The rule that asks.
pub(super) struct Asking<'s> {
    pub(super) step: &'s Step,
    pub(super) rule: RuleRef,
}

impl Asking<'_> {
    /// The text of the match that a check was made of.
    fn text(&self, check: usize) -> String {
        let at = self.step.unsure.as_ref().and_then(|sources| sources.get(check));
        let one = at.and_then(|at| self.rule.rule()?.matches.get(*at));
        one.map(|one| one.to_string().trim_start().to_owned()).unwrap_or_default()
    }

    /// Whether it makes no difference if the rule matches, once its checks before `from` were asked.
    fn is_idle(&self, from: usize) -> bool {
        let rest = self.step.checks.get(from..).unwrap_or_default();
        matches!(self.step.action, Action::Continue) && !rest.iter().any(Check::has_effect)
    }
}

impl Walker<'_> {
    /// Whether a rule with unknown parts matches; the error is a part that nobody can answer, where one draw is asked for.
    pub(super) fn matches_unsure(
        &mut self,
        asking: &Asking<'_>,
        skb: &Skb,
        drawn: &mut Drawn,
    ) -> Result<bool, Box<NotModelled>> {
        let step = asking.step;
        if !super::check::head_holds(step, skb) {
            return Ok(false);
        }
        let ends = [("input-interface", &step.input, skb.input), ("output-interface", &step.output, skb.output)];
        let mut unknown = Vec::new();
        for (name, test, interface) in ends {
            let Some(test) = test else { continue };
            match by_name(test, interface, name) {
                Answer::Known(true) => {}
                Answer::Known(false) => return Ok(false),
                Answer::Unknown(question) => unknown.push(question),
            }
        }
        for question in unknown {
            let option = if &*question.name == "input-interface" { "-i" } else { "-o" };
            let text = interface_text(option, &question);
            if self.rest_fails(step, 0, skb) || !self.ask(question, asking, text, 0, skb)? {
                return Ok(false);
            }
        }
        for (at, check) in step.checks.iter().enumerate() {
            let holds = match self.answer(check, skb, drawn) {
                Answer::Known(holds) => holds,
                Answer::Unknown(_) if self.rest_fails(step, at + 1, skb) => false,
                Answer::Unknown(question) => self.ask(question, asking, asking.text(at), at + 1, skb)?,
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether something known from this check on fails, of what may be asked early.
    fn rest_fails(&mut self, step: &Step, from: usize, skb: &Skb) -> bool {
        let rest = step.checks.get(from..).unwrap_or_default();
        let early = rest.iter().filter(|check| !check.has_effect());
        early.into_iter().any(|check| matches!(self.answer(check, skb, &mut None), Answer::Known(false)))
    }

    fn answer(&mut self, check: &Check, skb: &Skb, drawn: &mut Drawn) -> Answer {
        let packet = &skb.packet;
        let why = |name, why| Answer::Unknown(Question::new(name, why));
        let of =
            |name, why, what: &dyn std::fmt::Display, not| Answer::Unknown(Question::new(name, why).about(what, not));
        match check {
            Check::Unknown { name, why } => {
                let same = if of_packet(name) { Same::Packet(None) } else { Same::Nothing };
                Answer::Unknown(Question { name: name.clone(), why: why.clone(), same })
            }
            Check::Owner(asked) => owner(asked, skb.origin),
            Check::Socket(_) if has_socket(packet) => {
                why("socket", "asks for an open socket, and which there are is not known")
            }
            // What starts here, or comes over loopback, has no Ethernet header.
            Check::Mac(test) if skb.input.is_some_and(|input| !self.is_loopback(input)) => {
                of("mac", "asks for the sender's Ethernet address, which is not known", &test.is, test.not)
            }
            Check::Socket(_) | Check::Mac(_) => Answer::Known(false),
            Check::Length(test) => match test.is.holds(lengths(packet)) {
                Some(within) => Answer::Known(test.judge(within)),
                None => of("length", "asks for a length that the packet may have or not", &test.is, test.not),
            },
            Check::TcpMss(test) => match packet.body {
                Body::Tcp { flags, .. } if flags.has(TcpFlags::SYN) => {
                    of("tcpmss", "asks for the segment size that TCP announces, which is not known", &test.is, test.not)
                }
                // Without the option only what is turned around holds.
                Body::Tcp { .. } => Answer::Known(test.not),
                _ => Answer::Known(false),
            },
            Check::Ipvs { handled: Some(test), more: false } => Answer::Known(test.judge(skb.by_ipvs)),
            Check::Ipvs { .. } if !skb.by_ipvs => Answer::Known(false),
            Check::Ipvs { .. } => why("ipvs", "asks for IPVS's connection, which is not modelled"),
            Check::Set { set, changes: true, .. } if self.state.changed.contains(&*self.host.sets[*set].name) => {
                why("set", "asks a set that a rule has changed before")
            }
            Check::Port { input: true, test } => by_name(test, skb.port_in, "input-interface"),
            Check::Port { input: false, test } => by_name(test, skb.port_out, "output-interface"),
            known => Answer::Known(self.check(known, skb, drawn)),
        }
    }

    /// Decides a question: by an assumption, by an answer that was taken before, or by trying both.
    fn ask(
        &mut self,
        question: Question,
        asking: &Asking<'_>,
        what: String,
        next: usize,
        skb: &Skb,
    ) -> Result<bool, Box<NotModelled>> {
        let Question { name, why, same } = question;
        let marks = asking
            .step
            .checks
            .get(next.wrapping_sub(1))
            .is_some_and(|check| matches!(check, Check::Socket(socket) if socket.restore_mark));
        let part = |why: Arc<str>| {
            let (host, rule) = (self.host.name.clone(), AnyRule::Iptables(asking.rule.clone()));
            Box::new(NotModelled { host, rule, name: name.clone(), what: what.as_str().into(), why })
        };
        let unknown_mark = || part("gives the packet the mark of its socket, which is not known".into());
        if let Some(holds) = self.host.assumptions.answer(&name) {
            let marked = (holds && marks).then(unknown_mark);
            self.note(Event::Assumed { name, holds });
            return marked.map_or(Ok(holds), Err);
        }
        let known = match &same {
            Same::Nothing => None,
            Same::Packet(None) => self.state.answers.of_packet(&what, &skb.packet),
            Same::Packet(Some((key, not))) => self.state.answers.of_packet(key, &skb.packet).map(|is| is != *not),
            Same::Name(at, pattern, not) => self.state.answers.of_name(*at, pattern).map(|is| is != *not),
        };
        if let Some(holds) = known {
            return if holds && marks { Err(unknown_mark()) } else { Ok(holds) };
        }
        let asked = part(why);
        let marked = marks.then(unknown_mark);
        if asking.is_idle(next) {
            self.chance.note_unknown();
            self.note(Event::Undecided { asked, holds: false });
            return Ok(false);
        }
        let Some(holds) = self.chance.unknown() else {
            return Err(asked);
        };
        match same {
            Same::Nothing => {}
            Same::Packet(None) => self.state.answers.take_packet(what, skb.packet.clone(), holds),
            Same::Packet(Some((key, not))) => self.state.answers.take_packet(key, skb.packet.clone(), holds != not),
            Same::Name(at, pattern, not) => self.state.answers.take_name(at, pattern, holds != not),
        }
        self.note(Event::Undecided { asked, holds });
        match marked {
            Some(part) if holds => Err(part),
            _ => Ok(holds),
        }
    }
}

fn by_name(test: &Interfaces, interface: Option<usize>, name: &str) -> Answer {
    match interface.and_then(|at| Some((at, test.unknown_of(at)?))) {
        None => Answer::Known(test.holds(interface)),
        Some((at, pattern)) => Answer::Unknown(Question {
            name: name.into(),
            why: "asks for the name of an interface that is invented".into(),
            same: Same::Name(at, pattern.clone(), test.is_not()),
        }),
    }
}

fn interface_text(option: &str, question: &Question) -> String {
    match &question.same {
        Same::Name(_, pattern, true) => format!("! {option} {pattern}"),
        Same::Name(_, pattern, false) => format!("{option} {pattern}"),
        _ => String::new(),
    }
}

/// `owner_mt`.
fn owner(asked: &Owner, origin: Origin) -> Answer {
    let unknown = || {
        let question = Question::new("owner", "asks who sends the packet, which is not known");
        Answer::Unknown(match (asked.user, asked.group, asked.supplementary) {
            (Some(test), None, false) => question.about(&format!("user {:?}", test.is), test.not),
            (None, Some(test), false) => question.about(&format!("group {:?}", test.is), test.not),
            _ => question,
        })
    };
    let refuses_sockets = asked.socket_exists.is_some_and(|test| test.not);
    match origin {
        Origin::Elsewhere => Answer::Known(asked.holds_without_socket()),
        Origin::Socket if refuses_sockets => Answer::Known(false),
        Origin::Socket if asked.user.is_none() && asked.group.is_none() => Answer::Known(true),
        Origin::Socket => unknown(),
        // What the kernel sends by itself it sends with a socket that no file belongs to, or with none.
        Origin::Kernel => {
            let inverted = asked.user.is_none_or(|test| test.not) && asked.group.is_none_or(|test| test.not);
            let (with, without) = (!refuses_sockets && inverted, asked.holds_without_socket());
            if with == without { Answer::Known(with) } else { unknown() }
        }
    }
}

/// Whether a match that is not modelled says the same of the same packet whenever it is asked.
fn of_packet(name: &str) -> bool {
    matches!(
        name,
        "bpf" | "u32" | "string" | "dscp" | "tos" | "ttl" | "hl" | "ecn" | "helper" | "cgroup" | "esp" | "ah"
    )
}

/// Sockets are looked for only for TCP and UDP, and for errors about them (`nf_sk_lookup_slow_v4`, `_v6`).
fn has_socket(packet: &Packet) -> bool {
    let about = match &packet.body {
        Body::Error { about, .. } => about,
        _ => packet,
    };
    matches!(about.protocol(), Protocol::TCP | Protocol::UDP)
}

/// The lengths that the packet may have, with its IP header: what opens and ends a connection of TCP carries nothing and has at most
/// the twenty bytes of options that Linux sends by itself, of all others the least is known.
fn lengths(packet: &Packet) -> Sizes {
    let header = if packet.family() == Family::V4 { 20 } else { 40 };
    match &packet.body {
        Body::Tcp { flags, .. } if flags.0 & (TcpFlags::SYN | TcpFlags::RST) != 0 => {
            Sizes { first: header + 20, last: header + 40 }
        }
        Body::Tcp { .. } => Sizes { first: header + 20, last: u16::MAX },
        Body::Udp { .. } | Body::Echo { .. } => Sizes { first: header + 8, last: u16::MAX },
        Body::Sctp { .. } => Sizes { first: header + 12, last: u16::MAX },
        Body::Error { about, .. } => Sizes { first: header + 8 + lengths(about).first.min(28), last: u16::MAX },
        Body::Other(_) => Sizes { first: header, last: u16::MAX },
    }
}

/// `pkttype_mt`: of what comes in the frame's destination, which follows from the packet's; what starts here is unicast.
pub(super) fn packet_type(skb: &Skb, broadcast: bool) -> PacketType {
    match skb.packet.destination {
        _ if skb.input.is_none() => PacketType::Unicast,
        to if to.is_multicast() => PacketType::Multicast,
        _ if broadcast => PacketType::Broadcast,
        _ => PacketType::Unicast,
    }
}
