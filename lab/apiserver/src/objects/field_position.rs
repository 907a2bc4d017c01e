use serde_saphyr::granit_parser::{Event, Parser, Span};

#[derive(Debug, PartialEq, Eq)]
enum PathPart<'a> {
    Key(&'a str),
    Index(usize),
}

/// Returns line and column, counted from 1, of the field `path` (as `spec.ports[0].port`) in YAML: of its key or, in a
/// list, of the item. For a missing field it is the position of the nearest enclosing field.
pub fn field_position(text: &str, path: &str) -> Option<(usize, usize)> {
    let parts = parts(path);
    let mut walk = YamlWalk { events: NodeEvents::new(text)?, found: None };
    walk.node(Some(&parts))?;
    walk.found
}

fn parts(path: &str) -> Vec<PathPart<'_>> {
    let mut parts = Vec::new();
    for name in path.split('.') {
        let (key, mut rest) = name.find('[').map_or((name, ""), |at| name.split_at(at));
        if !key.is_empty() {
            parts.push(PathPart::Key(key));
        }
        while let Some((index, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            parts.extend(index.parse().ok().map(PathPart::Index));
            rest = after;
        }
    }
    parts
}

struct NodeEvents<'a> {
    parser: Parser<'a, serde_saphyr::granit_parser::StrInput<'a>>,
}

impl<'a> NodeEvents<'a> {
    fn new(text: &'a str) -> Option<Self> {
        Some(NodeEvents { parser: Parser::new_from_str(text) })
    }

    /// `None` at the end and at a syntax error.
    fn next(&mut self) -> Option<(Event<'a>, Span)> {
        loop {
            let (event, span) = self.parser.next_event()?.ok()?;
            match event {
                Event::StreamEnd | Event::DocumentEnd => return None,
                Event::Scalar(..)
                | Event::Alias(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd => return Some((event, span)),
                _ => {}
            }
        }
    }
}

struct YamlWalk<'a> {
    events: NodeEvents<'a>,
    found: Option<(usize, usize)>,
}

impl YamlWalk<'_> {
    fn note(&mut self, span: &Span) {
        self.found = Some((span.start.line(), span.start.col() + 1));
    }

    /// Reads a YAML node; `wanted` is the rest of the path if it passes through this node.
    fn node(&mut self, wanted: Option<&[PathPart<'_>]>) -> Option<()> {
        let (event, _) = self.events.next()?;
        self.begun(&event, wanted)
    }

    fn begun(&mut self, event: &Event<'_>, wanted: Option<&[PathPart<'_>]>) -> Option<()> {
        match event {
            Event::MappingStart(..) => loop {
                let (key, span) = self.events.next()?;
                let inner = match (&key, wanted) {
                    (Event::MappingEnd, _) => return Some(()),
                    (Event::Scalar(name, ..), Some([PathPart::Key(first), rest @ ..]))
                        if name == first || is_singular(name, first) =>
                    {
                        self.note(&span);
                        Some(rest)
                    }
                    _ => None,
                };
                if !matches!(key, Event::Scalar(..)) {
                    self.begun(&key, None)?;
                }
                self.node(inner)?;
            },
            Event::SequenceStart(..) => {
                let mut index = 0;
                loop {
                    let (item, span) = self.events.next()?;
                    let inner = match (&item, wanted) {
                        (Event::SequenceEnd, _) => return Some(()),
                        (_, Some([PathPart::Index(wanted), rest @ ..])) if *wanted == index => {
                            self.note(&span);
                            Some(rest)
                        }
                        _ => None,
                    };
                    self.begun(&item, inner)?;
                    index += 1;
                }
            }
            _ => Some(()),
        }
    }
}

/// Whether `name` is the singular of `newer`: errors name `clusterIPs` even if the manifest has `clusterIP`.
fn is_singular(name: &str, newer: &str) -> bool {
    newer.strip_suffix('s').is_some_and(|one| one == name && one.ends_with("IP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_in_block_and_flow_style() {
        let text = "kind: Service\nspec:\n  selector: {app: web}\n  ports:\n  - port: 80\n    targetPort: http\n  - {port: 81, name: b}\n  clusterIP: 10.96.0.9\n";
        for (path, place) in [
            ("kind", (1, 1)),
            ("spec.selector", (3, 3)),
            ("spec.selector.app", (3, 14)),
            ("spec.ports[0].targetPort", (6, 5)),
            ("spec.ports[1].name", (7, 16)),
            ("spec.clusterIPs[0]", (8, 3)),
            // Missing fields: the nearest enclosing field.
            ("spec.ports[1].nodePort", (7, 5)),
            ("spec.externalName", (2, 1)),
        ] {
            assert_eq!(field_position(text, path), Some(place), "{path}");
        }
        assert_eq!(field_position(text, "status"), None);
        assert_eq!(field_position("a: [", "a"), None);
    }
}
