use std::net::{Ipv4Addr, SocketAddr};

use serde::Deserialize;

pub(in crate::scenario::run) const HEALTH: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10_256);

/// `ready:` proves that a proxy is healthy.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ReadyFile")]
pub enum Ready {
    /// A GET that returns 200.
    Url { address: SocketAddr, path: String },
    /// A command on the node with exit status 0.
    Command(Vec<String>),
    /// No check: the marker suffices.
    Marker,
}

impl Default for Ready {
    fn default() -> Self {
        Ready::Url { address: HEALTH, path: "/healthz".to_owned() }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "ready: expected `marker`, `{url: http://127.0.0.1:PORT/PATH}` or `{command: [...]}`")]
enum ReadyFile {
    Word(String),
    Map(ReadyMap),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadyMap {
    url: Option<String>,
    command: Option<Vec<String>>,
}

impl TryFrom<ReadyFile> for Ready {
    type Error = String;

    fn try_from(written: ReadyFile) -> Result<Ready, String> {
        match written {
            ReadyFile::Word(word) if word == "marker" => Ok(Ready::Marker),
            ReadyFile::Map(ReadyMap { url: Some(url), command: None }) => {
                let (address, path) = url_parts(&url).ok_or_else(|| {
                    format!("ready.url: {url}: expected http://, an address with a port, and a path, such as http://127.0.0.1:10256/healthz")
                })?;
                Ok(Ready::Url { address, path })
            }
            ReadyFile::Map(ReadyMap { url: None, command: Some(command) }) => Ok(Ready::Command(command)),
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
    fn ready_parses_a_word_a_url_or_a_command() {
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
