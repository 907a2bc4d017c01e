use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use serde_json::{Value, json};

/// Contents of a kubeconfig file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    /// URL of the API, as in `https://10.0.0.1:6443`.
    pub server: String,
    /// Name of the user and of the context.
    pub client: String,
    /// Bearer token, if the server requires one.
    pub token: Option<String>,
    /// PEM certificate of the server's authority.
    pub ca_pem: Option<String>,
}

/// The error of writing a kubeconfig.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the kubeconfig {path}")]
pub struct KubeconfigError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: io::Error,
}

impl Kubeconfig {
    /// Returns the file's text: JSON, which is valid YAML.
    pub fn text(&self) -> String {
        let mut cluster = json!({"server": self.server});
        if let Some(pem) = &self.ca_pem {
            cluster["certificate-authority-data"] = json!(BASE64.encode(pem.as_bytes()));
        }
        let user = self.token.as_ref().map_or_else(|| json!({}), |token| json!({"token": token}));
        let config: Value = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "svclab", "cluster": cluster}],
            "users": [{"name": self.client, "user": user}],
            "contexts": [{"name": self.client, "context": {"cluster": "svclab", "user": self.client}}],
            "current-context": self.client,
        });
        format!("{config:#}\n")
    }

    /// Writes the file with mode 0600.
    pub fn write(&self, path: &Path) -> Result<(), KubeconfigError> {
        let open = || std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        let written = open().and_then(|mut file| io::Write::write_all(&mut file, self.text().as_bytes()));
        written.map_err(|source| KubeconfigError { path: path.to_owned(), source })
    }
}
