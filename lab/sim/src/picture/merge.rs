//! Merges paths: shared events are drawn once, then the choice, then one path of each kind.

use std::collections::BTreeMap;

use super::choice;
use super::ending::verdict;
use super::journey_events::{JourneyEvents, is_chance, shared, sum};
use super::likeness::likeness;
use super::line::TextRow;
use super::scene::{Strand, StrandBuilder};
use super::share::weight;
use crate::fraction::Fraction;
use crate::network::{Journey, Outcomes};

const DRAWN: usize = 5;

pub(super) fn each(ways: &[(String, &Journey)]) -> Vec<Strand> {
    let certain = Fraction::one();
    let strand = |(title, journey): &(String, &Journey)| {
        let way = JourneyEvents::new(&certain, journey);
        let visits = follow(&way, 0, &[]);
        let verdict = verdict(&way, vec![title.clone()]);
        Strand { heading: (ways.len() > 1).then(|| title.clone()), visits, verdict, summary: String::new() }
    };
    ways.iter().map(strand).collect()
}

/// Returns a strand per kind, most likely first.
pub(super) fn merged(outcomes: &Outcomes) -> Vec<Strand> {
    let ways: Vec<JourneyEvents<'_>> =
        outcomes.ways.iter().map(|(share, journey)| JourneyEvents::new(share, journey)).collect();
    let all: Vec<&JourneyEvents<'_>> = ways.iter().collect();
    let parts = shared(&all);
    let kinds = kinds(&all);
    let drawn = kinds.len().min(DRAWN);
    let strands = kinds.iter().take(drawn).enumerate().map(|(number, kind)| {
        let Some(first) = kind.first() else { return Strand::default() };
        let mut choices = Vec::new();
        if number == 0 && all.len() > 1 {
            let rows = if kinds.len() == 1 { choice::alike(kind, parts) } else { choice::kinds(&kinds, drawn, parts) };
            choices.push((parts, rows));
        }
        let later = shared(kind);
        if kinds.len() > 1 && kind.len() > 1 && !first.only_chance(parts, later) {
            choices.push((later, choice::alike(kind, later)));
        }
        let begin = if number == 0 { 0 } else { parts };
        let heading = (number > 0).then(|| choice::heading(number, kind, parts));
        let letter = (kinds.len() > 1).then(|| choice::letter(number));
        let visits = follow(first, begin, &choices);
        let summary = if number == 0 { choice::endings(&kinds) } else { String::new() };
        Strand { heading, visits, summary, verdict: verdict(first, choice::probabilities(letter, kind, parts)) }
    });
    strands.collect()
}

fn kinds<'w, 'a>(ways: &[&'w JourneyEvents<'a>]) -> Vec<Vec<&'w JourneyEvents<'a>>> {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut kinds: Vec<Vec<&JourneyEvents<'_>>> = Vec::new();
    for way in ways {
        let place = *places.entry(likeness(way.journey)).or_insert(kinds.len());
        if place == kinds.len() {
            kinds.push(Vec::new());
        }
        kinds[place].push(way);
    }
    for kind in &mut kinds {
        let likeliest = kind.iter().map(|way| weight(way.share)).max();
        let first = kind.iter().position(|way| Some(weight(way.share)) == likeliest).unwrap_or(0);
        let first = kind.remove(first);
        kind.insert(0, first);
    }
    let mut weighed: Vec<_> = kinds.into_iter().map(|kind| (sum(&kind), kind)).collect();
    weighed.sort_by_key(|(sum, _)| std::cmp::Reverse(weight(sum)));
    weighed.into_iter().map(|(_, kind)| kind).collect()
}

fn follow(way: &JourneyEvents<'_>, begin: usize, choices: &[(usize, Vec<TextRow>)]) -> Vec<super::scene::HostVisit> {
    let mut builder = StrandBuilder::default();
    let back = way.journey.request.trace.len();
    let mut chosen = false;
    for (at, event) in way.events.iter().enumerate() {
        if at == back {
            builder.answer_begins();
        }
        if at == begin && begin > 0 {
            builder.restart();
            chosen = true;
        }
        for (_, rows) in choices.iter().filter(|(before, _)| *before == at) {
            builder.rows(rows.clone());
            chosen = true;
        }
        chosen &= is_chance(event);
        if !chosen {
            builder.event(event);
        }
    }
    builder.visits()
}
