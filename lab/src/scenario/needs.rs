//! What a scenario needs that not every machine has.

use std::fmt;

use serde::Deserialize;

use crate::netns::sockets;

/// One of `needs:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Need {
    /// A clock that skips what nobody waits for, so that hours pass in a moment: an emulated machine whose time is a
    /// count of instructions.
    VirtualTime,
    /// A kernel that speaks SCTP.
    Sctp,
}

/// Set where time is virtual, by whoever starts the lab there.
pub const VIRTUAL_TIME: &str = "SVCLAB_VIRTUAL_TIME";

impl Need {
    /// Why it is not there; `None` if it is.
    pub fn missing(self) -> Option<&'static str> {
        match self {
            Need::VirtualTime => {
                let here = std::env::var_os(VIRTUAL_TIME).is_some_and(|value| value == "1");
                (!here).then_some(
                    "this machine's clock cannot be advanced: `--deterministic` runs it where time is virtual",
                )
            }
            Need::Sctp => (!sockets::has_sctp()).then_some("this kernel has no SCTP (CONFIG_IP_SCTP, module sctp)"),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::VirtualTime => f.write_str("virtualTime"),
            Need::Sctp => f.write_str("sctp"),
        }
    }
}
