//! Styled lines of text, whose width is estimated without a font.

/// A text style: words are sans-serif, addresses and rules monospaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    /// Rules, addresses.
    Code,
    /// Chain names.
    Quiet,
    /// Accepting rules.
    Pass,
    /// Drops, rejects.
    Deny,
    /// Translations, marks.
    Change,
    Word,
    /// Comments, interfaces.
    Soft,
    /// Headings.
    Strong,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Change,
    Choice,
    Good,
    Bad,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) ink: Ink,
    pub(super) text: String,
}

impl Span {
    pub(super) fn new(ink: Ink, text: impl Into<String>) -> Span {
        Span { ink, text: text.into() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextRow {
    pub(super) by: String,
    pub(super) tone: Tone,
    pub(super) spans: Vec<Span>,
    pub(super) whole: String,
}

pub(super) const SPACE: u32 = 6;

/// Returns a text's maximum width in pixels: that in DejaVu, the widest common fonts.
pub(super) fn width(ink: Ink, text: &str, size: u32) -> u32 {
    let mono = matches!(ink, Ink::Code | Ink::Quiet | Ink::Pass | Ink::Deny | Ink::Change);
    let thousandths: u32 = text.chars().map(|char| character(mono, ink == Ink::Strong, char)).sum();
    (thousandths * size).div_ceil(1000)
}

fn character(mono: bool, bold: bool, char: char) -> u32 {
    let plain = match char {
        '→' | '…' | '–' | '·' | '≈' => 1000,
        char if !char.is_ascii() => 1300,
        _ if mono => return 610,
        'i' | 'j' | 'l' | 'I' | 'f' | 't' | 'r' | ' ' | '.' | ',' | ':' | ';' | '\'' | '|' | '(' | ')' | '[' | ']'
        | '-' | '/' => 420,
        'm' | 'w' | 'W' | 'M' | '@' | '%' => 1010,
        'A'..='Z' | '+' | '=' | '<' | '>' | '~' | '#' | '&' => 840,
        _ => 650,
    };
    if bold { plain * 115 / 100 } else { plain }
}

pub(super) fn total(spans: &[Span], size: u32) -> u32 {
    let texts: u32 = spans.iter().map(|span| width(span.ink, &span.text, size)).sum();
    texts + SPACE * u32::try_from(spans.len().saturating_sub(1)).unwrap_or(0)
}

pub(super) fn fit(spans: &[Span], room: u32, size: u32) -> (Vec<Span>, bool) {
    if total(spans, size) <= room {
        return (spans.to_vec(), false);
    }
    let mut fitting: Vec<Span> = Vec::new();
    let mut left = room;
    for span in spans {
        let own = width(span.ink, &span.text, size);
        // A cut span keeps at least two characters.
        let next = own + SPACE + size * 2;
        if next <= left {
            left -= own + SPACE;
            fitting.push(span.clone());
            continue;
        }
        let cut = cut(span, left, size);
        if !cut.text.is_empty() {
            fitting.push(cut);
        }
        break;
    }
    (fitting, true)
}

fn cut(span: &Span, room: u32, size: u32) -> Span {
    let mut text = String::new();
    for char in span.text.chars() {
        text.push(char);
        if width(span.ink, &format!("{text}…"), size) > room {
            text.pop();
            break;
        }
    }
    let mut text = text.trim_end().to_owned();
    if width(span.ink, "…", size) <= room {
        text.push('…');
    }
    Span { ink: span.ink, text }
}

pub(super) fn wrapped(ink: Ink, text: &str, room: u32, size: u32, most: usize) -> Vec<Span> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_inclusive(' ') {
        let count = lines.len();
        let Some(last) = lines.last_mut() else { break };
        let longer = format!("{last}{word}");
        if count < most && !last.is_empty() && width(ink, longer.trim_end(), size) > room {
            lines.push(word.to_owned());
        } else {
            *last = longer;
        }
    }
    lines.into_iter().map(|line| Span::new(ink, line.trim_end())).collect()
}

pub(super) fn middle(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        return name.to_owned();
    }
    let tail = (most - 1) / 2;
    let head = most - 1 - tail;
    let (head, tail): (String, String) = (name.chars().take(head).collect(), name.chars().skip(count - tail).collect());
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_spans_fit_and_end_with_an_ellipsis() {
        let spans = [Span::new(Ink::Code, "KUBE-SERVICES"), Span::new(Ink::Soft, "a comment of some length")];
        for room in 20..300 {
            let (fitting, cut) = fit(&spans, room, 12);
            assert!(total(&fitting, 12) <= room, "{room}: {fitting:?}");
            assert_eq!(cut, fitting.iter().any(|span| span.text.ends_with('…')), "{room}: {fitting:?}");
        }
    }

    #[test]
    fn lines_break_between_words() {
        let lines = |most| wrapped(Ink::Code, "one two three four", 60, 12, most).into_iter().map(|span| span.text);
        assert_eq!(lines(9).collect::<Vec<_>>(), ["one two", "three", "four"]);
        assert_eq!(lines(2).collect::<Vec<_>>(), ["one two", "three four"]);
    }

    #[test]
    fn a_long_name_keeps_both_ends() {
        assert_eq!(middle("cali-tw-cali1234567890", 11), "cali-…67890");
        assert_eq!(middle("short", 11), "short");
    }
}
