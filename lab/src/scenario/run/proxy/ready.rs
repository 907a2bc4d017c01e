//! How a proxy says that it is well.

use std::net::{Ipv4Addr, SocketAddr};

use serde::Deserialize;

/// kube-proxy's own health port.
pub(in crate::scenario::run) const HEALTH: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10_256);

/// `ready:`, what is asked on each node before the lab's marker is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub enum Ready {
    /// An HTTP GET that is answered with 200.
    Url {
        /// Where to.
        address: SocketAddr,
        /// The path, with its slash.
        path: String,
    },
    /// A command, run on the node, that ends with status 0.
    Command(Vec<String>),
    /// Nothing: the marker alone shows that it works.
    Marker,
}

impl Default for Ready {
    fn default() -> Self {
        Ready::Url { address: HEALTH, path: "/healthz".to_owned() }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "ready: expected `marker`, `{url: http://127.0.0.1:PORT/PATH}` or `{command: [...]}`")]
enum Written {
    Word(String),
    Map(Map),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Map {
    url: Option<String>,
    command: Option<Vec<String>>,
}

impl TryFrom<Written> for Ready {
    type Error = String;

    fn try_from(written: Written) -> Result<Ready, String> {
        match written {
            Written::Word(word) if word == "marker" => Ok(Ready::Marker),
            Written::Map(Map { url: Some(url), command: None }) => {
                let (address, path) = url_parts(&url).ok_or_else(|| {
                    format!("ready.url: {url}: expected http://, an address with a port, and a path, such as http://127.0.0.1:10256/healthz")
                })?;
                Ok(Ready::Url { address, path })
            }
            Written::Map(Map { url: None, command: Some(command) }) => Ok(Ready::Command(command)),
            _ => Err("ready: expected `marker`, `{url: http://127.0.0.1:PORT/PATH}` or `{command: [...]}`".to_owned()),
        }
    }
}

fn url_parts(url: &str) -> Option<(SocketAddr, String)> {
    let rest = url.strip_prefix("http://")?;
    let (address, path) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
    Some((address.parse().ok()?, path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_being_ready() {
        let ready = |text: &str| serde_saphyr::from_str::<Ready>(text).map_err(|error| error.to_string());
        let url = |address: &str, path: &str| Ready::Url { address: address.parse().unwrap(), path: path.to_owned() };
        assert_eq!(ready("marker"), Ok(Ready::Marker));
        assert_eq!(ready("{url: 'http://127.0.0.1:20244/healthz'}"), Ok(url("127.0.0.1:20244", "/healthz")));
        assert_eq!(ready("{url: 'http://[::1]:80'}"), Ok(url("[::1]:80", "/")));
        assert_eq!(
            ready("{command: [test, -e, /run/ready]}").unwrap(),
            Ready::Command(["test", "-e", "/run/ready"].map(str::to_owned).to_vec(),)
        );
        for (text, says) in [
            ("later", "expected `marker`"),
            ("{url: 'https://127.0.0.1/'}", "ready.url: https://127.0.0.1/"),
            ("{url: 'http://localhost/'}", "expected http://, an address with a port"),
            ("{url: 'http://127.0.0.1:1/', command: [x]}", "expected `marker`"),
            ("{port: 1}", "expected `marker`"),
        ] {
            let error = ready(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
