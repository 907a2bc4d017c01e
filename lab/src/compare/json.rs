use serde_json::{Value, json};

use super::{Excused, Pair, ProxyComparison, differences};
use crate::report::ScenarioRecord;

pub fn render(comparison: &ProxyComparison) -> Value {
    let [a, b] = comparison.figures();
    let excused = comparison.excused.iter();
    json!({
        "alike": comparison.alike(),
        "proxies": comparison.names,
        "scenarios": comparison.pairs.iter().map(pair).collect::<Vec<_>>(),
        "excused": excused.map(excuse).collect::<Vec<_>>(),
        "figures": [a, b],
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
    json!({
        "name": pair.a.name,
        "differences": differences.collect::<Vec<_>>(),
        "figures": [pair.a.figures, pair.b.figures],
        "reports": [ScenarioRecord::from(&pair.a), ScenarioRecord::from(&pair.b)],
    })
}
