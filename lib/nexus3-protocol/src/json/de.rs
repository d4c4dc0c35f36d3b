//! `serde` deserializer for [`Json`] values. It rejects an array in place of a struct, and its errors name the
//! parameter.

use std::fmt;
use std::str::FromStr;

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::{Json, is_integer};

/// A value that does not fit the requested type. Its text is the message of a −32602 error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamFault {
    path: String,
    kind: ParamFaultKind,
}

/// Maximum length of a parameter path in an error text, since it may contain keys from the client.
const PATH_CHARS_MAX: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
enum ParamFaultKind {
    Missing,
    Unknown,
    WrongType { expected: String, got: &'static str },
    Custom(String),
}

impl ParamFault {
    fn new(kind: ParamFaultKind) -> Self {
        Self { path: String::new(), kind }
    }

    fn wrong_type(expected: &str, value: &Json<'_>) -> Self {
        match value {
            Json::Null => Self::new(ParamFaultKind::Missing),
            other => {
                Self::new(ParamFaultKind::WrongType { expected: expected.to_owned(), got: other.type_name() })
            }
        }
    }

    fn nested_in(mut self, outer: &str) -> Self {
        self.path = match self.path.as_str() {
            "" => outer.to_owned(),
            inner if inner.starts_with('[') => format!("{outer}{inner}"),
            inner => format!("{outer}.{inner}"),
        };
        self
    }
}

impl fmt::Display for ParamFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match self.path.char_indices().nth(PATH_CHARS_MAX) {
            _ if self.path.is_empty() => "params",
            Some((end, _)) => &self.path[..end],
            None => &self.path,
        };
        match &self.kind {
            ParamFaultKind::Missing => write!(out, "Missing required parameter: {path}"),
            ParamFaultKind::Unknown => write!(out, "Extra inputs are not permitted: {path}"),
            ParamFaultKind::WrongType { expected, got } => {
                write!(out, "{path} must be {expected}, got: {got}")
            }
            ParamFaultKind::Custom(text) => write!(out, "{path} {text}"),
        }
    }
}

impl std::error::Error for ParamFault {}

impl serde::de::Error for ParamFault {
    /// The text follows the parameter's name, so it must start with a verb: `must be …`, `cannot be …`.
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::new(ParamFaultKind::Custom(text.to_string()))
    }

    fn invalid_type(unexpected: serde::de::Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        let got = match unexpected {
            serde::de::Unexpected::Bool(_) => "bool",
            serde::de::Unexpected::Unsigned(_) | serde::de::Unexpected::Signed(_) => "int",
            serde::de::Unexpected::Float(_) => "float",
            serde::de::Unexpected::Unit | serde::de::Unexpected::Option => {
                return Self::new(ParamFaultKind::Missing);
            }
            serde::de::Unexpected::Seq => "list",
            serde::de::Unexpected::Map => "dict",
            _ => "str",
        };
        Self::new(ParamFaultKind::WrongType { expected: expected.to_string(), got })
    }

    fn invalid_value(_: serde::de::Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        Self::new(ParamFaultKind::Custom(format!("must be {expected}")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(ParamFaultKind::Missing).nested_in(field)
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Self::new(ParamFaultKind::Unknown).nested_in(field)
    }
}

/// Deserializes a typed value.
///
/// # Errors
/// When the value does not fit `T`.
pub fn from_json<'de, T: serde::Deserialize<'de>>(value: &'de Json<'de>) -> Result<T, ParamFault> {
    T::deserialize(ValueDeserializer(value))
}

/// Deserializes a typed value from the members of an object.
///
/// # Errors
/// When the members do not fit `T`.
pub fn from_members<'de, T: serde::Deserialize<'de>>(
    members: &'de [(std::borrow::Cow<'de, str>, Json<'de>)],
) -> Result<T, ParamFault> {
    T::deserialize(MembersDeserializer(members))
}

struct ValueDeserializer<'de>(&'de Json<'de>);

impl<'de> ValueDeserializer<'de> {
    fn string<V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, ParamFault> {
        match self.0 {
            Json::String(std::borrow::Cow::Borrowed(text)) => visitor.visit_borrowed_str(text),
            Json::String(text) => visitor.visit_str(text),
            other => Err(ParamFault::wrong_type("string", other)),
        }
    }

    fn integer<V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, ParamFault> {
        let Json::Number(text) = self.0 else { return Err(ParamFault::wrong_type("integer", self.0)) };
        if !is_integer(text) {
            return Err(ParamFault::wrong_type("integer", self.0));
        }
        if let Ok(number) = text.parse::<u64>() {
            visitor.visit_u64(number)
        } else if let Ok(number) = text.parse::<i64>() {
            visitor.visit_i64(number)
        } else {
            Err(ParamFault::new(ParamFaultKind::Custom("must be an integer of at most 64 bits".to_owned())))
        }
    }

    /// Parses a float. Rejects overflow to infinity and underflow to zero: as a limit, either would mean no limit.
    fn float<F: FromStr + Copy + Into<f64>>(&self) -> Result<F, ParamFault> {
        let Json::Number(text) = self.0 else { return Err(ParamFault::wrong_type("number", self.0)) };
        let number = text.parse::<F>().ok().filter(|&number| is_representable(text, number.into()));
        number.ok_or_else(|| {
            ParamFault::new(ParamFaultKind::Custom("must be a number in the range of a double".to_owned()))
        })
    }
}

fn is_representable(text: &str, number: f64) -> bool {
    let mut mantissa = text.bytes().take_while(|byte| !matches!(byte, b'e' | b'E'));
    number.is_finite() && (number != 0.0 || mantissa.all(|byte| !matches!(byte, b'1'..=b'9')))
}

macro_rules! deserialize_integers {
    ($($name:ident)*) => { $(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamFault> {
            self.integer(visitor)
        }
    )* };
}

impl<'de> Deserializer<'de> for ValueDeserializer<'de> {
    type Error = ParamFault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamFault> {
        match self.0 {
            Json::Null => visitor.visit_unit(),
            Json::Bool(value) => visitor.visit_bool(*value),
            Json::Number(text) if is_integer(text) => self.integer(visitor),
            Json::Number(_) => visitor.visit_f64(self.float()?),
            Json::String(_) => self.string(visitor),
            Json::Array(items) => visitor.visit_seq(ItemAccess { items: items.iter(), index: 0 }),
            Json::Object(members) => visitor.visit_map(MemberAccess { members: members.iter(), value: None }),
        }
    }

    deserialize_integers! { deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16
    deserialize_u32 deserialize_u64 }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamFault> {
        visitor.visit_f32(self.float()?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamFault> {
        visitor.visit_f64(self.float()?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamFault> {
        match self.0 {
            Json::Bool(value) => visitor.visit_bool(*value),
            other => Err(ParamFault::wrong_type("boolean", other)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamFault> {
        self.string(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamFault> {
        self.string(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamFault> {
        match self.0 {
            Json::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamFault> {
        match self.0 {
            Json::Array(items) => visitor.visit_seq(ItemAccess { items: items.iter(), index: 0 }),
            other => Err(ParamFault::wrong_type("list", other)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamFault> {
        match self.0 {
            Json::Object(members) => visitor.visit_map(MemberAccess { members: members.iter(), value: None }),
            other => Err(ParamFault::wrong_type("object", other)),
        }
    }

    /// Accepts only an object: by default `serde` would also fill a struct from an array, by position.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ParamFault> {
        self.deserialize_map(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ParamFault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        choices: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ParamFault> {
        let Json::String(text) = self.0 else { return Err(ParamFault::wrong_type("string", self.0)) };
        if !choices.contains(&text.as_ref()) {
            let list = choices.iter().map(|choice| format!("'{choice}'")).collect::<Vec<_>>().join(", ");
            return Err(ParamFault::new(ParamFaultKind::Custom(format!("must be one of {list}"))));
        }
        visitor.visit_enum(UnitVariant(text))
    }

    /// Accepts any value in an ignored member, even a number that fits no type.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamFault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier }
}

/// A string as a unit variant of an enum; the protocol has no variants with content.
struct UnitVariant<'de>(&'de str);

impl<'de> EnumAccess<'de> for UnitVariant<'de> {
    type Error = ParamFault;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), ParamFault> {
        let name: BorrowedStrDeserializer<'de, ParamFault> = BorrowedStrDeserializer::new(self.0);
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for UnitVariant<'de> {
    type Error = ParamFault;

    fn unit_variant(self) -> Result<(), ParamFault> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, _: S) -> Result<S::Value, ParamFault> {
        Err(ParamFault::new(ParamFaultKind::Custom("must be a plain word".to_owned())))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, ParamFault> {
        Err(ParamFault::new(ParamFaultKind::Custom("must be a plain word".to_owned())))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ParamFault> {
        Err(ParamFault::new(ParamFaultKind::Custom("must be a plain word".to_owned())))
    }
}

struct MembersDeserializer<'de>(&'de [(std::borrow::Cow<'de, str>, Json<'de>)]);

impl<'de> Deserializer<'de> for MembersDeserializer<'de> {
    type Error = ParamFault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamFault> {
        visitor.visit_map(MemberAccess { members: self.0.iter(), value: None })
    }

    forward_to_deserialize_any! { bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes
    byte_buf option unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any }
}

struct ItemAccess<'de> {
    items: std::slice::Iter<'de, Json<'de>>,
    index: usize,
}

impl<'de> SeqAccess<'de> for ItemAccess<'de> {
    type Error = ParamFault;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ParamFault> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let index = self.index;
        self.index += 1;
        seed.deserialize(ValueDeserializer(item))
            .map(Some)
            .map_err(|fault| fault.nested_in(&format!("[{index}]")))
    }
}

/// Key prefix that makes `serde_json::Value` parse a string member as JSON text itself, which would bypass the depth
/// limit and the duplicate-key check.
const SERDE_JSON_PRIVATE_PREFIX: &str = "$serde_json::private::";

struct MemberAccess<'de> {
    members: std::slice::Iter<'de, (std::borrow::Cow<'de, str>, Json<'de>)>,
    value: Option<(&'de str, &'de Json<'de>)>,
}

impl<'de> MapAccess<'de> for MemberAccess<'de> {
    type Error = ParamFault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ParamFault> {
        let Some((key, value)) = self.members.next() else { return Ok(None) };
        if key.starts_with(SERDE_JSON_PRIVATE_PREFIX) {
            return Err(ParamFault::new(ParamFaultKind::Unknown).nested_in(key));
        }
        self.value = Some((key, value));
        let name: StrDeserializer<'_, ParamFault> = StrDeserializer::new(key);
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ParamFault> {
        let Some((key, value)) = self.value.take() else {
            return Err(ParamFault::new(ParamFaultKind::Custom("was read out of order".to_owned())));
        };
        seed.deserialize(ValueDeserializer(value)).map_err(|fault| fault.nested_in(key))
    }
}
