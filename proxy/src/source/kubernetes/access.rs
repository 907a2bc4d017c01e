//! How the API server is reached: a kubeconfig, the pod's service account, or a bare address.

use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use kube::client::ClientBuilder;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::super::problem::one_line;
use crate::metrics::Requests;

/// A server that does not answer a connection attempt within this time is tried again.
const CONNECT: Duration = Duration::from_secs(10);

/// Where the API server is and who the proxy is to it. What it names is read anew for every new try after a failure,
/// so a corrected kubeconfig or a renewed certificate needs no restart; a service account's token is read again about
/// once a minute besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    kubeconfig: Option<PathBuf>,
    master: Option<String>,
}

/// The API server cannot even be asked.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The kubeconfig is missing or makes no sense.
    #[error("cannot use the kubeconfig {}: {cause}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// There is no service account.
    #[error("cannot use the pod's service account: {cause}; outside of a cluster, name a --kubeconfig")]
    ServiceAccount {
        /// What is wrong.
        cause: String,
    },
    /// The address makes no sense.
    #[error("{address:?} is no address of an API server, such as https://10.0.0.1:6443")]
    Master {
        /// As given.
        address: String,
    },
    /// Certificates or credentials are malformed.
    #[error("cannot set up the connection: {cause}")]
    Client {
        /// What is wrong.
        cause: String,
    },
}

impl Access {
    /// By a kubeconfig, with the server's address replaced if there is a `master`; by `master` alone without
    /// credentials; by the pod's service account if there is neither (upstream's order).
    pub fn new(kubeconfig: Option<PathBuf>, master: Option<String>) -> Access {
        Access { kubeconfig, master }
    }

    /// For messages: what the access goes by.
    pub(super) fn describe(&self) -> String {
        match (&self.kubeconfig, &self.master) {
            (_, Some(master)) => master.clone(),
            (Some(path), None) => format!("kubeconfig {}", path.display()),
            (None, None) => "in-cluster service account".to_owned(),
        }
    }

    /// A client, from the files as they are now.
    /// Its requests are counted.
    pub(super) async fn connect(&self, requests: &Requests) -> Result<Client, AccessError> {
        let mut config = self.config().await?;
        config.connect_timeout = Some(CONNECT);
        // The loop around decides when to try again, and says so.
        config.default_retry = false;
        let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let builder = ClientBuilder::try_from(config)
            .map_err(|error| AccessError::Client { cause: one_line(&error.to_string()) })?;
        Ok(builder.with_layer(&requests.to(&host)).build())
    }

    async fn config(&self) -> Result<Config, AccessError> {
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let wrong = |error| AccessError::Kubeconfig { path: path.clone(), cause: told(&error) };
                let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(wrong)?
            }
            None if self.master.is_some() => Config::new(hyper::Uri::default()),
            None => Config::incluster()
                .map_err(|error| AccessError::ServiceAccount { cause: one_line(&error.to_string()) })?,
        };
        if let Some(master) = &self.master {
            config.cluster_url = address(master)?;
        }
        Ok(config)
    }
}

/// An address with or without a scheme; without one it is plain HTTP, as client-go takes it.
fn address(master: &str) -> Result<hyper::Uri, AccessError> {
    let wrong = || AccessError::Master { address: master.to_owned() };
    let full = if master.contains("://") { master.to_owned() } else { format!("http://{master}") };
    let address: hyper::Uri = full.parse().map_err(|_| wrong())?;
    let usable =
        matches!(address.scheme_str(), Some("http" | "https")) && address.host().is_some_and(|h| !h.is_empty());
    if usable { Ok(address) } else { Err(wrong()) }
}

fn told(error: &KubeconfigError) -> String {
    match error {
        // The path is in the sentence around already.
        KubeconfigError::ReadConfig(cause, _) => cause.to_string(),
        other => one_line(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_may_go_without_a_scheme() {
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

    #[tokio::test]
    async fn what_is_wrong_with_a_kubeconfig_is_one_sentence() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("kubeconfig");
        let access = Access::new(Some(path.clone()), None);
        let fault = async || {
            access.connect(&Requests::default()).await.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let at = format!("cannot use the kubeconfig {}: ", path.display());
        assert_eq!(fault().await, format!("{at}No such file or directory (os error 2)"));
        for (text, cause) in [
            ("{}", "failed to determine current context"),
            ("current-context: here\n", "failed to load current context: here"),
            ("clusters: [\n", "failed to parse kubeconfig YAML: "),
        ] {
            std::fs::write(&path, text).expect("written");
            let fault = fault().await;
            assert!(fault.starts_with(&format!("{at}{cause}")) && !fault.contains('\n'), "{fault}");
        }
    }
}
