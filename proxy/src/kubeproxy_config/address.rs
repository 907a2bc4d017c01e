use std::net::SocketAddr;

use crate::model::parse_ip;

/// Like kube-proxy's `AppendPortIfNeeded` (pkg/proxy/util/utils.go): leaves other texts, such as `[fd00::1]`, to
/// validation.
pub fn with_port(text: &str, port: u16) -> String {
    parse_ip(text).map_or_else(|| text.to_owned(), |address| SocketAddr::new(address, port).to_string())
}

pub fn bind_address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let host = host.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(host);
    let address = parse_ip(host).zip(port.parse().ok().filter(|port| *port != 0));
    let address = address.map(|(ip, port)| SocketAddr::new(ip, port));
    address.map(Some).ok_or_else(|| format!("{text:?} is not an address and port such as 0.0.0.0:10256"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_port_is_appended() {
        for (text, expected) in [
            ("0.0.0.0", "0.0.0.0:7"),
            ("::1", "[::1]:7"),
            ("[::1]", "[::1]"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::]:80", "[::]:80"),
            ("host", "host"),
            ("", ""),
        ] {
            assert_eq!(with_port(text, 7), expected, "{text:?}");
        }
    }

    #[test]
    fn bind_addresses_need_a_port() {
        let ok = |text: &str| bind_address(text).unwrap().map(|address| address.to_string());
        assert_eq!(ok(""), None);
        assert_eq!(ok("0.0.0.0:10256").as_deref(), Some("0.0.0.0:10256"));
        assert_eq!(ok("[fd00::1]:1").as_deref(), Some("[fd00::1]:1"));
        for text in ["localhost:80", "0.0.0.0", "1.2.3.4:0", "1.2.3.4:65536", ":10256", "fd00::1", "[fd00:1::5]"] {
            assert!(bind_address(text).is_err(), "{text}");
        }
    }
}
