//! Places a drawing: a column per machine, time downwards.

use super::columns::{Columns, GUTTER, PAD};
use super::labels;
use super::line::{Ink, Span, TextRow, Tone, fit, total, wrapped};
use super::scene::{HookLane, HostVisit, Strand, VerdictBox};
use super::shape::{Drawing, ShapeClass, TextShape};

pub(super) const MARGIN: u32 = 24;
pub(super) const SIZE: u32 = 12;
const ROW: u32 = 17;
const FOOT: u32 = 13;
const RULE: usize = 4;

pub(super) fn draw(title: &[Span], subtitle: &str, strands: &[Strand]) -> Drawing {
    let columns = Columns::of(strands, MARGIN);
    let mut page = PageLayout { y: MARGIN, drawing: Drawing::default(), columns };
    page.title(title, subtitle);
    page.machines();
    let top = page.y;
    for strand in strands {
        page.strand(strand);
    }
    page.finish(top)
}

struct PageLayout {
    columns: Columns,
    y: u32,
    drawing: Drawing,
}

impl PageLayout {
    fn width(&self) -> u32 {
        self.columns.right() - MARGIN
    }

    fn title(&mut self, title: &[Span], subtitle: &str) {
        self.text(MARGIN, self.width(), 18, title, "");
        self.y += 24;
        self.text(MARGIN, self.width(), 13, &[Span::new(Ink::Soft, subtitle)], "");
        self.y += 26;
    }

    fn machines(&mut self) {
        for at in 0..self.columns.len() {
            let (x, width) = (self.columns.x(at), self.columns.width(at));
            self.drawing.rect(x, self.y, width, 26, ShapeClass::Machine);
            let name = labels::machine(self.columns.name(at));
            self.y += 5;
            self.text(
                x + PAD,
                width - 2 * PAD,
                14,
                &[Span::new(Ink::Strong, name)],
                self.columns.name(at).to_owned().as_str(),
            );
            self.y -= 5;
        }
        self.y += 26;
    }

    fn finish(mut self, top: u32) -> Drawing {
        for at in 0..self.columns.len() {
            let (x, width) = (self.columns.x(at), self.columns.width(at));
            self.drawing.beneath(x, top, width, self.y.saturating_sub(top), ShapeClass::Column);
        }
        self.drawing.width = self.columns.right() + MARGIN;
        self.drawing.height = self.y + MARGIN;
        self.drawing
    }

    fn strand(&mut self, strand: &Strand) {
        if let Some(heading) = &strand.heading {
            self.y += 14;
            self.drawing.rect(MARGIN, self.y, self.width(), 24, ShapeClass::Heading);
            self.y += 4;
            self.text(MARGIN + PAD, self.width() - 2 * PAD, 13, &[Span::new(Ink::Strong, heading.as_str())], "");
            self.y += 24;
        }
        let mut last: Option<usize> = None;
        for visit in &strand.visits {
            let Some(column) = self.columns.of_machine(&visit.machine) else { continue };
            match (last, &visit.arrived) {
                (Some(from), Some(_)) => self.arrow(from, column, visit),
                _ if visit.begins => self.leg(visit.answer),
                _ => {}
            }
            self.visit(column, visit);
            last = Some(column);
        }
        self.y += 12;
        self.verdict(&strand.verdict);
    }

    fn leg(&mut self, answer: bool) {
        self.y += 8;
        let (word, class) = if answer { ("answer", ShapeClass::Answer) } else { ("request", ShapeClass::Request) };
        self.drawing.rect(MARGIN, self.y, self.width(), 17, class);
        self.y += 1;
        self.text(MARGIN + PAD, self.width() - 2 * PAD, 11, &[Span::new(Ink::Strong, word)], "");
        self.y += 16 + 6;
    }

    fn arrow(&mut self, from: usize, to: usize, visit: &HostVisit) {
        let Some(packet) = &visit.arrived else { return };
        let (ends, protocol) = labels::addresses(packet);
        let (start, x, end) = (self.y, self.columns.middle(from), self.columns.middle(to));
        let (left, room) = if from == to {
            (x + PAD, (self.columns.width(from) / 2).saturating_sub(2 * PAD))
        } else {
            (x.min(end) + PAD + 4, x.abs_diff(end).saturating_sub(2 * PAD + 8))
        };
        let one = vec![Span::new(Ink::Code, ends.as_str()), Span::new(Ink::Soft, protocol.as_str())];
        let lines = match halved(&ends) {
            Some((source, destination)) if total(&one, SIZE) > room => vec![
                vec![Span::new(Ink::Code, source)],
                vec![Span::new(Ink::Code, destination), Span::new(Ink::Soft, protocol)],
            ],
            _ => vec![one],
        };
        self.y += 3;
        for line in &lines {
            self.text(left, room, SIZE, line, &packet.to_string());
            self.y += 15;
        }
        let bend = self.y + 4;
        self.y = bend + 14;
        self.drawing.arrow((x, start), bend, (end, self.y), visit.answer);
        self.y += 1;
    }

    fn visit(&mut self, column: usize, visit: &HostVisit) {
        let (x, width, top) = (self.columns.x(column), self.columns.width(column), self.y);
        let class = if visit.answer { ShapeClass::AnswerBox } else { ShapeClass::RequestBox };
        let frame = self.drawing.reserve();
        self.y += 2;
        let heading = visit.heading();
        self.text(x + PAD, width - 2 * PAD, SIZE, &heading, "");
        self.y += ROW;
        let gutter = if visit.has_gutter() { GUTTER } else { 0 };
        for lane in &visit.lanes {
            self.lane(x, width, gutter, lane);
        }
        self.y += 3;
        self.drawing.fill(frame, x, top, width, self.y - top, class);
    }

    fn lane(&mut self, x: u32, width: u32, gutter: u32, lane: &HookLane) {
        if !lane.title.is_empty() {
            if lane.hook {
                self.drawing.rect(x + 1, self.y, width - 2, ROW, ShapeClass::Hook);
            }
            let title = Span::new(if lane.hook { Ink::Strong } else { Ink::Soft }, lane.title.as_str());
            let note = Span::new(if lane.hook { Ink::Soft } else { Ink::Word }, lane.note.as_str());
            let spans = if lane.note.is_empty() { vec![title] } else { vec![title, note] };
            self.text(x + PAD, width - 2 * PAD, SIZE, &spans, "");
            self.y += ROW;
        }
        let mut by = "";
        for row in &lane.rows {
            self.row(x, width, gutter, row, if row.by == by { "" } else { &row.by });
            by = &row.by;
        }
    }

    fn row(&mut self, x: u32, width: u32, gutter: u32, row: &TextRow, by: &str) {
        let room = width - 2 * PAD - gutter;
        if let Some(halves) = row.halves(room) {
            for (half, by) in halves.iter().zip([by, ""]) {
                self.row(x, width, gutter, half, by);
            }
            return;
        }
        let class = match row.tone {
            Tone::Plain => None,
            Tone::Change => Some(ShapeClass::Change),
            Tone::Choice => Some(ShapeClass::Choice),
            Tone::Good => Some(ShapeClass::Good),
            Tone::Bad => Some(ShapeClass::Bad),
        };
        if let Some(class) = class {
            self.drawing.rect(x + 1, self.y, width - 2, ROW, class);
        }
        if gutter > 0 && !by.is_empty() {
            let ink = if row.tone == Tone::Change { Ink::Strong } else { Ink::Soft };
            self.text(x + PAD, gutter - 2, 11, &[Span::new(ink, by)], "");
        }
        self.text(x + PAD + gutter, room, SIZE, &row.spans, &row.whole);
        self.y += ROW;
    }

    fn verdict(&mut self, verdict: &VerdictBox) {
        let class = if verdict.good { ShapeClass::GoodBox } else { ShapeClass::BadBox };
        let (room, top, frame) = (self.width() - 4 * PAD, self.y, self.drawing.reserve());
        self.y += 5;
        self.text(MARGIN + 2 * PAD, room, 14, &[Span::new(Ink::Strong, verdict.text.as_str())], "");
        self.y += 20;
        let rule = verdict.rule.iter().flat_map(|rule| wrapped(Ink::Code, rule, room, SIZE, RULE));
        let lines = verdict.lines.iter().map(|line| Span::new(Ink::Word, line.as_str()));
        for line in rule.chain(lines) {
            self.text(MARGIN + 2 * PAD, room, SIZE, &[line], "");
            self.y += ROW;
        }
        self.y += 5;
        self.drawing.fill(frame, MARGIN, top, self.width(), self.y - top, class);
    }

    fn text(&mut self, x: u32, room: u32, size: u32, spans: &[Span], whole: &str) {
        let (fitting, cut) = fit(spans, room, size);
        let shown = spans.iter().map(|span| span.text.as_str()).collect::<Vec<_>>().join(" ");
        let whole = if whole.is_empty() { shown.clone() } else { whole.to_owned() };
        let title = (cut || whole != shown).then_some(whole);
        let y = self.y + FOOT * size / SIZE;
        self.drawing.text(TextShape { x, y, size, spans: fitting, title });
    }
}

fn halved(text: &str) -> Option<(String, String)> {
    text.split_once(" → ").map(|(before, after)| (before.to_owned(), format!("→ {after}")))
}

impl TextRow {
    fn halves(&self, room: u32) -> Option<[TextRow; 2]> {
        let [only] = self.spans.as_slice() else { return None };
        let (before, after) = halved(&only.text)?;
        let half = |text: String| TextRow { spans: vec![Span::new(only.ink, text)], ..self.clone() };
        (self.tone == Tone::Change && total(&self.spans, SIZE) > room).then(|| [half(before), half(after)])
    }
}
