use std::fmt::Write as _;

/// Colours with light and dark values; contrast of WCAG AA.
const PALETTE: [(&str, &str, &str); 19] = [
    ("paper", "#ffffff", "#12161c"),
    ("stripe", "#f3f5f8", "#181d25"),
    ("panel", "#ffffff", "#1e242e"),
    ("band", "#e6ebf2", "#2c3542"),
    ("line", "#b9c3d0", "#465264"),
    ("ink", "#1b2430", "#e6eaf0"),
    ("soft", "#566272", "#a3afbf"),
    ("request", "#0a5cad", "#6cb2f5"),
    ("request-ground", "#e2eefb", "#17304b"),
    ("answer", "#74369b", "#cb9bee"),
    ("answer-ground", "#f2e8f9", "#36244a"),
    ("change", "#8a4b00", "#f2b45c"),
    ("change-ground", "#fff2d9", "#3b2d14"),
    ("choice-ground", "#e6f2f0", "#183532"),
    ("good", "#14662f", "#6fd28c"),
    ("good-ground", "#e3f5e8", "#16351f"),
    ("bad", "#ab1620", "#ff8f8f"),
    ("bad-ground", "#fde8e8", "#441d21"),
    ("head", "#dde4ed", "#2c3542"),
];

const USES: [(&str, &str, &str); 36] = [
    (".paper", "fill", "paper"),
    (".column", "fill", "stripe"),
    (".machine", "fill", "head"),
    (".heading", "fill", "band"),
    (".request", "fill", "request-ground"),
    (".answer", "fill", "answer-ground"),
    (".box", "fill", "panel"),
    (".request-box", "stroke", "request"),
    (".answer-box", "stroke", "answer"),
    (".hook", "fill", "band"),
    (".tone-change", "fill", "change-ground"),
    (".tone-choice", "fill", "choice-ground"),
    (".tone-good", "fill", "good-ground"),
    (".tone-bad", "fill", "bad-ground"),
    (".good", "fill", "good-ground"),
    (".good", "stroke", "good"),
    (".bad", "fill", "bad-ground"),
    (".bad", "stroke", "bad"),
    ("text", "fill", "ink"),
    (".code", "fill", "ink"),
    (".quiet", "fill", "soft"),
    (".soft", "fill", "soft"),
    (".word", "fill", "ink"),
    (".strong", "fill", "ink"),
    (".pass", "fill", "good"),
    (".deny", "fill", "bad"),
    (".change", "fill", "change"),
    (".to", "stroke", "request"),
    (".fro", "stroke", "answer"),
    (".tip-to", "fill", "request"),
    (".tip-fro", "fill", "answer"),
    (".request+text .strong", "fill", "request"),
    (".answer+text .strong", "fill", "answer"),
    (".good+text .strong", "fill", "good"),
    (".bad+text .strong", "fill", "bad"),
    (".machine", "stroke", "line"),
];

const FACES: [(&str, &str); 5] = [
    ("text", "font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"),
    (".code,.quiet,.pass,.deny,.change", "font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"),
    (".strong,.deny", "font-weight:bold"),
    (".to,.fro", "fill:none;stroke-width:1.6"),
    (".fro", "stroke-dasharray:6 3"),
];

pub(super) const ROOT: &str = "svclab-picture";

const PRINT: &str = "width:98vw;height:96vh";

pub(super) fn sheet() -> String {
    let mut sheet = String::new();
    let variables = |night: bool| {
        let each = PALETTE.iter().map(|(name, light, dark)| format!("--{name}:{}", if night { dark } else { light }));
        each.collect::<Vec<_>>().join(";")
    };
    let _ = writeln!(sheet, ".{ROOT}{{color-scheme:light dark;{}}}", variables(false));
    let _ = writeln!(sheet, "@media screen and (prefers-color-scheme:dark){{.{ROOT}{{{}}}}}", variables(true));
    let _ = writeln!(sheet, "@media print{{.{ROOT}{{{PRINT}}}}}");
    for (selectors, declarations) in FACES {
        let scoped: Vec<String> = selectors.split(',').map(|selector| format!(".{ROOT} {selector}")).collect();
        let _ = writeln!(sheet, "{}{{{declarations}}}", scoped.join(","));
    }
    for (selector, property, colour) in USES {
        let plain = PALETTE.iter().find(|(name, ..)| *name == colour).map_or("#000000", |(_, light, _)| light);
        let _ = writeln!(sheet, ".{ROOT} {selector}{{{property}:{plain};{property}:var(--{colour})}}");
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_used_colours_are_defined() {
        for (selector, _, colour) in USES {
            assert!(PALETTE.iter().any(|(name, ..)| *name == colour), "{selector}");
        }
    }
}
