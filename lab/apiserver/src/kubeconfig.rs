//! The file that tells a client where the API is and what to say there.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use serde_json::{Value, json};

/// What a kubeconfig says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    /// URL of the API, as in `https://10.0.0.1:6443`.
    pub server: String,
    /// Whose it is; the user's and the context's name.
    pub client: String,
    /// The client's bearer token, where the server wants one.
    pub token: Option<String>,
    /// The authority that signed the server's certificate, PEM.
    pub ca_pem: Option<String>,
}

/// The file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the kubeconfig {path}")]
pub struct KubeconfigError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl Kubeconfig {
    /// The file's content: JSON, which every reader of YAML takes.
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

    /// Writes it to `path`, for its owner only.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), KubeconfigError> {
        let open = || std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        let written = open().and_then(|mut file| io::Write::write_all(&mut file, self.text().as_bytes()));
        written.map_err(|source| KubeconfigError { path: path.to_owned(), source })
    }
}
