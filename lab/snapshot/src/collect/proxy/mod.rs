//! The proxy's configuration, from a file that the user names, `/configz`, or its command line.

mod flags;
mod inside;
pub(super) mod process;
mod zpage;

use std::path::Path;

use serde_json::Value;

use super::{elsewhere, unread};
use crate::Unread;
use crate::archive::entries::ArchivePart;
pub(super) use inside::ContainedPath;
use process::Process;

#[derive(Debug, Clone)]
pub(super) struct Config {
    value: Value,
    pub(super) source: String,
    /// The configuration's file, usually in a container; paths in it are relative to it.
    file: ContainedPath,
}

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
    /// Parses YAML or JSON.
    pub(super) fn parse(text: &str, source: &str, file: ContainedPath) -> Result<Config, ConfigError> {
        let path = || source.to_owned();
        let value: Value = serde_saphyr::from_str(text)
            .map_err(|error| ConfigError::Syntax { path: path(), why: error.to_string() })?;
        if !is_config(&value) {
            return Err(ConfigError::Other { path: path() });
        }
        Ok(Config { value, source: path(), file })
    }

    pub(super) fn kubeconfig(&self) -> Option<ContainedPath> {
        let path = self.value.pointer("/clientConnection/kubeconfig")?.as_str().filter(|path| !path.is_empty())?;
        Some(self.file.beside(path))
    }

    pub(super) fn text(&self) -> String {
        let mut value = self.value.clone();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("clientConnection");
        }
        crate::yaml::text(&value)
    }
}

fn is_config(value: &Value) -> bool {
    let kind = value.get("kind").and_then(Value::as_str);
    value.is_object() && kind.is_none_or(|kind| kind == "KubeProxyConfiguration")
}

/// If the user names a file, no other is tried.
pub(super) async fn local(named: Option<&Path>, process: Option<&Process>) -> Result<Option<Config>, Unread> {
    let (file, source) = match (named, process) {
        (Some(path), _) => (ContainedPath::here(path), "--proxy-config".to_owned()),
        (None, process) => {
            let root = process.map_or_else(|| ContainedPath::here(Path::new("/")), |process| process.file("/"));
            if let Some(config) = zpage::ask(root).await {
                return Ok(Some(config));
            }
            let Some(process) = process else { return Ok(None) };
            let Some(path) = process.flag("config") else { return Ok(Some(flags::config(process))) };
            (process.file(path), format!("{path} of {}", process.name))
        }
    };
    let read = move || {
        let failed = |error| ConfigError::Read { path: source.clone(), source: error };
        Config::parse(&file.read().map_err(failed)?, &source, file)
    };
    let parsed = elsewhere(ArchivePart::ProxyConfig.path(), read).await?;
    parsed.map(Some).map_err(|error| unread(ArchivePart::ProxyConfig.path(), error))
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
        let root = Path::new("/proc/7/root");
        let config = Config::parse(TEXT, "file", ContainedPath::new(root, "/var/lib/kube-proxy/config.conf")).unwrap();
        assert_eq!(config.kubeconfig(), Some(ContainedPath::new(root, "/var/lib/kube-proxy/kubeconfig.conf")));
        let text = config.text();
        assert!(text.contains("mode: ipvs") && !text.contains("kubeconfig"), "{text}");
        assert!(Config::parse(&text, "again", ContainedPath::here(Path::new("/a"))).is_ok());
    }

    #[test]
    fn another_file_is_none() {
        for (text, problem) in [("kind: Pod", "no KubeProxyConfiguration"), ("a: [", "no YAML"), ("- 1", "no Kube")] {
            let refused = Config::parse(text, "file", ContainedPath::here(Path::new("/a"))).unwrap_err().to_string();
            assert!(refused.contains(problem), "{refused}");
        }
    }
}
