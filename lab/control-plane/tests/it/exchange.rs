//! Requests from the files in `exchanges/`.

use std::path::Path;

use hyper::Method;
use serde::Deserialize;
use serde_json::Value;

pub struct ExchangeGroup {
    /// File name without extension; also the namespace of the objects.
    pub name: String,
    pub exchanges: Vec<Exchange>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Names the request in `known.yaml`.
    pub name: String,
    /// Method and path; `NS` in the path is the group's namespace.
    pub ask: String,
    pub body: Option<Value>,
    pub patch: Option<PatchType>,
    /// Repeat the request until both responses are equal: a controller works in the background.
    #[serde(default)]
    pub eventually: bool,
    /// Whether to watch the path from the version before the group's first request; the events are the response.
    #[serde(default)]
    pub watch: bool,
    /// Skip the request without kube-controller-manager.
    #[serde(default)]
    pub controllers: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Exchange {
    pub fn method(&self) -> Method {
        self.ask.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub fn path(&self, namespace: &str) -> String {
        self.ask.split_whitespace().nth(1).unwrap().replace("NS", namespace)
    }

    pub fn media(&self) -> &'static str {
        match self.patch {
            None => "application/json",
            Some(PatchType::Json) => "application/json-patch+json",
            Some(PatchType::Merge) => "application/merge-patch+json",
            Some(PatchType::Strategic) => "application/strategic-merge-patch+json",
            Some(PatchType::Apply) => "application/apply-patch+yaml",
        }
    }
}

pub fn groups() -> Vec<ExchangeGroup> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/exchanges");
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        let exchanges = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        ExchangeGroup { name: path.file_stem().unwrap().to_str().unwrap().to_owned(), exchanges }
    };
    files.iter().map(|path| read(path)).collect()
}
