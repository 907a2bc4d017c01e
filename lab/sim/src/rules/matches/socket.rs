//! `socket` (net/netfilter/xt_socket.c).

use std::fmt;

use super::super::error::ParseResult;
use super::super::tokens::OptionReader;

/// `-m socket`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketMatch {
    /// Only transparent sockets.
    pub transparent: bool,
    /// Sockets on wildcard addresses match, too.
    pub no_wildcard: bool,
    /// Copies the socket's mark to the packet.
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
