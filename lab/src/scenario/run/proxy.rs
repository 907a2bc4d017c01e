//! Which proxy a run judges: this project's own, or any other, described in a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::scenario::configuration::lay_over;

/// A service proxy, and how it is started on a node.
#[derive(Debug, Clone)]
pub enum Proxy {
    /// This project's: it tells the resource versions that it has applied.
    Own(PathBuf),
    /// Any other: what it has applied shows in the traffic only.
    Foreign(ForeignProxy),
}

/// The file that describes a proxy.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignProxy {
    /// What reports call it.
    pub name: String,
    /// Program and arguments, with `{node}`, `{kubeconfig}`, `{config}` and `{mode}` filled in.
    pub command: Vec<String>,
    /// The same for the command that removes every trace.
    pub cleanup: Option<Vec<String>>,
    /// Laid over the KubeProxyConfiguration that the lab writes for each node (RFC 7396).
    pub config: Option<Value>,
    /// Scenarios that it is not run in, each with the reason.
    #[serde(default)]
    pub excused: BTreeMap<String, String>,
}

/// What is filled in.
const PLACES: [&str; 4] = ["node", "kubeconfig", "config", "mode"];

/// A description that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ProxyFileError {
    /// The file.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

impl ForeignProxy {
    /// Reads a description.
    ///
    /// # Errors
    /// When the file cannot be read, or says something that cannot be done.
    pub fn read(path: &Path) -> Result<ForeignProxy, ProxyFileError> {
        let wrong = |problem: String| ProxyFileError { path: path.display().to_string(), problem };
        let text = crate::input::text(path).map_err(|error| wrong(error.to_string()))?;
        let proxy: ForeignProxy =
            serde_saphyr::from_str(&text).map_err(|error| wrong(crate::scenario::plain_message(&error)))?;
        proxy.checked().map_err(wrong)
    }

    /// A proxy that a command line with places describes wholly, quoted as for a shell.
    ///
    /// # Errors
    /// When there is no such program, a quote is not closed, or a place is unknown.
    pub fn from_command(text: &str) -> Result<ForeignProxy, ProxyFileError> {
        let wrong = |problem: String| ProxyFileError { path: "--proxy".to_owned(), problem };
        let command = shlex::split(text).ok_or_else(|| wrong(format!("{text}: a quote is not closed")))?;
        let program = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
        let name = program.to_string_lossy().into_owned();
        let proxy = ForeignProxy { name, command, cleanup: None, config: None, excused: BTreeMap::new() };
        proxy.checked().map_err(wrong)
    }

    /// Whether `text` is a command line with places rather than a path.
    pub fn is_command(text: &str) -> bool {
        PLACES.iter().any(|place| text.contains(&format!("{{{place}}}")))
    }

    /// With full paths, if everything in it can be done.
    fn checked(mut self) -> Result<ForeignProxy, String> {
        for (key, command) in [("command", Some(&mut self.command)), ("cleanup", self.cleanup.as_mut())] {
            let Some(command) = command else { continue };
            let Some(program) = command.first_mut() else {
                return Err(format!("{key}: expected a program and its arguments"));
            };
            *program = find(program).ok_or_else(|| {
                format!("{key}: there is no program {program}; name one that is in PATH, or write its full path")
            })?;
            if let Some(unknown) = command.iter().find_map(|part| unknown_place(part)) {
                return Err(format!("{key}: {unknown} is none of {{node}}, {{kubeconfig}}, {{config}}, {{mode}}"));
            }
        }
        Ok(self)
    }

    /// A command with its places filled in.
    pub fn fill(command: &[String], places: &[(&str, String)]) -> Vec<String> {
        let fill = |part: &String| {
            places.iter().fold(part.clone(), |text, (place, value)| text.replace(&format!("{{{place}}}"), value))
        };
        command.iter().map(fill).collect()
    }

    /// The configuration of another's proxy in place of that for this project's own.
    pub fn configuration(&self, own: &Value) -> Value {
        let mut config = json!({
            "clientConnection": { "contentType": "application/json" },
            // Only the first namespace may set these, and kube-proxy ends where it cannot; zero leaves them alone.
            "conntrack": {
                "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
            },
        });
        lay_over(&mut config, own);
        if let Some(overlay) = &self.config {
            lay_over(&mut config, overlay);
        }
        config
    }
}

/// The full path of `program`: as it is written, or, if that is a mere name, from `PATH`.
fn find(program: &str) -> Option<String> {
    let path = std::env::var_os("PATH").filter(|_| !program.contains('/'));
    let directories = path.iter().flat_map(std::env::split_paths);
    let mut candidates = directories.map(|directory| directory.join(program)).chain([PathBuf::from(program)]);
    candidates.find(|candidate| candidate.is_file()).map(|found| found.display().to_string())
}

/// A `{place}` that nothing fills.
fn unknown_place(part: &str) -> Option<String> {
    let start = part.find('{')?;
    let end = start + part[start..].find('}')?;
    let place = &part[start + 1..end];
    if PLACES.contains(&place) { unknown_place(&part[end + 1..]) } else { Some(part[start..=end].to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_has_the_last_word_on_the_configuration() {
        let own = json!({
            "clusterCIDR": "10.244.0.0/16",
            "clientConnection": { "kubeconfig": "/k" },
            "iptables": { "masqueradeBit": 3, "minSyncPeriod": "1ms" },
            "conntrack": { "tcpEstablishedTimeout": "3000ms" },
        });
        let overlay = json!({ "iptables": { "syncPeriod": "1m" }, "clusterCIDR": null });
        let command = vec!["/bin/true".to_owned()];
        let excused = BTreeMap::new();
        let proxy = ForeignProxy { name: "x".into(), command, cleanup: None, config: Some(overlay), excused };
        let expected = json!({
            "clientConnection": { "kubeconfig": "/k", "contentType": "application/json" },
            "iptables": { "masqueradeBit": 3, "minSyncPeriod": "1ms", "syncPeriod": "1m" },
            "conntrack": {
                "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "3000ms", "tcpCloseWaitTimeout": "0s",
            },
        });
        assert_eq!(proxy.configuration(&own), expected);
    }

    #[test]
    fn a_description_that_cannot_work_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.yaml");
        for (text, says) in [
            ("name: x\ncommand: []\n", "command: expected a program"),
            ("name: x\ncommand: [/nonexistent]\n", "no program /nonexistent"),
            ("name: x\ncommand: [/bin/sh, '{nodes}']\n", "{nodes} is none of {node}"),
            ("name: x\ncommands: [/bin/sh]\n", "commands"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = ForeignProxy::read(&path).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("p.yaml"), "{error}");
        }
    }

    #[test]
    fn the_description_that_comes_with_the_lab_excuses_scenarios_that_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(root.join("proxies/kube-proxy.yaml")).unwrap();
        let proxy: ForeignProxy = serde_saphyr::from_str(&text).unwrap();
        for name in proxy.excused.keys() {
            assert!(root.join("../scenarios").join(name).with_extension("yaml").is_file(), "{name}");
        }
        let parts = proxy.command.iter().chain(proxy.cleanup.iter().flatten());
        assert_eq!(parts.filter_map(|part| unknown_place(part)).next(), None);
    }

    #[test]
    fn a_command_line_describes_a_proxy() {
        let text = "sh -c 'exec true' --config={config} --node={node}";
        assert!(ForeignProxy::is_command(text) && !ForeignProxy::is_command("./kube-proxy.yaml"));
        let proxy = ForeignProxy::from_command(text).unwrap();
        assert_eq!(proxy.name, "sh");
        assert_eq!(proxy.command[1..], ["-c", "exec true", "--config={config}", "--node={node}"]);
        for (text, says) in [
            ("sh 'x {node}", "a quote is not closed"),
            ("no-such-program {node}", "there is no program no-such-program"),
            ("sh {node} {pod}", "{pod} is none of {node}"),
        ] {
            let error = ForeignProxy::from_command(text).unwrap_err().to_string();
            assert!(error.starts_with("--proxy: ") && error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_mere_name_is_looked_up_in_path() {
        assert!(find("sh").is_some_and(|path| path.ends_with("/sh") && path.starts_with('/')));
        assert_eq!(find("no-such-program-anywhere"), None);
        assert_eq!(find("./sh"), None, "a path is a path");
    }
}
