//! What a drawing is made of: boxes, lines of text and arrows, in the order in which they are painted.

use super::line::Span;

/// What a box means; the style sheet says how it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Column,
    Machine,
    Heading,
    Request,
    Answer,
    RequestBox,
    AnswerBox,
    Hook,
    Change,
    Choice,
    Good,
    Bad,
    GoodBox,
    BadBox,
}

impl Class {
    pub(super) fn name(self) -> &'static str {
        match self {
            Class::Column => "column",
            Class::Machine => "machine",
            Class::Heading => "heading",
            Class::Request => "request",
            Class::Answer => "answer",
            Class::RequestBox => "box request-box",
            Class::AnswerBox => "box answer-box",
            Class::Hook => "hook",
            Class::Change => "tone-change",
            Class::Choice => "tone-choice",
            Class::Good => "tone-good",
            Class::Bad => "tone-bad",
            Class::GoodBox => "verdict good",
            Class::BadBox => "verdict bad",
        }
    }

    /// Whether its corners are round.
    pub(super) fn round(self) -> bool {
        !matches!(self, Class::Column | Class::Hook | Class::Change | Class::Choice | Class::Good | Class::Bad)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) x: u32,
    /// The foot of its letters.
    pub(super) y: u32,
    pub(super) size: u32,
    pub(super) spans: Vec<Span>,
    pub(super) title: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) enum Shape {
    Rect {
        x: u32,
        y: u32,
        width: u32,
        height: u32,
        class: Class,
    },
    Text(Text),
    /// Down from `start` to `bend`, across, and down to `end`.
    Arrow {
        start: (u32, u32),
        bend: u32,
        end: (u32, u32),
        answer: bool,
    },
}

#[derive(Debug, Default)]
pub(super) struct Drawing {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) beneath: Vec<Shape>,
    pub(super) shapes: Vec<Shape>,
}

impl Drawing {
    pub(super) fn rect(&mut self, x: u32, y: u32, width: u32, height: u32, class: Class) {
        self.shapes.push(Shape::Rect { x, y, width, height, class });
    }

    pub(super) fn beneath(&mut self, x: u32, y: u32, width: u32, height: u32, class: Class) {
        self.beneath.push(Shape::Rect { x, y, width, height, class });
    }

    /// The place of a box whose height is known only when what lies on it is drawn.
    pub(super) fn reserve(&mut self) -> usize {
        self.rect(0, 0, 0, 0, Class::Column);
        self.shapes.len() - 1
    }

    pub(super) fn fill(&mut self, reserved: usize, x: u32, y: u32, width: u32, height: u32, class: Class) {
        if let Some(shape) = self.shapes.get_mut(reserved) {
            *shape = Shape::Rect { x, y, width, height, class };
        }
    }

    pub(super) fn text(&mut self, text: Text) {
        self.shapes.push(Shape::Text(text));
    }

    pub(super) fn arrow(&mut self, start: (u32, u32), bend: u32, end: (u32, u32), answer: bool) {
        self.shapes.push(Shape::Arrow { start, bend, end, answer });
    }
}
