//! Sets and maps.

use std::sync::Arc;

use super::{Compiler, Missing};
use crate::nft::{Element, ElementKey, ElementValue, Expr, Holds, Kind, Set, Type, Verdict};
use crate::program::nft::{CompiledSet, Content, Entry, Goes};

/// Why an element cannot be compiled.
enum Wrong {
    Missing(Missing),
    NotModelled(Arc<str>),
}

fn kind(part: &Type) -> Option<Kind> {
    match part {
        Type::Named(name) => Kind::named(name),
        Type::Of(expr) => expr.kind(),
    }
}

impl Compiler<'_> {
    pub(super) fn named_set(&self, set: &Set) -> Result<CompiledSet, Missing> {
        let has = |flag: &str| set.flags.iter().any(|one| one == flag);
        let name = (self.table.family, self.table.name.clone(), set.name.clone());
        let mut compiled = CompiledSet {
            // Without the flag as well: older kernels do not print it.
            dynamic: (has("dynamic") || has("timeout")).then_some(name),
            timeout: set.timeout,
            size: set.size.and_then(|size| usize::try_from(size).ok()),
            ..CompiledSet::default()
        };
        let kinds: Option<Vec<Kind>> = set.key.iter().map(kind).collect();
        let data: Option<Vec<Kind>> = match &set.holds {
            Holds::Data(parts) => parts.iter().map(kind).collect(),
            Holds::Keys | Holds::Verdicts => Some(Vec::new()),
        };
        let (Some(kinds), Some(data)) = (kinds, data) else {
            compiled.not_modelled = Some(format!("the type of the set {}", set.name).into());
            return Ok(compiled);
        };
        self.fill(&mut compiled, &set.elements, &kinds, Some(&data))?;
        Ok(compiled)
    }

    /// A set in braces; `data`: the kinds of a map's data, where those are known.
    pub(super) fn anonymous(
        &mut self,
        elements: &[Element],
        kinds: &[Kind],
        data: Option<&[Kind]>,
    ) -> Result<usize, Missing> {
        let mut compiled = CompiledSet::default();
        self.fill(&mut compiled, elements, kinds, data)?;
        self.sets.push(compiled);
        Ok(self.sets.len() - 1)
    }

    fn fill(
        &self,
        set: &mut CompiledSet,
        elements: &[Element],
        kinds: &[Kind],
        data: Option<&[Kind]>,
    ) -> Result<(), Missing> {
        for element in elements {
            match self.element(set, element, kinds, data) {
                Ok(()) => {}
                Err(Wrong::Missing(missing)) => return Err(missing),
                Err(Wrong::NotModelled(what)) => set.not_modelled = Some(what),
            }
        }
        Ok(())
    }

    fn element(
        &self,
        set: &mut CompiledSet,
        element: &Element,
        kinds: &[Kind],
        data: Option<&[Kind]>,
    ) -> Result<(), Wrong> {
        let unknown = || Wrong::NotModelled(format!("the element {element}").into());
        let content = match &element.value {
            ElementValue::None => Content::Nothing,
            ElementValue::Verdict(verdict) => Content::Verdict(self.goes(verdict).map_err(Wrong::Missing)?),
            ElementValue::Data(parts) => Content::Data(self.data(parts, data).ok_or_else(unknown)?),
        };
        let parts = match &element.key {
            ElementKey::Any => {
                set.any = Some(content);
                return Ok(());
            }
            ElementKey::Parts(parts) => parts,
        };
        let ranges = self.ranges(parts, kinds).ok_or_else(unknown)?;
        let expires = element.expires.or(element.timeout).or(set.timeout);
        let entry = Entry { content, expires };
        if ranges.iter().all(|(first, last)| first == last) {
            set.exact.insert(ranges.into_iter().map(|(first, _)| first).collect(), entry);
        } else {
            set.ranges.push((ranges, entry));
        }
        Ok(())
    }

    /// The range of each part.
    pub(super) fn ranges(&self, parts: &[Expr], kinds: &[Kind]) -> Option<Vec<(u128, u128)>> {
        if parts.len() != kinds.len() {
            return None;
        }
        let interface = |name: &str| self.interface(name);
        parts.iter().zip(kinds).map(|(part, kind)| kind.range(part, &interface)).collect()
    }

    /// Values of data; where their kinds are not known, an address, else a number.
    fn data(&self, parts: &[Expr], kinds: Option<&[Kind]>) -> Option<Vec<u128>> {
        let interface = |name: &str| self.interface(name);
        let guess = |part: &Expr| {
            [Kind::Ipv4, Kind::Ipv6, Kind::Integer(128)].into_iter().find_map(|kind| kind.range(part, &interface))
        };
        let single = |range: Option<(u128, u128)>| range.filter(|(first, last)| first == last).map(|(first, _)| first);
        match kinds {
            Some(kinds) if kinds.len() != parts.len() => None,
            Some(kinds) => parts.iter().zip(kinds).map(|(part, kind)| single(kind.range(part, &interface))).collect(),
            None => parts.iter().map(|part| single(guess(part))).collect(),
        }
    }

    pub(super) fn goes(&self, verdict: &Verdict) -> Result<Goes, Missing> {
        let place = |chain: &str| self.chains.get(chain).copied().ok_or_else(|| self.missing("chain", chain));
        Ok(match verdict {
            Verdict::Accept => Goes::Accept,
            Verdict::Drop => Goes::Drop,
            Verdict::Return => Goes::Return,
            Verdict::Continue => Goes::Continue,
            Verdict::Jump(chain) => Goes::Jump(place(chain)?),
            Verdict::Goto(chain) => Goes::Goto(place(chain)?),
        })
    }

    /// The place of a set: named, or in braces.
    pub(super) fn set(
        &mut self,
        set: &Expr,
        kinds: Option<&[Kind]>,
        data: Option<&[Kind]>,
    ) -> Result<Option<usize>, Missing> {
        match (set, kinds) {
            (Expr::SetRef(name), _) => {
                self.named.get(name.as_str()).copied().map(Some).ok_or_else(|| self.missing("set", name))
            }
            (Expr::Elements(elements), Some(kinds)) => self.anonymous(elements, kinds, data).map(Some),
            _ => Ok(None),
        }
    }
}
