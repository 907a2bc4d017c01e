//! Bearer tokens; each gives all rights.

use std::collections::BTreeMap;

use crate::objects::mix;

/// The bearer tokens that the server accepts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    tokens: BTreeMap<String, String>,
}

impl Tokens {
    /// Derives one token per client from the seed. The tokens prevent mix-ups, not attacks.
    pub fn new(seed: u64, clients: impl IntoIterator<Item = String>) -> Self {
        let token = |client: &str| {
            format!("{:016x}{:016x}", mix(seed, &format!("token/{client}")), mix(!seed, &format!("token/{client}")))
        };
        let tokens = clients.into_iter().map(|client| (client.clone(), token(&client))).collect();
        Tokens { tokens }
    }

    /// The token of one client.
    pub fn of(&self, client: &str) -> Option<&str> {
        self.tokens.get(client).map(String::as_str)
    }

    /// Client names with their tokens.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tokens.iter().map(|(client, token)| (client.as_str(), token.as_str()))
    }

    pub(super) fn allow(&self, header: Option<&str>) -> bool {
        let (scheme, token) = header.and_then(|header| header.split_once(' ')).unwrap_or_default();
        scheme.eq_ignore_ascii_case("bearer") && self.tokens.values().any(|known| known == token.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_tokens_are_accepted() {
        let tokens = Tokens::new(1, ["node-a".to_owned(), "node-b".to_owned()]);
        let token = tokens.of("node-a").unwrap();
        assert_ne!(Some(token), tokens.of("node-b"));
        assert!(tokens.allow(Some(&format!("Bearer {token}"))));
        for header in [None, Some("Bearer x"), Some("Bearer "), Some(token), Some("")] {
            assert!(!tokens.allow(header), "{header:?}");
        }
    }
}
