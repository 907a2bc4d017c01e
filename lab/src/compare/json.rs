//! The comparison as JSON.

use serde_json::{Value, json};

use super::{Comparison, Excused, Pair, differences};
use crate::report::{Figures, json as report};

/// Both reports of every scenario, what differs, and the figures.
pub fn render(comparison: &Comparison) -> Value {
    let [a, b] = comparison.figures();
    let excused = comparison.excused.iter();
    json!({
        "alike": comparison.alike(),
        "proxies": comparison.names,
        "scenarios": comparison.pairs.iter().map(pair).collect::<Vec<_>>(),
        "excused": excused.map(excuse).collect::<Vec<_>>(),
        "figures": [a.json(), b.json()],
    })
}

fn excuse(excused: &Excused) -> Value {
    json!({ "name": excused.scenario, "mode": excused.mode, "proxy": excused.proxy, "reason": excused.reason })
}

fn pair(pair: &Pair) -> Value {
    let differences = differences(pair).into_iter().map(|difference| {
        json!({
            "what": difference.what.word(),
            "step": difference.step,
            "line": difference.line,
            "seen": [difference.a, difference.b],
        })
    });
    let of = |figures: &Option<Figures>| figures.as_ref().map(Figures::json);
    json!({
        "name": pair.a.name,
        "differences": differences.collect::<Vec<_>>(),
        "figures": [of(&pair.a.figures), of(&pair.b.figures)],
        "reports": [report::scenario(&pair.a), report::scenario(&pair.b)],
    })
}
