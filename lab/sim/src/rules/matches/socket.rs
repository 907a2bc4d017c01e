//! `socket`: whether a socket of this machine is open for the packet (net/netfilter/xt_socket.c).

use std::fmt;

use super::super::error::ParseResult;
use super::super::tokens::OptionReader;

/// The match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketMatch {
    /// Only sockets that may have addresses of others.
    pub transparent: bool,
    /// Sockets at all addresses count, too.
    pub no_wildcard: bool,
    /// The packet gets the socket's mark.
    pub restore_mark: bool,
}

impl SocketMatch {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<SocketMatch> {
        let mut this = SocketMatch::default();
        while let Some(option) =
            words.option(|word| matches!(word, "--transparent" | "--nowildcard" | "--restore-skmark"))
        {
            words.plain()?;
            match option {
                "--transparent" => this.transparent = true,
                "--nowildcard" => this.no_wildcard = true,
                _ => this.restore_mark = true,
            }
        }
        Ok(this)
    }
}

impl fmt::Display for SocketMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (set, name) in [
            (self.transparent, " --transparent"),
            (self.no_wildcard, " --nowildcard"),
            (self.restore_mark, " --restore-skmark"),
        ] {
            f.write_str(if set { name } else { "" })?;
        }
        Ok(())
    }
}
