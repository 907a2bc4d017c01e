//! Self-contained HTML pages that are also XML: no scripts, no external resources, light or dark by the reader's
//! setting. [`Html`] escapes all text: names, comments of rules and logs are untrusted.

use std::fmt::Write as _;

const STYLE: &str = include_str!("style.css");

/// The page's Content-Security-Policy, in case text is ever not escaped.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Writes a document.
#[derive(Debug, Default)]
pub struct Html {
    out: String,
}

impl Html {
    /// Writes an element with attributes and the content that `inside` writes.
    pub fn element(&mut self, tag: &str, attributes: &[(&str, &str)], inside: impl FnOnce(&mut Html)) {
        self.begin(tag, attributes);
        self.out.push('>');
        inside(self);
        let _ = write!(self.out, "</{tag}>");
        if !matches!(tag, "code" | "strong" | "span" | "a" | "tspan") {
            self.out.push('\n');
        }
    }

    /// Writes an element that contains only text; omits an empty class.
    pub fn leaf(&mut self, tag: &str, class: &str, text: &str) {
        let attributes = [("class", class)];
        self.element(tag, if class.is_empty() { &[] } else { &attributes }, |html| html.text(text));
    }

    /// Writes an element without content.
    pub fn empty(&mut self, tag: &str, attributes: &[(&str, &str)]) {
        self.begin(tag, attributes);
        self.out.push_str("/>");
    }

    /// Writes text.
    pub fn text(&mut self, text: &str) {
        escape(text, &mut self.out);
    }

    /// Writes a term and its description.
    pub fn row(&mut self, term: &str, inside: impl FnOnce(&mut Html)) {
        self.leaf("dt", "", term);
        self.element("dd", &[], inside);
    }

    /// Writes lines as a list.
    pub fn list<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) {
        self.element("ul", &[], |html| lines.into_iter().for_each(|line| html.leaf("li", "", line)));
    }

    fn begin(&mut self, tag: &str, attributes: &[(&str, &str)]) {
        let _ = write!(self.out, "<{tag}");
        for (name, value) in attributes {
            let _ = write!(self.out, " {name}=\"");
            escape(value, &mut self.out);
            self.out.push('"');
        }
    }
}

/// Returns a page; `body` writes its content.
#[must_use]
pub fn page(title: &str, body: impl FnOnce(&mut Html)) -> String {
    let mut html = Html { out: "<!DOCTYPE html>\n".to_owned() };
    html.element("html", &[("xmlns", "http://www.w3.org/1999/xhtml"), ("lang", "en")], |html| {
        html.element("head", &[], |html| {
            html.empty("meta", &[("charset", "utf-8")]);
            html.empty("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
            html.empty("meta", &[("http-equiv", "Content-Security-Policy"), ("content", POLICY)]);
            html.leaf("title", "", title);
            // Browsers do not unescape style sheets; the constant has no `<` and `&`.
            let _ = writeln!(html.out, "<style>\n{STYLE}</style>");
        });
        html.element("body", &[], body);
    });
    html.out
}

/// Returns the text, escaped for XML content and attributes.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape(text, &mut out);
    out
}

/// Escapes text; also replaces control characters, which XML forbids, and characters that change the writing direction.
fn escape(text: &str, out: &mut String) {
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(char),
            '\u{fffe}' | '\u{ffff}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push('\u{fffd}');
            }
            char if char.is_control() => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_its_place() {
        let hostile = "</title></style><script>alert('1')</script>\"&\u{1b}[31m\u{202e}\u{ffff}";
        let text = page(hostile, |html| html.element("p", &[("class", hostile)], |html| html.text(hostile)));
        assert!(!text.contains("<script") && !text.contains('\u{202e}') && !text.contains('\u{1b}'));
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        let document = roxmltree::Document::parse_with_options(&text, options).unwrap();
        let found =
            document.descendants().find(|node| node.has_tag_name(("http://www.w3.org/1999/xhtml", "p"))).unwrap();
        let kept = "</title></style><script>alert('1')</script>\"&\u{fffd}[31m\u{fffd}\u{fffd}";
        assert_eq!((found.text(), found.attribute("class")), (Some(kept), Some(kept)));
    }

    #[test]
    fn a_page_loads_nothing() {
        assert!(!STYLE.contains(['<', '&']) && !STYLE.contains("url(") && !STYLE.contains("@import"));
    }
}
