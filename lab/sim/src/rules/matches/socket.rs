//! `socket`: whether a socket of this machine is open for the packet (net/netfilter/xt_socket.c).

use std::fmt;

use super::super::error::Part;
use super::super::tokens::Words;

/// The match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Socket {
    /// Only sockets that may have addresses of others.
    pub transparent: bool,
    /// Sockets at all addresses count, too.
    pub no_wildcard: bool,
    /// The packet gets the socket's mark.
    pub restore_mark: bool,
}

impl Socket {
    pub(crate) fn read(words: &mut Words<'_>) -> Part<Socket> {
        let mut this = Socket::default();
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

impl fmt::Display for Socket {
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
