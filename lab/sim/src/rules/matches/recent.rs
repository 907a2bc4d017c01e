//! `recent` (net/netfilter/xt_recent.c).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::error::{ParseResult, Problem};
use super::super::tokens::OptionReader;
use crate::protocol::Family;

/// Action on the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecentAction {
    /// Adds the address; always matches.
    Set,
    /// Matches listed addresses.
    Check,
    /// Like `Check`, but renews the address.
    Update,
    /// Like `Check`, but removes the address.
    Remove,
}

/// `-m recent`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Recent {
    pub action: RecentAction,
    /// Inverted by `!`.
    pub not: bool,
    /// Maximum age (`--seconds`).
    pub seconds: Option<u32>,
    /// Removes entries older than `seconds`.
    pub reap: bool,
    /// Minimum number of packets (`--hitcount`).
    pub hitcount: Option<u32>,
    /// The list's name; both families share lists.
    pub list: String,
    pub mask: IpAddr,
    /// `--rdest`.
    pub destination: bool,
}

fn all_bits(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::BROADCAST.into(),
        Family::V6 => Ipv6Addr::from_bits(u128::MAX).into(),
    }
}

impl Recent {
    pub(crate) fn read(words: &mut OptionReader<'_>, family: Family) -> ParseResult<Recent> {
        let mut action = None;
        let mut this = Recent {
            action: RecentAction::Set,
            not: false,
            seconds: None,
            reap: false,
            hitcount: None,
            list: "DEFAULT".to_owned(),
            mask: all_bits(family),
            destination: false,
        };
        let known = |word: &str| {
            let all = "--set --rcheck --update --remove --seconds --reap --hitcount --name --mask --rsource --rdest";
            all.split(' ').any(|option| option == word)
        };
        while let Some(option) = words.option(known) {
            match option {
                "--set" | "--rcheck" | "--update" | "--remove" => {
                    this.not = words.negated();
                    action = Some(match option {
                        "--set" => RecentAction::Set,
                        "--rcheck" => RecentAction::Check,
                        "--update" => RecentAction::Update,
                        _ => RecentAction::Remove,
                    });
                }
                _ => words.plain()?,
            }
            match option {
                "--seconds" => this.seconds = Some(words.parse("a number of seconds", |text| text.parse().ok())?),
                "--reap" => this.reap = true,
                "--hitcount" => this.hitcount = Some(words.parse("a number of packets", |text| text.parse().ok())?),
                "--name" => this.list = words.value()?.to_owned(),
                "--mask" => {
                    let mask = |text: &str| text.parse().ok().filter(|mask| Family::of(*mask) == family);
                    this.mask = words.parse("a mask of this family", mask)?;
                }
                "--rsource" => this.destination = false,
                "--rdest" => this.destination = true,
                _ => {}
            }
        }
        let of = || "match recent".to_owned();
        this.action = action.ok_or(Problem::Missing { of: of(), what: "--set, --rcheck, --update or --remove" })?;
        // recent_mt_check refuses `--reap` alone.
        if this.reap && this.seconds.is_none() {
            return Err(Problem::Missing { of: of(), what: "--seconds with --reap" });
        }
        let asks = matches!(this.action, RecentAction::Check | RecentAction::Update);
        if !asks && (this.seconds.is_some() || this.hitcount.is_some()) {
            return Err(Problem::Impossible("--seconds and --hitcount go with --rcheck and --update".to_owned()));
        }
        Ok(this)
    }
}

impl fmt::Display for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            RecentAction::Set => "--set",
            RecentAction::Check => "--rcheck",
            RecentAction::Update => "--update",
            RecentAction::Remove => "--remove",
        };
        write!(f, "{} {action}", if self.not { " !" } else { "" })?;
        if let Some(seconds) = self.seconds {
            write!(f, " --seconds {seconds}")?;
        }
        f.write_str(if self.reap { " --reap" } else { "" })?;
        if let Some(hitcount) = self.hitcount {
            write!(f, " --hitcount {hitcount}")?;
        }
        let side = if self.destination { "--rdest" } else { "--rsource" };
        write!(f, " --name {} --mask {} {side}", self.list, self.mask)
    }
}
