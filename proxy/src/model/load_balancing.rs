use std::fmt;
use std::str::FromStr;

/// How a new connection's endpoint is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadBalancing {
    /// At random, each endpoint with the same probability, as with kube-proxy.
    #[default]
    Random,
    /// By a hash of the client's address, the same on every node.
    Maglev,
    /// By a hash of the client's address and port, the same on every node.
    MaglevPort,
}

impl LoadBalancing {
    pub const ALL: [LoadBalancing; 3] = [LoadBalancing::Random, LoadBalancing::Maglev, LoadBalancing::MaglevPort];

    pub fn name(self) -> &'static str {
        match self {
            LoadBalancing::Random => "random",
            LoadBalancing::Maglev => "maglev",
            LoadBalancing::MaglevPort => "maglev-port",
        }
    }
}

impl FromStr for LoadBalancing {
    type Err = String;

    fn from_str(text: &str) -> Result<LoadBalancing, String> {
        let found = LoadBalancing::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| format!("{text:?} is none of random, maglev and maglev-port"))
    }
}

impl fmt::Display for LoadBalancing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_one_of_three_words() {
        for one in LoadBalancing::ALL {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        for wrong in ["", "Maglev", "maglev_port", "hash"] {
            let problem = wrong.parse::<LoadBalancing>().unwrap_err();
            assert_eq!(problem, format!("{wrong:?} is none of random, maglev and maglev-port"));
        }
    }
}
