use super::line::{Ink, Span, TextRow, Tone, middle};
use crate::conntrack::TrackingState;
use crate::names;
use crate::nft::{NAT_KINDS, NftVerdict, Statement};
use crate::packet::{Packet, PacketBody, endpoint};
use crate::rules::{Match, RuleTarget};
use crate::trace::{DropReason, RuleRef};

const NAME: usize = 20;

pub(super) fn rule(rule: &RuleRef) -> TextRow {
    let Some(found) = rule.iptables_rule() else {
        return row("", Tone::Plain, vec![Span::new(Ink::Code, rule.chain())]);
    };
    let remarks = found.matches.iter().filter_map(|one| match one {
        Match::Comment(comment) => Some(comment.as_str()),
        _ => None,
    });
    let comment = remarks.collect::<Vec<_>>().join("; ");
    let commented = !comment.is_empty();
    let (tone, action) = target(&found.target, commented);
    let mut spans = vec![Span::new(Ink::Quiet, chain(rule.chain(), commented)), action];
    if commented {
        spans.push(Span::new(Ink::Soft, comment));
    }
    let whole = format!("{}, {}", rule.table(), rule.numbered());
    TextRow { by: rule.table().to_string(), tone, spans, whole }
}

fn target(target: &RuleTarget, commented: bool) -> (Tone, Span) {
    let plain = |text: &str| (Tone::Plain, Span::new(Ink::Code, text));
    match target {
        RuleTarget::None => plain("counts"),
        RuleTarget::Accept => (Tone::Plain, Span::new(Ink::Pass, "ACCEPT")),
        RuleTarget::Drop => (Tone::Bad, Span::new(Ink::Deny, "DROP")),
        RuleTarget::Reject(_) => (Tone::Bad, Span::new(Ink::Deny, "REJECT")),
        RuleTarget::Return => plain("RETURN"),
        RuleTarget::Jump(to) | RuleTarget::Goto(to) => plain(&format!("→ {}", chain(to, commented))),
        RuleTarget::Mark { .. } => plain("MARK"),
        RuleTarget::Connmark(_) => plain("CONNMARK"),
        RuleTarget::Dnat(_) => plain("DNAT"),
        RuleTarget::Snat(_) => plain("SNAT"),
        RuleTarget::Masquerade(_) => plain("MASQUERADE"),
        RuleTarget::Redirect(_) => plain("REDIRECT"),
        RuleTarget::Notrack(_) => plain("NOTRACK"),
        RuleTarget::Ct(_) => plain("CT"),
        RuleTarget::Netmap(_) => plain("NETMAP"),
        RuleTarget::Set(_) => plain("SET"),
        RuleTarget::NoEffect { name, .. } => plain(name),
        other => plain(other.to_string().trim_start_matches(" -j ").split(' ').next().unwrap_or_default()),
    }
}

pub(super) fn nft_rule(rule: &RuleRef) -> TextRow {
    let Some(found) = rule.nft_rule() else { return row("nft", Tone::Plain, vec![Span::new(Ink::Code, rule.chain())]) };
    let (mut tone, mut spans) = (Tone::Plain, vec![Span::new(Ink::Quiet, chain(rule.chain(), false))]);
    if let Some((of, action)) = found.statements.iter().rev().find_map(statement) {
        tone = of;
        spans.push(action);
    }
    match &found.comment {
        Some(comment) => spans.push(Span::new(Ink::Soft, comment.as_str())),
        None if found.statements.len() > 1 || spans.len() < 2 || spans[1].text.ends_with("map") => {
            spans.push(Span::new(Ink::Quiet, rule.to_string()));
        }
        None => {}
    }
    TextRow { by: "nft".to_owned(), tone, spans, whole: format!("{}{}: {rule}", rule.place(), rule.line_suffix()) }
}

fn statement(statement: &Statement) -> Option<(Tone, Span)> {
    let plain = |text: &str| Some((Tone::Plain, Span::new(Ink::Code, text)));
    match statement {
        Statement::Verdict(NftVerdict::Accept) => Some((Tone::Plain, Span::new(Ink::Pass, "accept"))),
        Statement::Verdict(NftVerdict::Drop) => Some((Tone::Bad, Span::new(Ink::Deny, "drop"))),
        Statement::Verdict(NftVerdict::Return) => plain("return"),
        Statement::Verdict(NftVerdict::Jump(to) | NftVerdict::Goto(to)) => plain(&format!("→ {}", chain(to, false))),
        Statement::VerdictMap { .. } => plain("→ by map"),
        Statement::Nat { kind, .. } => plain(names::name(&NAT_KINDS, kind)),
        Statement::Reject(_) => Some((Tone::Bad, Span::new(Ink::Deny, "reject"))),
        Statement::Set { .. } => plain("set"),
        Statement::Notrack => plain("notrack"),
        _ => None,
    }
}

/// Shortens a long chain name: omits kube-proxy's hash if the rule has a comment.
pub(super) fn chain(name: &str, commented: bool) -> String {
    if name.chars().count() <= NAME {
        return name.to_owned();
    }
    let hashed = name.rsplit_once('-').filter(|(kind, hash)| {
        kind.starts_with("KUBE-")
            && hash.len() == 16
            && hash.chars().all(|one| one.is_ascii_uppercase() || one.is_ascii_digit())
    });
    match hashed {
        Some((kind, _)) if commented => format!("{kind}…"),
        Some((kind, hash)) => format!("{kind}-{}…", &hash[..4]),
        _ => middle(name, NAME),
    }
}

pub(super) fn machine(name: &str) -> String {
    middle(name, 40)
}

pub(super) fn row(by: &str, tone: Tone, spans: Vec<Span>) -> TextRow {
    let whole = spans.iter().map(|span| span.text.as_str()).collect::<Vec<_>>().join(" ");
    TextRow { by: by.to_owned(), tone, spans, whole }
}

/// Returns `10.0.0.1:40000 → 10.96.0.10:80` and `TCP SYN`.
pub(super) fn addresses(packet: &Packet) -> (String, String) {
    let ends = format!("{} → {}", source(packet), destination(packet));
    let protocol = packet.protocol().to_string().to_uppercase();
    let more = match (&packet.body, packet.icmp()) {
        (PacketBody::Error { .. }, Some(icmp)) => format!(" error, type {} code {}", icmp.kind, icmp.code),
        (_, Some(_)) => " echo".to_owned(),
        _ => packet.to_string().splitn(5, ' ').nth(4).map(|flags| format!(" {flags}")).unwrap_or_default(),
    };
    (ends, format!("{protocol}{more}"))
}

pub(super) fn source(packet: &Packet) -> String {
    endpoint(packet.source, packet.ports().map(|(source, _)| source))
}

pub(super) fn destination(packet: &Packet) -> String {
    endpoint(packet.destination, packet.ports().map(|(_, destination)| destination))
}

pub(super) fn translation(by: &str, before: Option<&Packet>, after: &Packet) -> Vec<TextRow> {
    let whole = match before {
        Some(before) => format!("{by}: {before} becomes {after}"),
        None => format!("{by}: {after}"),
    };
    let change = |from: String, to: String| {
        let spans = vec![Span::new(Ink::Change, format!("{from} → {to}"))];
        TextRow { by: by.to_owned(), tone: Tone::Change, spans, whole: whole.clone() }
    };
    let ends = before.map(|before| [(source(before), source(after)), (destination(before), destination(after))]);
    let changed = ends.into_iter().flatten().filter(|(from, to)| from != to);
    let rows: Vec<TextRow> = changed.map(|(from, to)| change(from, to)).collect();
    if rows.is_empty() {
        // Perhaps only the packet quoted in an ICMP error changed.
        let spans = vec![Span::new(Ink::Change, after.to_string())];
        return vec![TextRow { by: by.to_owned(), tone: Tone::Change, spans, whole }];
    }
    rows
}

pub(super) fn tracked(tracked: TrackingState) -> &'static str {
    match tracked {
        TrackingState::New => "conntrack NEW",
        TrackingState::Established => "conntrack ESTABLISHED",
        TrackingState::Related => "conntrack RELATED",
        TrackingState::Invalid => "conntrack INVALID",
        TrackingState::Untracked => "conntrack UNTRACKED",
    }
}

pub(super) fn lost(why: &DropReason) -> String {
    match why {
        DropReason::Rule(rule) => format!("dropped by rule {} of {} in {}", rule.number(), rule.chain(), rule.table()),
        DropReason::NftRule(rule) => format!("dropped by {}", rule.place()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_chain_names_are_shortened() {
        assert_eq!(chain("KUBE-SVC-TCOU7JCQXEZGVUNU", true), "KUBE-SVC…");
        assert_eq!(chain("KUBE-SVC-TCOU7JCQXEZGVUNU", false), "KUBE-SVC-TCOU…");
        assert_eq!(chain("cali-from-wl-dispatch-4", true), "cali-from-…ispatch-4");
        assert_eq!(chain("KUBE-MARK-MASQ", true), "KUBE-MARK-MASQ");
    }
}
