use std::fmt::Write as _;

use super::line::{Ink, SPACE};
use super::shape::{Drawing, DrawingShape, TextShape};
use super::style;

const BEND: u32 = 6;

pub(super) fn write(drawing: &Drawing, title: &str) -> String {
    let (width, height) = (drawing.width, drawing.height);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         class=\"{}\" role=\"img\">\n<title>{}</title>\n<style>\n{}</style>\n<defs>\n",
        style::ROOT,
        escaped(title),
        escaped(&style::sheet())
    );
    for tip in ["to", "fro"] {
        let _ = writeln!(
            out,
            "<marker id=\"svclab-tip-{tip}\" markerUnits=\"userSpaceOnUse\" markerWidth=\"10\" markerHeight=\"10\" refX=\"9\" refY=\"5\" \
             orient=\"auto\"><path class=\"tip-{tip}\" d=\"M0 0L10 5L0 10Z\"/></marker>"
        );
    }
    out.push_str("</defs>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n");
    for shape in drawing.beneath.iter().chain(&drawing.shapes) {
        self::shape(&mut out, shape);
    }
    out.push_str("</svg>\n");
    out
}

fn shape(out: &mut String, shape: &DrawingShape) {
    match shape {
        DrawingShape::Rect { x, y, width, height, class } => {
            let round = if class.round() { " rx=\"4\"" } else { "" };
            let class = class.name();
            let _ = writeln!(
                out,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"{round}/>"
            );
        }
        DrawingShape::Text(line) => text(out, line),
        DrawingShape::Arrow { start, bend, end, answer } => {
            let class = if *answer { "fro" } else { "to" };
            let path = path(*start, *bend, *end);
            let _ = writeln!(out, "<path class=\"{class}\" d=\"{path}\" marker-end=\"url(#svclab-tip-{class})\"/>");
        }
    }
}

fn path((x, top): (u32, u32), bend: u32, (end, foot): (u32, u32)) -> String {
    if x == end {
        return format!("M{x} {top}V{foot}");
    }
    let beside = |at: u32, towards: u32| if towards > at { at + BEND } else { at.saturating_sub(BEND) };
    let (leave, reach) = (beside(x, end), beside(end, x));
    format!("M{x} {top}V{}Q{x} {bend} {leave} {bend}H{reach}Q{end} {bend} {end} {}V{foot}", bend - BEND, bend + BEND)
}

fn text(out: &mut String, line: &TextShape) {
    let _ = write!(out, "<text x=\"{}\" y=\"{}\" font-size=\"{}\">", line.x, line.y, line.size);
    if let Some(title) = &line.title {
        let _ = write!(out, "<title>{}</title>", escaped(title));
    }
    for (at, span) in line.spans.iter().enumerate() {
        let space = if at > 0 { format!(" dx=\"{SPACE}\"") } else { String::new() };
        let _ = write!(out, "<tspan class=\"{}\"{space}>{}</tspan>", class(span.ink), escaped(&span.text));
    }
    out.push_str("</text>\n");
}

fn class(ink: Ink) -> &'static str {
    match ink {
        Ink::Code => "code",
        Ink::Quiet => "quiet",
        Ink::Pass => "pass",
        Ink::Deny => "deny",
        Ink::Change => "change",
        Ink::Word => "word",
        Ink::Soft => "soft",
        Ink::Strong => "strong",
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push('\n'),
            // XML forbids these characters, or they change the writing direction.
            '\u{fffe}' | '\u{ffff}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push('\u{fffd}');
            }
            char if char.is_control() => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("</text><script>&\"\u{7}"), "&lt;/text&gt;&lt;script&gt;&amp;&quot;\u{fffd}");
        assert_eq!(escaped("a\u{202e}b\u{ffff}"), "a\u{fffd}b\u{fffd}");
    }
}
