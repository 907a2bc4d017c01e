use super::line::Span;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShapeClass {
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

impl ShapeClass {
    pub(super) fn name(self) -> &'static str {
        match self {
            ShapeClass::Column => "column",
            ShapeClass::Machine => "machine",
            ShapeClass::Heading => "heading",
            ShapeClass::Request => "request",
            ShapeClass::Answer => "answer",
            ShapeClass::RequestBox => "box request-box",
            ShapeClass::AnswerBox => "box answer-box",
            ShapeClass::Hook => "hook",
            ShapeClass::Change => "tone-change",
            ShapeClass::Choice => "tone-choice",
            ShapeClass::Good => "tone-good",
            ShapeClass::Bad => "tone-bad",
            ShapeClass::GoodBox => "verdict good",
            ShapeClass::BadBox => "verdict bad",
        }
    }

    pub(super) fn round(self) -> bool {
        !matches!(
            self,
            ShapeClass::Column
                | ShapeClass::Hook
                | ShapeClass::Change
                | ShapeClass::Choice
                | ShapeClass::Good
                | ShapeClass::Bad
        )
    }
}

#[derive(Debug, Clone)]
pub(super) struct TextShape {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) size: u32,
    pub(super) spans: Vec<Span>,
    pub(super) title: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) enum DrawingShape {
    Rect {
        x: u32,
        y: u32,
        width: u32,
        height: u32,
        class: ShapeClass,
    },
    Text(TextShape),
    /// An arrow down to height `bend`, across, and down.
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
    pub(super) beneath: Vec<DrawingShape>,
    pub(super) shapes: Vec<DrawingShape>,
}

impl Drawing {
    pub(super) fn rect(&mut self, x: u32, y: u32, width: u32, height: u32, class: ShapeClass) {
        self.shapes.push(DrawingShape::Rect { x, y, width, height, class });
    }

    pub(super) fn beneath(&mut self, x: u32, y: u32, width: u32, height: u32, class: ShapeClass) {
        self.beneath.push(DrawingShape::Rect { x, y, width, height, class });
    }

    pub(super) fn reserve(&mut self) -> usize {
        self.rect(0, 0, 0, 0, ShapeClass::Column);
        self.shapes.len() - 1
    }

    pub(super) fn fill(&mut self, reserved: usize, x: u32, y: u32, width: u32, height: u32, class: ShapeClass) {
        if let Some(shape) = self.shapes.get_mut(reserved) {
            *shape = DrawingShape::Rect { x, y, width, height, class };
        }
    }

    pub(super) fn text(&mut self, text: TextShape) {
        self.shapes.push(DrawingShape::Text(text));
    }

    pub(super) fn arrow(&mut self, start: (u32, u32), bend: u32, end: (u32, u32), answer: bool) {
        self.shapes.push(DrawingShape::Arrow { start, bend, end, answer });
    }
}
