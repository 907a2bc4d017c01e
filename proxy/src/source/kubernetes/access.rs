//! These functions may block on a mount or a plugin, so `connector` runs them on their own thread with a timeout.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use hyper::Uri;
use hyper::header::{HeaderValue, USER_AGENT};
use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use super::super::problem::one_line;
use super::exec;
use crate::small_file;

/// The form of client-go's.
const CLIENT: &str = concat!("svcproxy/v", env!("CARGO_PKG_VERSION"), " (linux)");
const CONNECT: Duration = Duration::from_secs(10);
/// The age at which token files are read again, as in client-go.
const TOKEN_AGE: Duration = Duration::from_secs(60);

/// Files are read again after every failure, so a corrected kubeconfig needs no restart. A plugin runs again shortly
/// before its credentials expire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    kubeconfig: Option<PathBuf>,
    master: Option<String>,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum AccessError {
    #[error("cannot use the kubeconfig {}: {cause}", path.display())]
    Kubeconfig { path: PathBuf, cause: String },
    #[error("cannot use the pod's service account: {cause}; outside of a cluster, name a --kubeconfig")]
    ServiceAccount { cause: String },
    #[error("{address:?} is no address of an API server, such as https://10.0.0.1:6443")]
    Master { address: String },
    #[error("cannot read the token file {}: {cause}", path.display())]
    Token { path: PathBuf, cause: String },
    #[error("the credential plugin {plugin}: {cause}")]
    Plugin {
        /// The plugin's command without arguments, which may contain secrets.
        plugin: String,
        cause: String,
    },
    #[error("cannot set up the connection: {cause}")]
    Client { cause: String },
    #[error("no credentials after {after:?}: {step} takes that long; does a mount hang, or the plugin?")]
    Late { step: String, after: Duration },
}

/// A hash of the API server's address and of the certificate authorities that it is checked by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterIdentity(pub(super) [u8; 32]);

impl ClusterIdentity {
    pub(super) fn of(config: &Config) -> ClusterIdentity {
        let mut hash = Sha256::new();
        hash.update(config.cluster_url.to_string());
        for certificate in config.root_cert.iter().flatten() {
            // Each part has a hash, so that bytes cannot move from one to the next.
            hash.update(Sha256::digest(certificate));
        }
        ClusterIdentity(hash.finalize().into())
    }
}

/// A hash of the cluster's identity and of the credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AccessIdentity([u8; 32]);

impl AccessIdentity {
    pub(super) fn of(config: &Config) -> AccessIdentity {
        let (user, secret) = (&config.auth_info, |secret: &SecretString| secret.expose_secret().to_owned());
        let mut hash = Sha256::new();
        hash.update(ClusterIdentity::of(config).0);
        for part in [
            user.username.clone(),
            user.password.as_ref().map(secret),
            user.token.as_ref().map(secret),
            user.client_certificate.clone(),
            user.client_certificate_data.clone(),
            user.client_key.clone(),
            user.client_key_data.as_ref().map(secret),
        ] {
            hash.update(Sha256::digest(part.unwrap_or_default()));
        }
        AccessIdentity(hash.finalize().into())
    }
}

pub(super) struct ResolvedAccess {
    pub config: Config,
    pub renew: Option<Instant>,
}

impl Access {
    /// Precedence is as in kube-proxy: the kubeconfig, with `master` as its server if given; `master`; the pod's
    /// service account. User and password in `master` become basic authentication.
    pub fn new(kubeconfig: Option<PathBuf>, master: Option<String>) -> Access {
        Access { kubeconfig, master }
    }

    pub fn describe(&self) -> String {
        match (&self.kubeconfig, &self.master) {
            (_, Some(master)) => without_password(master),
            (Some(path), None) => format!("kubeconfig {}", path.display()),
            (None, None) => "in-cluster service account".to_owned(),
        }
    }

    /// Resolves the access; calls `step` before each step.
    pub(super) fn resolve(&self, step: &dyn Fn(String)) -> Result<ResolvedAccess, AccessError> {
        let mut config = self.config(step)?;
        config.connect_timeout = Some(CONNECT);
        // The client does not retry: the reflector does, and logs.
        config.default_retry = false;
        // A server's audit log, the managers of fields and its metrics name a client by its first part.
        config.headers.push((USER_AGENT, HeaderValue::from_static(CLIENT)));
        let renew = credentials(&mut config.auth_info, step)?;
        Ok(ResolvedAccess { config, renew })
    }

    /// Identifies the cluster without asking it; reads files.
    pub(super) fn cluster(&self) -> Result<ClusterIdentity, AccessError> {
        Ok(ClusterIdentity::of(&self.config(&|_| {})?))
    }

    fn config(&self, step: &dyn Fn(String)) -> Result<Config, AccessError> {
        let mut config = self.config_of_files(step)?;
        if let Some(master) = &self.master {
            config.cluster_url = address(master)?;
        }
        basic_authentication(&mut config)?;
        Ok(config)
    }

    fn config_of_files(&self, step: &dyn Fn(String)) -> Result<Config, AccessError> {
        match &self.kubeconfig {
            Some(path) => {
                step(format!("reading the kubeconfig {}", path.display()));
                let wrong = |cause| AccessError::Kubeconfig { path: path.clone(), cause };
                small_file::read(path).map_err(|error| wrong(error.to_string()))?;
                let kubeconfig = Kubeconfig::read_from(path).map_err(|error| wrong(reported(&error)))?;
                let options = KubeConfigOptions::default();
                let loaded = Config::from_custom_kubeconfig(kubeconfig, &options);
                // The future only reads files, so it is ready at once.
                let loaded = loaded.now_or_never().ok_or_else(|| wrong("it cannot be read at once".to_owned()))?;
                loaded.map_err(|error| wrong(reported(&error)))
            }
            None if self.master.is_some() => Ok(Config::new(Uri::default())),
            None => {
                step("reading the pod's service account".to_owned());
                Config::incluster().map_err(|error| AccessError::ServiceAccount { cause: one_line(&error.to_string()) })
            }
        }
    }
}

/// Loads token files and runs plugins; returns when to do so again.
fn credentials(user: &mut AuthInfo, step: &dyn Fn(String)) -> Result<Option<Instant>, AccessError> {
    if let Some(provider) = user.auth_provider.take() {
        let cause = "was taken out of Kubernetes' clients in 1.26; use exec instead".to_owned();
        return Err(AccessError::Plugin { plugin: format!("auth-provider {}", one_line(&provider.name)), cause });
    }
    // client-go's precedence: token file, token, plugin.
    if let Some(path) = user.token_file.take() {
        let path = PathBuf::from(path);
        step(format!("reading the token file {}", path.display()));
        let wrong = |cause| AccessError::Token { path: path.clone(), cause };
        let bytes = small_file::read(&path).map_err(|error| wrong(error.to_string()))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong("it is not UTF-8 text".to_owned()))?;
        let token = text.trim();
        if token.is_empty() {
            return Err(wrong("it is empty".to_owned()));
        }
        user.token = Some(token.to_owned().into());
        return Ok(Some(Instant::now() + TOKEN_AGE));
    }
    match user.exec.take() {
        Some(plugin) if user.token.is_none() => {
            let name = plugin.command.clone().unwrap_or_default();
            step(format!("the credential plugin {}", one_line(&name)));
            exec::credentials(&plugin, user)
                .map_err(|error| AccessError::Plugin { plugin: one_line(&name), cause: error.to_string() })
        }
        _ => Ok(None),
    }
}

/// An address without a scheme means plain HTTP, as in client-go.
fn address(master: &str) -> Result<Uri, AccessError> {
    let wrong = || AccessError::Master { address: without_password(master) };
    let full = if master.contains("://") { master.to_owned() } else { format!("http://{master}") };
    let address: Uri = full.parse().map_err(|_| wrong())?;
    let usable =
        matches!(address.scheme_str(), Some("http" | "https")) && address.host().is_some_and(|h| !h.is_empty());
    if usable { Ok(address) } else { Err(wrong()) }
}

/// Removes user name and password from the address, which is logged; as in Go they become basic authentication.
fn basic_authentication(config: &mut Config) -> Result<(), AccessError> {
    let Some(authority) = config.cluster_url.authority().cloned() else { return Ok(()) };
    let Some((user, host)) = authority.as_str().rsplit_once('@') else { return Ok(()) };
    let mut parts = config.cluster_url.clone().into_parts();
    let wrong = || AccessError::Master { address: without_password(&config.cluster_url.to_string()) };
    parts.authority = Some(host.parse().map_err(|_| wrong())?);
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let decoded = |text: &str| percent_decoded(text).ok_or_else(wrong);
    let (name, password) = (decoded(name)?, decoded(password)?);
    config.auth_info.username = Some(name);
    config.auth_info.password = Some(password.into());
    config.cluster_url = Uri::from_parts(parts).map_err(|_| wrong())?;
    Ok(())
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

pub(crate) fn without_password(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let separator = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{separator}{host}{path}")
}

fn reported(error: &KubeconfigError) -> String {
    match error {
        // The caller's message contains the path.
        KubeconfigError::ReadConfig(cause, _) => cause.to_string(),
        other => one_line(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_without_a_scheme_is_http() {
        for (master, expected) in [
            ("https://10.0.0.1:6443", Some("https://10.0.0.1:6443/")),
            ("10.0.0.1:8080", Some("http://10.0.0.1:8080/")),
            ("https://[fd00::1]:6443", Some("https://[fd00::1]:6443/")),
            ("ftp://x", None),
            ("a b", None),
            ("", None),
        ] {
            assert_eq!(address(master).ok().map(|a| a.to_string()).as_deref(), expected, "{master:?}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for (master, shown) in [
            ("http://user:pass@word@10.0.0.1:6443/x", "http://10.0.0.1:6443/x"),
            ("user:password@host", "host"),
            ("https://10.0.0.1", "https://10.0.0.1"),
            ("ftp://user:password@x", "ftp://x"),
        ] {
            assert_eq!(without_password(master), shown);
            assert_eq!(Access::new(None, Some(master.to_owned())).describe(), shown);
        }
        let error = address("ftp://user:password@x").expect_err("no HTTP").to_string();
        assert!(!error.contains("password"), "{error}");
        let resolved = Access::new(None, Some("http://us%65r:p%40ss@10.0.0.1:6443".to_owned())).resolve(&|_| {});
        let config = resolved.map_err(|error| error.to_string()).expect("an address").config;
        assert_eq!(config.cluster_url.to_string(), "http://10.0.0.1:6443/");
        let user = serde_json::to_value(&config.auth_info).expect("JSON");
        assert_eq!((&user["username"], &user["password"]), (&"user".into(), &"p@ss".into()));
    }

    #[test]
    fn faults_of_a_kubeconfig_are_one_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("kubeconfig");
        let access = Access::new(Some(path.clone()), None);
        let fault = || access.resolve(&|_| {}).err().map(|error| error.to_string()).unwrap_or_default();
        let at = format!("cannot use the kubeconfig {}: ", path.display());
        assert_eq!(fault(), format!("{at}No such file or directory (os error 2)"));
        for (text, cause) in [
            ("{}", "failed to determine current context"),
            ("current-context: here\n", "failed to load current context: here"),
            ("clusters: [\n", "failed to parse kubeconfig YAML: "),
        ] {
            std::fs::write(&path, text).expect("written");
            let fault = fault();
            assert!(fault.starts_with(&format!("{at}{cause}")) && !fault.contains('\n'), "{fault}");
        }
        std::fs::remove_file(&path).expect("removed");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert_eq!(fault(), format!("{at}it is no regular file"));
        std::fs::remove_file(&path).expect("removed");
        let large = std::fs::File::create(&path).expect("a file");
        large.set_len(small_file::LARGEST + 1).expect("a sparse file");
        assert_eq!(fault(), format!("{at}it has 1048577 bytes; 1048576 are allowed"));
    }
}
