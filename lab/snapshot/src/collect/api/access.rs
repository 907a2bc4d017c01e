//! The API's address and credentials: a kubeconfig, or the pod's service account.

use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::BASE64;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Map, Value};

use super::super::proxy::ContainedPath;
use super::super::{elsewhere, unread};
use super::{ApiError, causes};
use crate::Unread;

const CONNECT: Duration = Duration::from_secs(10);
/// A watch gets a bookmark each minute: a connection that is silent for so long is dead.
const SILENCE: Duration = Duration::from_secs(300);
/// The token's file, present in every pod that has a service account (kubernetes.io, "Accessing the Kubernetes API from
/// a Pod").
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

enum KubeconfigSource {
    /// The user's kubeconfig, which may name a credential plugin, and its name in the manifest.
    User(PathBuf, &'static str),
    /// The kubeconfig that the proxy's configuration names.
    Proxy(ContainedPath),
}

pub(in super::super) async fn connect(
    given: Option<&Path>,
    proxys: Option<ContainedPath>,
) -> Result<(Client, String), Unread> {
    let found = kubeconfig(given, proxys);
    let name = match &found {
        Some(KubeconfigSource::User(_, name)) => *name,
        Some(KubeconfigSource::Proxy(_)) => "the proxy's kubeconfig",
        None if Path::new(SERVICE_ACCOUNT).exists() => "the service account",
        None => return Err(unread("objects", ApiError::Nowhere)),
    };
    let failed = |why: String| unread("objects", ApiError::Access { name: name.to_owned(), why });
    let mut config = match found {
        None => Config::incluster().map_err(|error| failed(causes(&error)))?,
        Some(found) => {
            let kubeconfig = elsewhere("objects", move || load(found)).await?.map_err(failed)?;
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
            config.map_err(|error| failed(causes(&error)))?
        }
    };
    config.connect_timeout = Some(CONNECT);
    config.read_timeout.get_or_insert(SILENCE);
    // Retries would exceed the deadline.
    config.default_retry = false;
    let client = Client::try_from(config).map_err(|error| failed(causes(&error)))?;
    Ok((client, name.to_owned()))
}

fn kubeconfig(given: Option<&Path>, proxys: Option<ContainedPath>) -> Option<KubeconfigSource> {
    if let Some(path) = given {
        return Some(KubeconfigSource::User(path.to_owned(), "--kubeconfig"));
    }
    // kubectl merges a list of files; this program uses the first existing one.
    let environment = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
    if let Some(path) = environment.iter().flat_map(std::env::split_paths).find(|path| path.exists()) {
        return Some(KubeconfigSource::User(path, "$KUBECONFIG"));
    }
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config"));
    if let Some(path) = home.filter(|path| path.exists()) {
        return Some(KubeconfigSource::User(path, "~/.kube/config"));
    }
    proxys.map(KubeconfigSource::Proxy)
}

fn load(found: KubeconfigSource) -> Result<Kubeconfig, String> {
    match found {
        KubeconfigSource::User(path, _) => Kubeconfig::read_from(path).map_err(|error| causes(&error)),
        KubeconfigSource::Proxy(inside) => {
            let text = inside.read().map_err(|error| error.to_string())?;
            let mut value: Value = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
            settle(&mut value, &inside).map_err(|(path, error)| format!("cannot read {path}: {error}"))?;
            Kubeconfig::from_yaml(&value.to_string()).map_err(|error| causes(&error))
        }
    }
}

/// Replaces the files that the proxy's kubeconfig names by their contents, and removes its credential plugins. A
/// container can write that kubeconfig: paths are resolved within the container, and no program runs, so root reads and
/// runs no file of the node.
fn settle(kubeconfig: &mut Value, inside: &ContainedPath) -> Result<(), (String, std::io::Error)> {
    for cluster in named(kubeconfig, "clusters", "cluster") {
        inline(cluster, "certificate-authority", "certificate-authority-data", inside, |text| {
            BASE64.encode(text.as_bytes())
        })?;
    }
    for user in named(kubeconfig, "users", "user") {
        user.remove("exec");
        user.remove("auth-provider");
        inline(user, "tokenFile", "token", inside, |text| text.trim().to_owned())?;
        for name in ["client-certificate", "client-key"] {
            inline(user, name, &format!("{name}-data"), inside, |text| BASE64.encode(text.as_bytes()))?;
        }
    }
    Ok(())
}

fn named<'a>(kubeconfig: &'a mut Value, list: &str, key: &'a str) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let items = kubeconfig.get_mut(list).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(move |item| item.get_mut(key)?.as_object_mut())
}

fn inline(
    fields: &mut Map<String, Value>,
    file: &str,
    data: &str,
    inside: &ContainedPath,
    encode: impl FnOnce(&str) -> String,
) -> Result<(), (String, std::io::Error)> {
    let Some(Value::String(path)) = fields.remove(file) else { return Ok(()) };
    // A token's file wins over a token, data over a certificate's file (kubernetes.io, "client-go credential plugins").
    if path.is_empty() || data != "token" && fields.contains_key(data) {
        return Ok(());
    }
    let text = inside.beside(&path).read().map_err(|error| (path, error))?;
    fields.insert(data.to_owned(), encode(&text).into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_kubeconfig_names_is_looked_up_in_its_container() {
        let outer = tempfile::tempdir().unwrap();
        fs::write(outer.path().join("token"), "the node's\n").unwrap();
        let root = outer.path().join("container");
        fs::create_dir_all(root.join("conf")).unwrap();
        fs::write(root.join("token"), "the pod's\n").unwrap();
        symlink("/token", root.join("conf/link")).unwrap();
        symlink("../../token", root.join("conf/climbing")).unwrap();
        fs::write(root.join("conf/ca.crt"), "PEM").unwrap();
        let inside = ContainedPath::new(&root, "/conf/kubeconfig");
        for path in ["/token", "/conf/link", "link", "climbing", "../../../token"] {
            let mut kubeconfig = json!({
                "clusters": [{ "name": "a", "cluster": { "certificate-authority": "ca.crt", "server": "https://x" } }],
                "users": [{ "name": "a", "user": { "tokenFile": path, "exec": { "command": "/bin/evil" } } }],
            });
            settle(&mut kubeconfig, &inside).unwrap();
            assert_eq!(kubeconfig["users"][0]["user"], json!({ "token": "the pod's" }), "{path}");
            let cluster = json!({ "certificate-authority-data": BASE64.encode(b"PEM"), "server": "https://x" });
            assert_eq!(kubeconfig["clusters"][0]["cluster"], cluster);
        }
        let mut missing = json!({ "users": [{ "user": { "client-key": "/proc/nowhere" } }] });
        assert_eq!(settle(&mut missing, &inside).unwrap_err().0, "/proc/nowhere");
    }
}
