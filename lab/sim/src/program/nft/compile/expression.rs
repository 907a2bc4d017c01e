use super::{Compiler, MissingReference};
use crate::nft::selector::selector;
use crate::nft::{DataType, Expr, TableFamily};
use crate::program::nft::CompiledExpr;

impl Compiler<'_> {
    pub(super) fn key(&mut self, key: &Expr) -> Result<(Vec<CompiledExpr>, Option<Vec<DataType>>), MissingReference> {
        let parts = key.parts();
        let loads: Result<Vec<CompiledExpr>, MissingReference> =
            parts.iter().map(|part| self.load(part, None)).collect();
        Ok((loads?, parts.iter().map(Expr::kind).collect()))
    }

    /// `wanted` is the type of literals.
    pub(super) fn load(&mut self, expr: &Expr, wanted: Option<DataType>) -> Result<CompiledExpr, MissingReference> {
        let unknown = || CompiledExpr::NotModelled(expr.to_string().into());
        Ok(match expr {
            Expr::Numgen { modulus: 0, .. } | Expr::Hash { modulus: 0, .. } => unknown(),
            Expr::Numgen { random: true, modulus, offset } => {
                CompiledExpr::Random { modulus: *modulus, offset: *offset }
            }
            Expr::Numgen { random: false, modulus, offset } => {
                self.counters += 1;
                CompiledExpr::Rotation { modulus: *modulus, offset: *offset, counter: self.counters - 1 }
            }
            Expr::Hash { key, modulus, seed, offset } => {
                let key = match key {
                    None => None,
                    Some(key) => {
                        let (loads, kinds) = self.key(key)?;
                        let Some(kinds) = kinds else { return Ok(unknown()) };
                        Some(loads.into_iter().zip(kinds).collect())
                    }
                };
                CompiledExpr::Hash { key, modulus: *modulus, seed: *seed, offset: *offset }
            }
            Expr::Binary(operation, left, right) => {
                let kind = expr.kind().or(wanted);
                let (left, right) = (self.load(left, kind)?, self.load(right, kind)?);
                let bits = kind.map_or(128, DataType::bits);
                CompiledExpr::Binary(*operation, Box::new(left), Box::new(right), bits)
            }
            Expr::Map { key, map } => {
                let (loads, kinds) = self.key(key)?;
                let data = wanted.map(|wanted| vec![wanted]);
                match self.set(map, kinds.as_deref(), data.as_deref())? {
                    Some(set) => CompiledExpr::Map { key: loads, set },
                    None => unknown(),
                }
            }
            literal if literal.kind().is_none() => {
                let interface = |name: &str| self.interface(name);
                let range = wanted.and_then(|kind| kind.range(literal, &interface));
                match range {
                    Some((first, last)) if first == last => CompiledExpr::Constant(first),
                    _ => unknown(),
                }
            }
            other => {
                let field = selector(other).and_then(|(_, field)| field);
                // Rules with `ct` make the kernel track frames on bridges.
                let is_modelled = self.table.family != TableFamily::Bridge || !matches!(other, Expr::Ct { .. });
                field.filter(|_| is_modelled).map_or_else(unknown, CompiledExpr::Field)
            }
        })
    }
}
