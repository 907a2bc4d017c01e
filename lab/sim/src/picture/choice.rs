use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::journey_events::{JourneyEvents, sum};
use super::labels;
use super::line::{Ink, Span, TextRow, Tone};
use super::share::{about, weight};
use crate::fraction::Fraction;
use crate::network::PacketVerdict;
use crate::trace::Event;

/// The most alternatives that get their own lines.
const LINES: usize = 3;
const NAMES: usize = 200;

struct BackendShare {
    address: String,
    on: String,
    share: Fraction,
}

fn alternatives(ways: &[&JourneyEvents<'_>], from: usize) -> Vec<BackendShare> {
    let mut all: Vec<BackendShare> = Vec::new();
    let mut places: BTreeMap<(String, String), usize> = BTreeMap::new();
    for way in ways {
        let (address, on) = way.backend(from);
        match places.entry((address.clone(), on.clone())) {
            Entry::Occupied(place) => {
                let one: &mut BackendShare = &mut all[*place.get()];
                one.share = one.share.plus(way.share);
            }
            Entry::Vacant(place) => {
                place.insert(all.len());
                all.push(BackendShare { address, on, share: way.share.clone() });
            }
        }
    }
    all
}

fn each(all: &[BackendShare]) -> Option<String> {
    let first = all.first()?;
    let equal = all.iter().all(|one| weight(&one.share) == weight(&first.share));
    equal.then(|| format!("{}{}", about(&first.share), if all.len() > 1 { " each" } else { "" }))
}

fn named(all: &[BackendShare], each: Option<&str>) -> String {
    let names = all.iter().take(NAMES).map(|one| match each {
        Some(_) => format!("{} {}", one.address, one.on),
        None => format!("{} {} ({})", one.address, one.on, about(&one.share)),
    });
    let more = if all.len() > NAMES { format!(", and {} more", all.len() - NAMES) } else { String::new() };
    let each = each.map(|each| format!("{each}: ")).unwrap_or_default();
    format!("{each}{}{more}", names.collect::<Vec<_>>().join(", "))
}

fn addresses(all: &[BackendShare]) -> String {
    let shown: Vec<&str> = all.iter().take(LINES * 2).map(|one| one.address.as_str()).collect();
    let more = if all.len() > shown.len() { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn line(spans: Vec<Span>, whole: &str) -> TextRow {
    TextRow { by: "chance".to_owned(), tone: Tone::Choice, spans, whole: whole.to_owned() }
}

fn asks(ways: &[&JourneyEvents<'_>], from: usize) -> Option<Span> {
    let chain = match ways.first()?.events.get(from)? {
        Event::Chance { rule, .. } => labels::chain(rule.chain(), true),
        Event::Drawn { rule, .. } => labels::chain(rule.chain(), true),
        _ => return None,
    };
    Some(Span::new(Ink::Code, format!("{chain} →")))
}

pub(super) fn alike(ways: &[&JourneyEvents<'_>], from: usize) -> Vec<TextRow> {
    let all = alternatives(ways, from);
    let each = each(&all);
    let whole = named(&all, each.as_deref());
    let share = each.clone().unwrap_or_else(|| "shares differ".to_owned());
    let title = [Span::new(Ink::Strong, format!("1 of {}", all.len())), Span::new(Ink::Word, share)];
    let mut rows = vec![line(asks(ways, from).into_iter().chain(title).collect(), &whole)];
    for (number, one) in all.iter().take(if all.len() == LINES + 1 { LINES + 1 } else { LINES }).enumerate() {
        let mut on = if each.is_some() { one.on.clone() } else { format!("{}, {}", about(&one.share), one.on) };
        if number == 0 {
            on.push_str(", drawn");
        }
        rows.push(line(vec![Span::new(Ink::Code, one.address.as_str()), Span::new(Ink::Soft, on)], &whole));
    }
    if all.len() > rows.len() - 1 {
        let rest = all.get(rows.len() - 1..).unwrap_or_default();
        let more = format!("and {} more alike:", rest.len());
        rows.push(line(vec![Span::new(Ink::Word, more), Span::new(Ink::Code, addresses(rest))], &whole));
    }
    rows
}

pub(super) fn kinds(kinds: &[Vec<&JourneyEvents<'_>>], drawn: usize, from: usize) -> Vec<TextRow> {
    let title = Span::new(Ink::Strong, format!("{} ways that differ", kinds.len()));
    let asks = kinds.first().and_then(|kind| asks(kind, from));
    let mut rows = vec![line(asks.into_iter().chain([title]).collect(), "Ways that are alike are drawn once.")];
    for (number, kind) in kinds.iter().take(drawn).enumerate() {
        let all = alternatives(kind, from);
        let spans = vec![
            Span::new(Ink::Strong, letter(number)),
            Span::new(Ink::Word, format!("{},", summary(kind))),
            Span::new(Ink::Code, addresses(&all)),
        ];
        rows.push(line(spans, &named(&all, each(&all).as_deref())));
    }
    if kinds.len() > drawn {
        let rest = kinds.get(drawn..).unwrap_or_default();
        let share = rest.iter().fold(Fraction::zero(), |share, kind| share.plus(&sum(kind)));
        let text = format!("{} more that differ, together {}, are not drawn", rest.len(), about(&share));
        rows.push(line(vec![Span::new(Ink::Word, text)], "--all draws every way."));
    }
    rows
}

fn summary(kind: &[&JourneyEvents<'_>]) -> String {
    format!("{} {}", about(&sum(kind)), ending(kind))
}

/// Returns `about 2/3 answered, about 1/3 lost`; empty if all paths end alike.
pub(super) fn endings(kinds: &[Vec<&JourneyEvents<'_>>]) -> String {
    let mut ends: Vec<(&str, Fraction)> = Vec::new();
    for kind in kinds {
        match ends.iter_mut().find(|(end, _)| *end == ending(kind)) {
            Some((_, share)) => *share = share.plus(&sum(kind)),
            None => ends.push((ending(kind), sum(kind))),
        }
    }
    let told = ends.iter().filter(|_| ends.len() > 1).map(|(end, share)| format!("{} {end}", about(share)));
    told.collect::<Vec<_>>().join(", ")
}

fn ending(kind: &[&JourneyEvents<'_>]) -> &'static str {
    kind.first().map(|way| word(&way.journey.verdict)).unwrap_or_default()
}

fn word(verdict: &PacketVerdict) -> &'static str {
    match verdict {
        PacketVerdict::Answered { .. } => "answered",
        PacketVerdict::Unanswered { .. } => "unanswered",
        PacketVerdict::Refused { .. } => "refused",
        PacketVerdict::Rejected { .. } => "rejected",
        PacketVerdict::Dropped { .. } => "lost",
    }
}

pub(super) fn letter(number: usize) -> String {
    let letter = u8::try_from(number).ok().and_then(|number| b'A'.checked_add(number)).map(char::from);
    letter.unwrap_or('?').to_string()
}

pub(super) fn heading(number: usize, kind: &[&JourneyEvents<'_>], from: usize) -> String {
    let all = alternatives(kind, from);
    format!("{}: {} of the packets go on like this, to {}", letter(number), about(&sum(kind)), addresses(&all))
}

/// Returns the probabilities of the drawn path and of all paths like it.
pub(super) fn probabilities(letter: Option<String>, kind: &[&JourneyEvents<'_>], from: usize) -> Vec<String> {
    let all = alternatives(kind, from);
    let whole = sum(kind);
    let letter = letter.map(|letter| format!("{letter}: ")).unwrap_or_default();
    let Some((first, rest)) = all.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return vec![format!("{letter}{}", exact(&whole))];
    };
    vec![
        format!("{letter}to {}: {}", first.address, exact(&first.share)),
        format!("together with {} more alike, {}: {}", rest.len(), addresses(rest), exact(&whole)),
    ]
}

fn exact(share: &Fraction) -> String {
    let (rounded, exact) = (share.to_string(), share.ratio());
    if rounded == "1" {
        return "always".to_owned();
    }
    let long = !rounded.starts_with('~') || exact.len() > 44;
    if long { format!("probability {rounded}") } else { format!("probability {rounded}, exactly {exact}") }
}
