//! Credential plugins (`exec`), as in client-go
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>). `kube`
//! runs them without a timeout, on a request's thread, and shows their environment in errors.

use std::collections::HashMap;
use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;

use super::super::problem::one_line;
use crate::kernel::command;

/// A plugin that runs longer is killed with its children; cloud APIs take seconds.
const LIMIT: Duration = Duration::from_secs(30);
/// Credentials are renewed this long before they expire.
const AHEAD: Duration = Duration::from_secs(10);
const SECRET: usize = 4;

#[derive(Debug, thiserror::Error)]
pub(super) enum ExecError {
    #[error("{0}")]
    Unusable(&'static str),
    #[error("cannot be run: {0}")]
    Run(io::Error),
    #[error("did not end within {LIMIT:?} and was killed")]
    Late,
    #[error("failed ({status}): {said}")]
    Failed {
        status: ExitStatus,
        /// The plugin's last line on standard error, with secrets masked.
        said: String,
    },
    #[error("its answer is no ExecCredential: {0}")]
    Answer(String),
}

/// The plugin's answer (client.authentication.k8s.io/v1).
#[derive(Deserialize)]
struct ExecCredential {
    kind: String,
    status: Option<ExecCredentialStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredentialStatus {
    expiration_timestamp: Option<Timestamp>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

pub(super) fn credentials(plugin: &ExecConfig, user: &mut AuthInfo) -> Result<Option<Instant>, ExecError> {
    let program = plugin.command.as_deref().filter(|program| !program.is_empty());
    let program = program.ok_or(ExecError::Unusable("has no command"))?;
    if plugin.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(ExecError::Unusable("has interactiveMode Always, and a service proxy has no terminal"));
    }
    let environment = environment(plugin)?;
    let arguments: Vec<&str> = plugin.args.iter().flatten().map(String::as_str).collect();
    let output = command::run_with(program, &arguments, &environment, LIMIT).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => ExecError::Late,
        _ => ExecError::Run(error),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it wrote no error");
        return Err(ExecError::Failed { status: output.status, said: one_line(&without_secrets(said, plugin)) });
    }
    accept(&output.stdout, user)
}

/// Returns the kubeconfig's variables, and `KUBERNETES_EXEC_INFO` with the cluster.
fn environment(plugin: &ExecConfig) -> Result<Vec<(String, String)>, ExecError> {
    let mut spec = json!({"interactive": false});
    if plugin.provide_cluster_info {
        let cluster = plugin.cluster.as_ref().ok_or(ExecError::Unusable("asks for a cluster that is not there"))?;
        spec["cluster"] =
            serde_json::to_value(cluster).map_err(|_| ExecError::Unusable("has a cluster that is none"))?;
    }
    let info = json!({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec});
    let pair = |entry: &HashMap<String, String>| Some((entry.get("name")?.clone(), entry.get("value")?.clone()));
    let mut environment: Vec<_> = plugin.env.iter().flatten().filter_map(pair).collect();
    environment.push(("KUBERNETES_EXEC_INFO".to_owned(), info.to_string()));
    Ok(environment)
}

fn accept(answer: &[u8], user: &mut AuthInfo) -> Result<Option<Instant>, ExecError> {
    let wrong = |what: &str| ExecError::Answer(what.to_owned());
    // client-go accepts YAML, too. The parser's message would quote secrets.
    let text = std::str::from_utf8(answer).map_err(|_| wrong("it is not UTF-8"))?;
    let answer: ExecCredential = serde_saphyr::from_str(text).map_err(|_| wrong("it is no such object"))?;
    if answer.kind != "ExecCredential" {
        return Err(wrong("it is of another kind"));
    }
    let status = answer.status.ok_or_else(|| wrong("it has no status"))?;
    match (status.client_certificate_data, status.client_key_data) {
        (Some(certificate), Some(key)) => {
            user.client_certificate_data = Some(BASE64.encode(certificate.as_bytes()));
            user.client_key_data = Some(BASE64.encode(key.as_bytes()).into());
        }
        (None, None) if status.token.is_none() => return Err(wrong("it has neither a token nor a certificate")),
        (None, None) => {}
        _ => return Err(wrong("it has a certificate without its key, or a key without its certificate")),
    }
    user.token = status.token.map(Into::into);
    let lasts = |end: Timestamp| Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default();
    Ok(status.expiration_timestamp.map(|end| Instant::now() + lasts(end).saturating_sub(AHEAD)))
}

fn without_secrets(text: &str, plugin: &ExecConfig) -> String {
    let values = plugin.env.iter().flatten().filter_map(|entry| entry.get("value"));
    let mut secrets: Vec<&String> = values.chain(plugin.args.iter().flatten()).filter(|s| s.len() >= SECRET).collect();
    // Longest first: a secret may be part of another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.into_iter().fold(text.to_owned(), |text, secret| text.replace(secret, "…"))
}

pub(super) fn fuzz(answer: &[u8]) {
    let _ = accept(answer, &mut AuthInfo::default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(script: &str) -> ExecConfig {
        let plugin = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            "env": [{"name": "PASSWORD", "value": "swordfish"}], "interactiveMode": "IfAvailable"});
        serde_json::from_value(plugin).expect("a plugin")
    }

    fn asked(script: &str) -> (Result<Option<Instant>, String>, AuthInfo) {
        let mut user = AuthInfo::default();
        (credentials(&plugin(script), &mut user).map_err(|error| error.to_string()), user)
    }

    #[test]
    fn a_token_is_renewed_before_it_expires() {
        let (renew, user) = asked(
            r#"echo '{"kind": "ExecCredential", "status": {"token": "'$PASSWORD'", "expirationTimestamp": "2999-01-01T00:00:00Z"}}'"#,
        );
        assert!(renew.expect("credentials").is_some_and(|at| at > Instant::now() + LIMIT));
        assert_eq!(serde_json::to_value(&user).expect("JSON")["token"], "swordfish");
        let (renew, _) =
            asked("printf 'kind: ExecCredential\nstatus: {token: a, expirationTimestamp: 1999-01-01T00:00:00Z}'");
        assert!(renew.expect("credentials").is_some_and(|at| at <= Instant::now()));
        let (renew, _) =
            asked(r#"test -n "$KUBERNETES_EXEC_INFO" && echo '{"kind": "ExecCredential", "status": {"token": "a"}}'"#);
        assert_eq!(renew, Ok(None));
    }

    #[test]
    fn failures_do_not_show_secrets() {
        for (script, message) in [
            ("echo first >&2; echo wrong $PASSWORD >&2; exit 3", "failed (exit status: 3): wrong …"),
            ("exit 1", "failed (exit status: 1): it wrote no error"),
            ("echo swordfish", "its answer is no ExecCredential: it is no such object"),
            ("echo '{\"kind\": \"swordfish\"}'", "its answer is no ExecCredential: it is of another kind"),
            ("echo '{\"kind\": \"ExecCredential\"}'", "its answer is no ExecCredential: it has no status"),
            (
                "echo '{\"kind\": \"ExecCredential\", \"status\": {}}'",
                "its answer is no ExecCredential: it has neither a token nor a certificate",
            ),
        ] {
            assert_eq!(asked(script).0, Err(message.to_owned()), "{script}");
        }
        let missing = ExecConfig { command: Some("/proc/nowhere/plugin".to_owned()), ..plugin("") };
        let error = credentials(&missing, &mut AuthInfo::default()).expect_err("no such file");
        assert_eq!(error.to_string(), "cannot be run: No such file or directory (os error 2)");
    }
}
