use std::sync::Arc;

use super::{Compiler, MissingReference};
use crate::nft::{DataType, Expr, NatKind, Relation, Rule, Statement, TableFamily};
use crate::program::nft::{
    ComparisonText, CompiledComparison, CompiledExpr, CompiledStatement, ElementChecks, Nat, NatOperand,
};
use crate::protocol::Family;
use crate::rules::nat::NatRange;
use crate::rules::target::RejectWith;

impl Compiler<'_> {
    pub(super) fn rule(&mut self, rule: &Rule) -> Result<Vec<CompiledStatement>, MissingReference> {
        let mut steps = Vec::with_capacity(rule.statements.len());
        for statement in &rule.statements {
            if let Some(step) = self.statement(statement)? {
                steps.push(step);
            }
        }
        Ok(steps)
    }

    fn statement(&mut self, statement: &Statement) -> Result<Option<CompiledStatement>, MissingReference> {
        let unknown = || CompiledStatement::NotModelled(statement.to_string().into());
        Ok(Some(match statement {
            Statement::Match { left, relation, right } => self.matching(left, *relation, right, statement)?,
            Statement::Verdict(verdict) => CompiledStatement::Verdict(self.goes(verdict)?),
            Statement::VerdictMap { key, map } => {
                let (key, kinds) = self.key(key)?;
                match self.set(map, kinds.as_deref(), None)? {
                    Some(set) => CompiledStatement::VerdictMap { key, set },
                    None => unknown(),
                }
            }
            // Only the look-up has an effect on the verdict.
            Statement::CountBy { key, map } => self.matching(key, Relation::Implicit, map, statement)?,
            Statement::Set { what, value } => {
                let value = self.load(value, Some(DataType::Mark))?;
                if matches!(what, Expr::Meta(_)) {
                    CompiledStatement::SetMark(value)
                } else {
                    CompiledStatement::SetConnectionMark(value)
                }
            }
            Statement::Element { operation, set, key, data, timeout, statements } => {
                let set = self.set(&Expr::SetRef(set.clone()), None, None)?;
                let (key, _) = self.key(key)?;
                let data = data.as_ref().map(|data| self.load(data, None)).transpose()?;
                let checks = self.checks(statements)?;
                match set {
                    Some(set) => {
                        CompiledStatement::Element { operation: *operation, key, data, set, timeout: *timeout, checks }
                    }
                    None => unknown(),
                }
            }
            Statement::Nat { kind, family, address, port, flags } => {
                let family = family.as_deref().map(|family| if family == "ip" { Family::V4 } else { Family::V6 });
                self.nat(*kind, family, address.as_ref(), port.as_ref(), flags)?
                    .map_or_else(unknown, CompiledStatement::Nat)
            }
            // The answer leaves by the bridge's port.
            Statement::Reject(_) if self.table.family == TableFamily::Bridge => unknown(),
            Statement::Reject(with) => match reject(with.as_ref()) {
                Some((v4, v6)) => CompiledStatement::Reject { v4, v6 },
                None => unknown(),
            },
            Statement::Notrack => CompiledStatement::Notrack,
            Statement::Limit { rate, per, burst, over } => {
                self.counters += 1;
                CompiledStatement::Limit {
                    rate: *rate,
                    per: *per,
                    burst: *burst,
                    over: *over,
                    counter: self.counters - 1,
                }
            }
            // As `connlimit`, for a single connection.
            Statement::ConnectionCount { count, over } => CompiledStatement::Constant((1 > *count) == *over),
            Statement::UnknownMatch { name, text } => {
                CompiledStatement::UnknownMatch { name: name.as_str().into(), text: text.as_str().into() }
            }
            Statement::NoEffect(_) => return Ok(None),
            Statement::Unknown(text) => CompiledStatement::NotModelled(text.as_str().into()),
        }))
    }

    /// Compiles the statements of an element.
    pub(super) fn checks(&mut self, statements: &[Statement]) -> Result<ElementChecks, MissingReference> {
        let mut checks = Vec::new();
        for statement in statements {
            checks.extend(self.statement(statement)?);
        }
        Ok((!checks.is_empty()).then(|| checks.into()))
    }

    fn matching(
        &mut self,
        left: &Expr,
        relation: Relation,
        right: &Expr,
        statement: &Statement,
    ) -> Result<CompiledStatement, MissingReference> {
        let (loads, kinds) = self.key(left)?;
        let compare = match kinds {
            Some(kinds) => self.comparison(&kinds, relation, right)?,
            None => None,
        };
        let is_open = compare.is_none() || loads.iter().any(CompiledExpr::is_open);
        let text = is_open.then(|| {
            let text: Arc<str> = statement.to_string().into();
            let fact = match relation {
                Relation::Implicit | Relation::Equal | Relation::NotEqual => format!("{left} {right}").into(),
                _ => text.clone(),
            };
            Box::new(ComparisonText { text, fact, not: relation == Relation::NotEqual })
        });
        let compare = compare.unwrap_or(CompiledComparison::NotModelled);
        Ok(CompiledStatement::Compare { left: loads, compare, text })
    }

    /// `None`: not modelled.
    fn comparison(
        &mut self,
        kinds: &[DataType],
        relation: Relation,
        right: &Expr,
    ) -> Result<Option<CompiledComparison>, MissingReference> {
        let not = relation == Relation::NotEqual;
        if matches!(right, Expr::SetRef(_) | Expr::Elements(_)) {
            if !matches!(relation, Relation::Implicit | Relation::Equal | Relation::NotEqual) {
                return Ok(None);
            }
            let set = self.set(right, Some(kinds), None)?;
            return Ok(set.map(|set| CompiledComparison::In { not, set }));
        }
        let Some(ranges) = self.ranges(right.parts(), kinds) else { return Ok(None) };
        let (Some((first, last)), Some(kind)) = (ranges.first().copied(), kinds.first().copied()) else {
            return Ok(None);
        };
        let single = ranges.len() == 1;
        let below = |value: u128| value.checked_sub(1);
        let within = |ranges| Some(CompiledComparison::Within { not, ranges });
        Ok(match relation {
            Relation::Implicit if single && kind.is_flags() => {
                Some(CompiledComparison::Any { not: false, bits: first })
            }
            Relation::Without if single => Some(CompiledComparison::Any { not: true, bits: first }),
            Relation::Implicit | Relation::Equal | Relation::NotEqual => within(ranges),
            // Comparisons become ranges from 0 to the largest value.
            Relation::Less if single => {
                below(first).map_or_else(|| within(vec![(1, 0)]), |last| within(vec![(0, last)]))
            }
            Relation::LessOrEqual if single => within(vec![(0, last)]),
            Relation::Greater if single => match last.checked_add(1) {
                Some(first) => within(vec![(first, u128::MAX)]),
                None => within(vec![(1, 0)]),
            },
            Relation::GreaterOrEqual if single => within(vec![(first, u128::MAX)]),
            _ => None,
        })
    }

    fn nat(
        &mut self,
        kind: NatKind,
        family: Option<Family>,
        address: Option<&Expr>,
        port: Option<&Expr>,
        flags: &[String],
    ) -> Result<Option<Nat>, MissingReference> {
        let has = |flag: &str| flags.iter().any(|one| one == flag);
        let range = NatRange {
            random: has("random"),
            random_fully: has("fully-random"),
            persistent: has("persistent"),
            ..NatRange::default()
        };
        let (Some(address), Some(port)) = (self.to(address, None)?, self.to(port, Some(DataType::Port))?) else {
            return Ok(None);
        };
        Ok(Some(Nat { kind, family, address, port, range }))
    }

    /// Compiles a NAT operand of type `kind`; `None` is an address.
    fn to(&mut self, expr: Option<&Expr>, kind: Option<DataType>) -> Result<Option<NatOperand>, MissingReference> {
        let Some(expr) = expr else { return Ok(Some(NatOperand::Nothing)) };
        let interface = |name: &str| self.interface(name);
        let kinds = kind.map_or_else(|| vec![DataType::Ipv4, DataType::Ipv6], |kind| vec![kind]);
        if let Some((first, last)) = kinds.into_iter().find_map(|kind| kind.range(expr, &interface)) {
            return Ok(Some(NatOperand::Range(first, last)));
        }
        let load = self.load(expr, kind)?;
        Ok((!matches!(load, CompiledExpr::NotModelled(_))).then_some(NatOperand::Load(load)))
    }
}

/// Returns the answers for IPv4 and IPv6; `None` if not modelled.
fn reject(with: Option<&(String, String)>) -> Option<(RejectWith, RejectWith)> {
    let Some((protocol, name)) = with else {
        return Some((RejectWith::port_unreachable(Family::V4), RejectWith::port_unreachable(Family::V6)));
    };
    let v4 = |name: &str| RejectWith::of_nft(Family::V4, name);
    let v6 = |name: &str| RejectWith::of_nft(Family::V6, name);
    match protocol.as_str() {
        "tcp" if name == "reset" => Some((RejectWith::TcpReset, RejectWith::TcpReset)),
        // The rule matches only packets of this family.
        "icmp" => v4(name).map(|with| (with, with)),
        "icmpv6" => v6(name).map(|with| (with, with)),
        // net/netfilter/nft_reject.c, icmp_code_v4 and icmp_code_v6.
        "icmpx" => match name.as_str() {
            "no-route" => Some((v4("net-unreachable")?, v6("no-route")?)),
            "port-unreachable" => Some((v4("port-unreachable")?, v6("port-unreachable")?)),
            "host-unreachable" => Some((v4("host-unreachable")?, v6("addr-unreachable")?)),
            "admin-prohibited" => Some((v4("admin-prohibited")?, v6("admin-prohibited")?)),
            _ => None,
        },
        _ => None,
    }
}
