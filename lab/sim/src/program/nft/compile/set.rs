use std::sync::Arc;

use super::{Compiler, MissingReference};
use crate::nft::{DataType, DeclaredType, Element, ElementKey, ElementValue, Expr, NftVerdict, Set, SetData};
use crate::program::nft::{CompiledSet, CompiledVerdict, EntryContent, SetEntry};

enum ElementError {
    Missing(MissingReference),
    NotModelled(Arc<str>),
}

fn kind(part: &DeclaredType) -> Option<DataType> {
    match part {
        DeclaredType::Named(name) => DataType::named(name),
        DeclaredType::Of(expr) => expr.kind(),
    }
}

impl Compiler<'_> {
    pub(super) fn named_set(&mut self, set: &Set) -> Result<CompiledSet, MissingReference> {
        let name = (self.table.family, self.table.name.clone(), set.name.clone());
        let mut compiled = CompiledSet {
            name: Some(name),
            checks: self.checks(&set.statements)?,
            timeout: set.timeout,
            size: set.size.and_then(|size| usize::try_from(size).ok()),
            ..CompiledSet::default()
        };
        let kinds: Option<Vec<DataType>> = set.key.iter().map(kind).collect();
        let data: Option<Vec<DataType>> = match &set.holds {
            SetData::Data(parts) => parts.iter().map(kind).collect(),
            SetData::Keys | SetData::Verdicts | SetData::Counters => Some(Vec::new()),
        };
        let (Some(kinds), Some(data)) = (kinds, data) else {
            compiled.not_modelled = Some(format!("the type of the set {}", set.name).into());
            return Ok(compiled);
        };
        self.fill(&mut compiled, &set.elements, &kinds, Some(&data))?;
        Ok(compiled)
    }

    /// `data`: a map's data types.
    pub(super) fn anonymous(
        &mut self,
        elements: &[Element],
        kinds: &[DataType],
        data: Option<&[DataType]>,
    ) -> Result<usize, MissingReference> {
        let mut compiled = CompiledSet::default();
        self.fill(&mut compiled, elements, kinds, data)?;
        self.sets.push(compiled);
        Ok(self.sets.len() - 1)
    }

    fn fill(
        &mut self,
        set: &mut CompiledSet,
        elements: &[Element],
        kinds: &[DataType],
        data: Option<&[DataType]>,
    ) -> Result<(), MissingReference> {
        for (at, element) in elements.iter().enumerate() {
            match self.element(set, (at, element), kinds, data) {
                Ok(()) => {}
                Err(ElementError::Missing(missing)) => return Err(missing),
                Err(ElementError::NotModelled(what)) => set.not_modelled = Some(what),
            }
        }
        Ok(())
    }

    fn element(
        &mut self,
        set: &mut CompiledSet,
        (at, element): (usize, &Element),
        kinds: &[DataType],
        data: Option<&[DataType]>,
    ) -> Result<(), ElementError> {
        let unknown = || ElementError::NotModelled(format!("the element {element}").into());
        let content = match &element.value {
            ElementValue::None => EntryContent::Nothing,
            ElementValue::Counter(name) if self.table.counters.iter().any(|counter| counter.name == *name) => {
                EntryContent::Nothing
            }
            ElementValue::Counter(name) => return Err(ElementError::Missing(self.missing("counter", name))),
            ElementValue::Verdict(verdict) => EntryContent::Verdict(self.goes(verdict).map_err(ElementError::Missing)?),
            ElementValue::Data(parts) => EntryContent::Data(self.data(parts, data).ok_or_else(unknown)?),
        };
        let expires = element.expires.or(element.timeout).or(set.timeout);
        let checks = self.checks(&element.statements).map_err(ElementError::Missing)?;
        let entry = SetEntry { at: Some(at), content, expires, checks };
        let parts = match &element.key {
            ElementKey::Any => {
                set.any = Some(entry);
                return Ok(());
            }
            ElementKey::Parts(parts) => parts,
        };
        let ranges = self.ranges(parts, kinds).ok_or_else(unknown)?;
        if ranges.iter().all(|(first, last)| first == last) {
            set.exact.insert(ranges.into_iter().map(|(first, _)| first).collect(), entry);
        } else {
            set.ranges.push((ranges, entry));
        }
        Ok(())
    }

    pub(super) fn ranges(&self, parts: &[Expr], kinds: &[DataType]) -> Option<Vec<(u128, u128)>> {
        if parts.len() != kinds.len() {
            return None;
        }
        let interface = |name: &str| self.interface(name);
        parts.iter().zip(kinds).map(|(part, kind)| kind.range(part, &interface)).collect()
    }

    fn data(&self, parts: &[Expr], kinds: Option<&[DataType]>) -> Option<Vec<u128>> {
        let interface = |name: &str| self.interface(name);
        let guess = |part: &Expr| {
            [DataType::Ipv4, DataType::Ipv6, DataType::Integer(128)]
                .into_iter()
                .find_map(|kind| kind.range(part, &interface))
        };
        let single = |range: Option<(u128, u128)>| range.filter(|(first, last)| first == last).map(|(first, _)| first);
        match kinds {
            Some(kinds) if kinds.len() != parts.len() => None,
            Some(kinds) => parts.iter().zip(kinds).map(|(part, kind)| single(kind.range(part, &interface))).collect(),
            None => parts.iter().map(|part| single(guess(part))).collect(),
        }
    }

    pub(super) fn goes(&self, verdict: &NftVerdict) -> Result<CompiledVerdict, MissingReference> {
        let place = |chain: &str| self.chains.get(chain).copied().ok_or_else(|| self.missing("chain", chain));
        Ok(match verdict {
            NftVerdict::Accept => CompiledVerdict::Accept,
            NftVerdict::Drop => CompiledVerdict::Drop,
            NftVerdict::Return => CompiledVerdict::Return,
            NftVerdict::Continue => CompiledVerdict::Continue,
            NftVerdict::Jump(chain) => CompiledVerdict::Jump(place(chain)?),
            NftVerdict::Goto(chain) => CompiledVerdict::Goto(place(chain)?),
        })
    }

    pub(super) fn set(
        &mut self,
        set: &Expr,
        kinds: Option<&[DataType]>,
        data: Option<&[DataType]>,
    ) -> Result<Option<usize>, MissingReference> {
        match (set, kinds) {
            (Expr::SetRef(name), _) => {
                self.named.get(name.as_str()).copied().map(Some).ok_or_else(|| self.missing("set", name))
            }
            (Expr::Elements(elements), Some(kinds)) => self.anonymous(elements, kinds, data).map(Some),
            _ => Ok(None),
        }
    }
}
