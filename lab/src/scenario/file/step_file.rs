//! Reads a step: the common keys, and one key of [`STEP_KEYS`].

use std::fmt;
use std::sync::LazyLock;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, EnumAccess, Error, MapAccess, VariantAccess, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};
use serde_saphyr::Spanned;

use super::meaning::meaning;
use super::{Action, ExpectFile, Mode, STEP_KEYS, StepKey};
use crate::scenario::values::TimeSpan;

#[derive(Debug)]
pub struct StepFile {
    pub common: CommonKeys,
    /// All action keys of the step; exactly one is valid.
    pub actions: Vec<(&'static StepKey, Action)>,
}

#[derive(Debug, Default, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct CommonKeys {
    /// The step's name, unique in the file.
    #[schemars(required)]
    pub name: String,
    /// The promise that the step tests, by its short name; default: the scenario's.
    #[schemars(with = "Option<String>")]
    pub promise: Option<Spanned<String>>,
    /// The step runs only while the proxy of some node is in one of these modes; default: in all.
    pub modes: Option<Vec<Mode>>,
    /// What must be seen; which keys go with which action is in docs/scenarios.md.
    #[schemars(with = "Option<ExpectFile>")]
    pub expect: Option<Spanned<ExpectFile>>,
    /// How long the promises are checked again until they hold; default: one check.
    pub eventually: Option<TimeSpan>,
    /// The time between two checks of `eventually`; default `50ms`.
    pub every: Option<TimeSpan>,
}

static KEYS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let actions = STEP_KEYS.iter().map(|row| row.key);
    ["name", "promise", "modes"].into_iter().chain(actions).chain(["expect", "eventually", "every"]).collect()
});

struct KeyName(&'static str);

impl<'de> Deserialize<'de> for KeyName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeyName, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known = KEYS.iter().find(|key| **key == text);
        known.map(|key| KeyName(key)).ok_or_else(|| D::Error::unknown_field(&text, KEYS.as_slice()))
    }
}

impl<'de> Deserialize<'de> for StepFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StepFile, D::Error> {
        struct StepVisitor;
        impl<'de> Visitor<'de> for StepVisitor {
            type Value = StepFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StepFile, A::Error> {
                let (mut common, mut name, mut actions) = (CommonKeys::default(), None, Vec::new());
                while let Some(KeyName(key)) = map.next_key()? {
                    match key {
                        "name" => name = Some(map.next_value()?),
                        "promise" => common.promise = map.next_value()?,
                        "modes" => common.modes = map.next_value()?,
                        "expect" => common.expect = map.next_value()?,
                        "eventually" => common.eventually = map.next_value()?,
                        "every" => common.every = map.next_value()?,
                        _ => {
                            let action = map.next_value_seed(ActionOf(key))?;
                            actions.extend(StepKey::of(key).map(|row| (row, action)));
                        }
                    }
                }
                common.name = name.ok_or_else(|| A::Error::missing_field("name"))?;
                Ok(StepFile { common, actions })
            }
        }
        deserializer.deserialize_map(StepVisitor)
    }
}

struct ActionOf(&'static str);

impl<'de> DeserializeSeed<'de> for ActionOf {
    type Value = Action;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Action, D::Error> {
        Action::deserialize(Tagged { key: self.0, value })
    }
}

/// An enum whose variant is known before its value.
struct Tagged<D> {
    key: &'static str,
    value: D,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Tagged<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, D: Deserializer<'de>> EnumAccess<'de> for Tagged<D> {
    type Error = D::Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), D::Error> {
        Ok((seed.deserialize(StrDeserializer::new(self.key))?, self))
    }
}

impl<'de, D: Deserializer<'de>> VariantAccess<'de> for Tagged<D> {
    type Error = D::Error;

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, D::Error> {
        seed.deserialize(self.value)
    }

    fn unit_variant(self) -> Result<(), D::Error> {
        Err(D::Error::custom("a key without a value"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.value.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, D::Error> {
        self.value.deserialize_any(visitor)
    }
}

/// One object: the common keys, and every key of [`Action`] as an optional property.
impl JsonSchema for StepFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StepFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let common = CommonKeys::json_schema(generator).to_value();
        let mut properties = common["properties"].as_object().cloned().unwrap_or_default();
        let actions = Action::json_schema(generator).to_value();
        for variant in actions["oneOf"].as_array().into_iter().flatten() {
            for (key, property) in variant["properties"].as_object().cloned().into_iter().flatten() {
                let meaning = meaning(&key, STEP_KEYS.iter().flat_map(|row| row.docs));
                properties.entry(key).or_insert(property)["description"] = meaning.into();
            }
        }
        json_schema!({
            "description": "One of `steps:`; exactly one of the actions is set.",
            "type": "object",
            "properties": properties,
            "required": ["name"],
            "additionalProperties": false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_variants_have_the_same_keys() {
        let schema = Action::json_schema(&mut SchemaGenerator::default()).to_value();
        let variants = schema["oneOf"].as_array().unwrap().iter();
        let keys: Vec<&str> = variants.map(|variant| variant["required"][0].as_str().unwrap()).collect();
        assert_eq!(keys, STEP_KEYS.iter().map(|row| row.key).collect::<Vec<_>>());
    }
}
