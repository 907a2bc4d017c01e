//! The proxy's configuration: from a file that somebody names, from the proxy itself, or from the file that it was started with.

pub(super) mod process;
mod zpage;

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{files, unread};
use crate::Unread;
use crate::archive::entries::Part;
use process::Process;

/// A `KubeProxyConfiguration`.
#[derive(Debug, Clone)]
pub(super) struct Config {
    value: Value,
    /// How it was read.
    pub(super) source: String,
    /// What paths in it start from: the root directory of the proxy's container.
    root: PathBuf,
}

/// It makes no sense.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigError {
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("{path} is no YAML: {why}")]
    Syntax { path: String, why: String },
    #[error("{path} is no KubeProxyConfiguration")]
    Other { path: String },
}

impl Config {
    /// Reads YAML or JSON.
    pub(super) fn parse(text: &str, source: &str, root: &Path) -> Result<Config, ConfigError> {
        let path = || source.to_owned();
        let value: Value = serde_saphyr::from_str(text)
            .map_err(|error| ConfigError::Syntax { path: path(), why: error.to_string() })?;
        if !is_config(&value) {
            return Err(ConfigError::Other { path: path() });
        }
        Ok(Config { value, source: path(), root: root.to_owned() })
    }

    /// The kubeconfig that it names, with the root directory that paths in that start from.
    pub(super) fn kubeconfig(&self) -> Option<(PathBuf, PathBuf)> {
        let path = self.value.pointer("/clientConnection/kubeconfig")?.as_str().filter(|path| !path.is_empty())?;
        Some((process::under(&self.root, path), self.root.clone()))
    }

    /// What is kept: all but how the proxy reaches the API.
    pub(super) fn text(&self) -> String {
        let mut value = self.value.clone();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("clientConnection");
        }
        crate::yaml::text(&value)
    }
}

/// Its kind may be left out where the proxy itself tells it.
fn is_config(value: &Value) -> bool {
    let kind = value.get("kind").and_then(Value::as_str);
    value.is_object() && kind.is_none_or(|kind| kind == "KubeProxyConfiguration")
}

/// What can be found without the API. A file that was named is the only one that is tried.
pub(super) async fn local(named: Option<&Path>, process: Option<&Process>) -> Result<Option<Config>, Unread> {
    let told = |error: ConfigError| unread(Part::ProxyConfig.path(), error);
    if let Some(path) = named {
        return file(path, &path.display().to_string(), Path::new("/")).map(Some).map_err(told);
    }
    if let Some(config) = zpage::ask().await {
        return Ok(Some(config));
    }
    let Some((process, path)) = process.and_then(|process| Some((process, process.flag("config")?))) else {
        return Ok(None);
    };
    let source = format!("{path} of {}", process.name);
    file(&process.path(path), &source, &process.root).map(Some).map_err(told)
}

fn file(path: &Path, source: &str, root: &Path) -> Result<Config, ConfigError> {
    let read = |error| ConfigError::Read { path: source.to_owned(), source: error };
    Config::parse(&files::config(path).map_err(read)?, source, root)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection:
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
mode: ipvs
";

    #[test]
    fn how_the_api_is_reached_is_not_kept() {
        let config = Config::parse(TEXT, "file", Path::new("/proc/7/root")).unwrap();
        let (path, root) = config.kubeconfig().unwrap();
        assert_eq!(path, Path::new("/proc/7/root/var/lib/kube-proxy/kubeconfig.conf"));
        assert_eq!(root, Path::new("/proc/7/root"));
        let text = config.text();
        assert!(text.contains("mode: ipvs") && !text.contains("kubeconfig"), "{text}");
        assert!(Config::parse(&text, "again", Path::new("/")).is_ok());
    }

    #[test]
    fn another_file_is_none() {
        for (text, problem) in [("kind: Pod", "no KubeProxyConfiguration"), ("a: [", "no YAML"), ("- 1", "no Kube")] {
            let refused = Config::parse(text, "file", Path::new("/")).unwrap_err().to_string();
            assert!(refused.contains(problem), "{refused}");
        }
    }
}
