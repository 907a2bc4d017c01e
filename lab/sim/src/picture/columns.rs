//! Column widths, from the lengths of lines and the width of the page.

use std::sync::Arc;

use super::layout::SIZE;
use super::line::{Ink, Span, total, width};
use super::scene::{HostVisit, Strand};

pub(super) const PAD: u32 = 8;
pub(super) const GUTTER: u32 = 70;
const GAP: u32 = 28;
const NARROW: u32 = 210;
/// The width of A4 landscape in pixels.
const PAGE: u32 = 1400;
const WIDE: u32 = 620;
const LINE: u32 = 760;

pub(super) struct Columns {
    columns: Vec<(Arc<str>, u32, u32)>,
}

impl Columns {
    pub(super) fn of(strands: &[Strand], left: u32) -> Columns {
        let mut columns: Vec<(Arc<str>, u32, u32)> = Vec::new();
        for visit in strands.iter().flat_map(|strand| &strand.visits) {
            let need = visit.width();
            match columns.iter_mut().find(|(name, ..)| *name == visit.machine) {
                Some((.., width)) => *width = need.max(*width),
                None => columns.push((Arc::clone(&visit.machine), 0, need)),
            }
        }
        for (name, _, wide) in &mut columns {
            *wide = (*wide).max(width(Ink::Strong, &super::labels::machine(name), 14) + 2 * PAD).clamp(NARROW, WIDE);
        }
        shrink(&mut columns);
        widen(&mut columns);
        let mut x = left;
        for (_, at, width) in &mut columns {
            *at = x;
            x += *width + GAP;
        }
        Columns { columns }
    }

    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }

    pub(super) fn name(&self, at: usize) -> &str {
        self.columns.get(at).map_or("", |(name, ..)| name)
    }

    pub(super) fn of_machine(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|(own, ..)| &**own == name)
    }

    pub(super) fn x(&self, at: usize) -> u32 {
        self.columns.get(at).map_or(0, |(_, x, _)| *x)
    }

    pub(super) fn width(&self, at: usize) -> u32 {
        self.columns.get(at).map_or(NARROW, |(.., width)| *width)
    }

    pub(super) fn middle(&self, at: usize) -> u32 {
        self.x(at) + self.width(at) / 2
    }

    pub(super) fn right(&self) -> u32 {
        self.columns.last().map_or(LINE, |(_, x, width)| x + width)
    }
}

fn widen(columns: &mut [(Arc<str>, u32, u32)]) {
    let sum: u32 = columns.iter().map(|(.., width)| width + GAP).sum();
    if let Some((.., widest)) = columns.iter_mut().max_by_key(|(.., width)| *width) {
        *widest += (LINE + GAP).saturating_sub(sum);
    }
}

fn shrink(columns: &mut [(Arc<str>, u32, u32)]) {
    const LEAST: u32 = 360;
    loop {
        let count = u32::try_from(columns.len()).unwrap_or(0);
        let sum: u32 = columns.iter().map(|(.., width)| width + GAP).sum();
        let Some((.., widest)) = columns.iter_mut().max_by_key(|(.., width)| *width) else { return };
        if sum <= PAGE || *widest <= LEAST || count == 0 {
            return;
        }
        *widest = (*widest - (sum - PAGE).min(20)).max(LEAST);
    }
}

impl HostVisit {
    pub(super) fn has_gutter(&self) -> bool {
        self.lanes.iter().flat_map(|lane| &lane.rows).any(|row| !row.by.is_empty())
    }

    pub(super) fn heading(&self) -> Vec<Span> {
        let note = (!self.note.is_empty()).then(|| Span::new(Ink::Soft, self.note.as_str()));
        std::iter::once(Span::new(Ink::Strong, self.heading.as_str())).chain(note).collect()
    }

    fn width(&self) -> u32 {
        let gutter = if self.has_gutter() { GUTTER } else { 0 };
        let heads = self.lanes.iter().map(|lane| {
            let spans = [Span::new(Ink::Strong, lane.title.as_str()), Span::new(Ink::Word, lane.note.as_str())];
            total(&spans, SIZE)
        });
        let rows = self.lanes.iter().flat_map(|lane| &lane.rows).map(|row| gutter + total(&row.spans, SIZE));
        heads.chain(rows).max().unwrap_or(0).max(total(&self.heading(), SIZE)) + 2 * PAD
    }
}
