//! The scenarios that a report holds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Exit;
use crate::input::InputFiles;

/// A report that `svclab run --json` wrote.
pub(super) fn report(path: &Path) -> Result<Value, Exit> {
    let wrong = |problem: String| Exit::usage(format!("{}: {problem}", path.display()));
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let value: Value = serde_json::from_slice(&text).map_err(|error| wrong(format!("not a report: {error}")))?;
    if value["scenarios"].is_array() { Ok(value) } else { Err(wrong("not a report: no `scenarios`".to_owned())) }
}

/// The texts of its scenarios and of the files that they name.
pub(super) fn texts(path: &Path) -> Result<InputFiles, Exit> {
    let report = report(path)?;
    let mut texts = BTreeMap::new();
    for scenario in report["scenarios"].as_array().into_iter().flatten() {
        let own = scenario["path"].as_str().zip(scenario["text"].as_str());
        let files = scenario["files"].as_object().into_iter().flatten();
        let files = files.filter_map(|(path, text)| Some((path.as_str(), text.as_str()?)));
        texts.extend(own.into_iter().chain(files).map(|(path, text)| (PathBuf::from(path), text.to_owned())));
    }
    Ok(InputFiles::given(texts))
}
