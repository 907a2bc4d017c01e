//! Builds as `kubectl apply -k`, with the features that `deploy/` uses; others are errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Kustomization {
    api_version: String,
    kind: String,
    namespace: Option<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    components: Vec<String>,
    #[serde(default)]
    config_map_generator: Vec<ConfigMapGenerator>,
    #[serde(default)]
    images: Vec<ImageOverride>,
    #[serde(default)]
    patches: Vec<KustomizePatch>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigMapGenerator {
    name: String,
    behavior: Option<String>,
    files: Vec<String>,
    options: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ImageOverride {
    name: String,
    new_name: Option<String>,
    new_tag: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KustomizePatch {
    target: PatchTarget,
    patch: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchTarget {
    kind: String,
    name: String,
}

#[derive(Debug, Default)]
pub struct BuiltFolder {
    /// Patched objects of all files.
    pub documents: Vec<Value>,
    /// Files of each ConfigMap, by name without hash.
    pub files: BTreeMap<String, BTreeMap<String, String>>,
    pub hashed: Vec<String>,
    images: Vec<ImageOverride>,
}

impl BuiltFolder {
    pub fn only(&self, kind: &str) -> &Value {
        let found: Vec<&Value> = self.documents.iter().filter(|document| document["kind"] == kind).collect();
        let [one] = found[..] else { panic!("{} of kind {kind}", found.len()) };
        one
    }
}

pub fn build(folder: &Path) -> BuiltFolder {
    let mut built = BuiltFolder::default();
    take(folder, "Kustomization", &mut built);
    // Images keep the manifest's name until the end.
    for image in std::mem::take(&mut built.images) {
        built.documents.iter_mut().for_each(|document| rename(document, &image));
    }
    built
}

/// Returns an image of this version, with the registry that `.ci/repository` names.
pub fn published(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/repository");
    let text = std::fs::read_to_string(file).unwrap();
    let registry = text.lines().find_map(|line| line.strip_prefix("registry=")).unwrap();
    let separator = if registry.is_empty() { "" } else { "/" };
    format!("{registry}{separator}{name}:{}", env!("CARGO_PKG_VERSION"))
}

fn take(folder: &Path, kind: &str, built: &mut BuiltFolder) {
    let file = folder.join("kustomization.yaml");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let one: Kustomization =
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let version = if kind == "Component" { "v1alpha1" } else { "v1beta1" };
    assert_eq!((one.kind.as_str(), one.api_version), (kind, format!("kustomize.config.k8s.io/{version}")), "{file:?}");
    for resource in &one.resources {
        let path = existing(folder, resource);
        if path.is_dir() {
            take(&path, "Kustomization", built);
        } else {
            let documents: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(&path).unwrap()).unwrap();
            built.documents.extend(documents);
        }
    }
    for generator in &one.config_map_generator {
        generate(folder, generator, built);
    }
    one.components.iter().for_each(|component| take(&existing(folder, component), "Component", built));
    one.patches.iter().for_each(|patch| apply(patch, &mut built.documents));
    if let Some(namespace) = &one.namespace {
        let namespaced = |document: &&mut Value| !document["kind"].as_str().unwrap().starts_with("Cluster");
        built
            .documents
            .iter_mut()
            .filter(namespaced)
            .for_each(|document| document["metadata"]["namespace"] = json!(namespace));
    }
    built.images.extend(one.images);
}

fn existing(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    assert!(path.exists(), "{} names {name}, which is not there", folder.display());
    path
}

fn generate(folder: &Path, generator: &ConfigMapGenerator, built: &mut BuiltFolder) {
    let present = built.files.contains_key(&generator.name);
    assert_eq!(present, generator.behavior.as_deref() == Some("merge"), "{}: {}", folder.display(), generator.name);
    let map = built.files.entry(generator.name.clone()).or_default();
    for file in &generator.files {
        let replaced = map.insert(file.clone(), std::fs::read_to_string(existing(folder, file)).unwrap());
        assert_eq!(replaced.is_some(), present, "{}: {file}", folder.display());
    }
    let hashed = generator.options.as_ref().is_none_or(|options| options["disableNameSuffixHash"] != true);
    if hashed && !present {
        built.hashed.push(generator.name.clone());
    }
}

fn apply(patch: &KustomizePatch, documents: &mut [Value]) {
    let is_target = |document: &&mut Value| {
        document["kind"] == patch.target.kind.as_str() && document["metadata"]["name"] == patch.target.name.as_str()
    };
    let mut targets: Vec<&mut Value> = documents.iter_mut().filter(is_target).collect();
    let [target] = &mut targets[..] else { panic!("{:?} is the target of a patch", patch.target) };
    let operations: json_patch::Patch = serde_saphyr::from_str(&patch.patch).unwrap();
    json_patch::patch(target, &operations).unwrap_or_else(|error| panic!("{:?}: {error}", patch.target));
}

fn rename(value: &mut Value, image: &ImageOverride) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(name)) = fields.get_mut("image") {
                let (plain, tag) = name.split_once(':').unwrap_or((name, ""));
                if plain == image.name {
                    let tag = image.new_tag.as_deref().unwrap_or(tag);
                    *name = format!("{}:{tag}", image.new_name.as_deref().unwrap_or(plain));
                }
            }
            fields.values_mut().for_each(|value| rename(value, image));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, image)),
        _ => {}
    }
}

/// Builds with kubectl's kustomize; `None`, with a message, without version 5.
pub fn by_kubectl(folder: &Path) -> Option<Vec<Value>> {
    let kubectl = |arguments: &[&str]| std::process::Command::new("kubectl").args(arguments).output();
    let version = kubectl(&["version", "--client", "--output=json"]).ok();
    let version: Option<Value> = version.and_then(|output| serde_json::from_slice(&output.stdout).ok());
    let version = version.and_then(|version| Some(version["kustomizeVersion"].as_str()?.to_owned()));
    if !version.as_deref().is_some_and(|version| version.starts_with("v5")) {
        assert!(std::env::var_os("CI").is_none(), "kubectl with kustomize 5 is missing: {version:?}");
        eprintln!("SKIPPED: there is no kubectl with kustomize 5 here ({version:?})");
        return None;
    }
    let output = kubectl(&["kustomize", folder.to_str().unwrap()]).unwrap();
    assert!(output.status.success(), "{}: {}", folder.display(), String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "kustomize warns about {}", folder.display());
    Some(serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap())
}
