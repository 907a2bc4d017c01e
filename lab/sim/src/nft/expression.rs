use super::selector::selector;
use super::{DataType, Element};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Binary {
    And,
    Or,
    Xor,
    Left,
    Right,
}

pub(super) const BINARIES: [(&str, Binary); 5] =
    [("&", Binary::And), ("|", Binary::Or), ("^", Binary::Xor), ("<<", Binary::Left), (">>", Binary::Right)];

impl Binary {
    pub(crate) fn apply(self, left: u128, right: u128) -> u128 {
        let bits = u32::try_from(right).unwrap_or(u32::MAX);
        match self {
            Binary::And => left & right,
            Binary::Or => left | right,
            Binary::Xor => left ^ right,
            Binary::Left => left.checked_shl(bits).unwrap_or(0),
            Binary::Right => left.checked_shr(bits).unwrap_or(0),
        }
    }
}

/// An expression; literals have the data type of their comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Expr {
    /// A number, address or name.
    Word(String),
    /// A literal with a prefix length.
    Prefix(Box<Expr>, u8),
    Range(Box<Expr>, Box<Expr>),
    /// `established,related`.
    Flags(Vec<Expr>),
    /// `ip daddr . tcp dport`.
    Concat(Vec<Expr>),
    /// Anonymous set or map.
    Elements(Vec<Element>),
    /// `@name`.
    SetRef(String),
    /// `ip daddr`.
    Payload {
        protocol: String,
        field: String,
    },
    /// `@th,16,16`.
    Raw {
        /// `ll`, `nh` or `th`.
        base: String,
        /// In bits.
        offset: u32,
        /// In bits.
        length: u32,
    },
    /// `meta mark`.
    Meta(String),
    /// `ct state`, `ct original ip daddr`.
    Ct {
        /// `original`, `reply`.
        direction: Option<String>,
        key: String,
    },
    /// `socket transparent`.
    Socket(String),
    /// `fib daddr . iif type`.
    Fib {
        /// `saddr`, `daddr`, `mark`, `iif`, `oif`.
        flags: Vec<String>,
        /// `type`, `oif`, `oifname`.
        result: String,
    },
    /// `numgen random mod 3 offset 1`.
    Numgen {
        /// `random`, otherwise `inc`.
        random: bool,
        modulus: u32,
        offset: u32,
    },
    /// `jhash ip saddr mod 2 seed 0x1`; without key `symhash`.
    Hash {
        key: Option<Box<Expr>>,
        modulus: u32,
        /// `None`: the kernel's random seed.
        seed: Option<u32>,
        offset: u32,
    },
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `KEY map MAP`.
    Map {
        key: Box<Expr>,
        /// [`Expr::Elements`] or [`Expr::SetRef`].
        map: Box<Expr>,
    },
    /// Unmodelled text.
    Unknown(String),
}

impl Expr {
    /// Returns a concatenation's parts; other expressions have one part.
    #[must_use]
    pub fn parts(&self) -> &[Expr] {
        match self {
            Expr::Concat(parts) => parts,
            one => std::slice::from_ref(one),
        }
    }

    /// Returns the data type; `None` for literals.
    #[must_use]
    pub fn kind(&self) -> Option<DataType> {
        match self {
            Expr::Numgen { .. } | Expr::Hash { .. } => Some(DataType::Integer(32)),
            Expr::Binary(_, left, _) => left.kind(),
            other => selector(other).map(|(kind, _)| kind),
        }
    }
}
