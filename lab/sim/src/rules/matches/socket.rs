//! `socket` (net/netfilter/xt_socket.c).

use std::fmt;

use super::super::error::ParseResult;
use super::super::options;
use super::super::tokens::OptionReader;

/// `-m socket`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketMatch {
    /// Matches only transparent sockets.
    pub transparent: bool,
    /// Wildcard sockets match, too.
    pub no_wildcard: bool,
    /// Copies the socket's mark to the packet.
    pub restore_mark: bool,
}

impl SocketMatch {
    pub(crate) fn read(words: &mut OptionReader<'_>) -> ParseResult<SocketMatch> {
        let mut this = SocketMatch::default();
        words.flags(&mut [
            ("--transparent", &mut this.transparent),
            ("--nowildcard", &mut this.no_wildcard),
            ("--restore-skmark", &mut this.restore_mark),
        ])?;
        Ok(this)
    }
}

impl fmt::Display for SocketMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [
            ("--transparent", self.transparent),
            ("--nowildcard", self.no_wildcard),
            ("--restore-skmark", self.restore_mark),
        ];
        options::print_flags(f, &flags)
    }
}
