//! What each dialect of JSON Schema can say, as a table.

use serde::Deserialize;

/// Which part of JSON Schema a wire or a server understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SchemaDialect {
    /// OpenAI and most servers that speak like it.
    Plain,
    /// Anthropic's messages.
    Anthropic,
    /// `parametersJsonSchema` of Google's own wire.
    Gemini,
    /// `parameters` of Google's wire: a part of OpenAPI 3.0.
    OpenApi,
    /// `inputSchema.json` of Bedrock's Converse, as narrow as the narrowest of its models.
    Bedrock,
    /// Servers that turn a schema into a grammar or feed it to a template.
    Local,
}

/// How it is said that a value may be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NullStyle {
    /// `"type": ["string", "null"]`.
    TypeList,
    /// `"nullable": true`.
    Keyword,
    /// In words.
    Words,
}

/// Which values may stand in `enum`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EnumValues {
    Any,
    /// Strings that are not empty, and numbers.
    StringsAndNumbers,
    /// Strings that are not empty.
    Strings,
}

/// Names that properties may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PropertyNames {
    Any,
    /// Up to 64 letters, digits, `_`, `.` and `-`.
    Dotted,
    /// Up to 64 letters, digits and `_`, no digit first.
    Identifier,
}

/// Longest name of a property where there is a rule.
const MAX_PROPERTY_NAME_BYTES: usize = 64;

impl PropertyNames {
    pub(super) fn allow(self, name: &str) -> bool {
        let fits = (1..=MAX_PROPERTY_NAME_BYTES).contains(&name.len());
        match self {
            Self::Any => true,
            Self::Dotted => fits && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-')),
            Self::Identifier => {
                fits && !name.starts_with(|c: char| c.is_ascii_digit())
                    && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            }
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Keywords beside the structural ones that the dialect knows.
    pub(super) keywords: &'static [&'static str],
    /// Keywords that may stand at the top, when not all may.
    pub(super) at_root: Option<&'static [&'static str]>,
    /// Whether `type` may be a list of several types.
    pub(super) type_lists: bool,
    pub(super) null: NullStyle,
    pub(super) enums: EnumValues,
    /// Values of `format` that are known; `None`: any.
    pub(super) formats: Option<&'static [&'static str]>,
    pub(super) names: PropertyNames,
    /// Whether every place needs a type.
    pub(super) typed: bool,
    /// Whether a union must stand alone.
    pub(super) lone_union: bool,
    /// Whether an object may have an empty `properties`.
    pub(super) empty_properties: bool,
}

const FULL: &[&str] = &[
    "additionalProperties",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "default",
];

const PLAIN: Rules = Rules {
    keywords: FULL,
    at_root: None,
    type_lists: true,
    null: NullStyle::TypeList,
    enums: EnumValues::Any,
    formats: None,
    names: PropertyNames::Any,
    typed: false,
    lone_union: false,
    empty_properties: true,
};

impl SchemaDialect {
    /// Every dialect, for tests that hold for all of them.
    pub const ALL: &[Self] = &[Self::Plain, Self::Anthropic, Self::Gemini, Self::OpenApi, Self::Bedrock, Self::Local];

    pub(super) fn rules(self) -> Rules {
        match self {
            Self::Plain => PLAIN,
            Self::Anthropic => Rules { names: PropertyNames::Dotted, ..PLAIN },
            Self::Gemini => Rules {
                keywords: &["additionalProperties", "format", "minimum", "maximum", "minItems", "maxItems"],
                enums: EnumValues::StringsAndNumbers,
                formats: Some(&["date-time", "date", "time"]),
                type_lists: false,
                lone_union: true,
                ..PLAIN
            },
            Self::OpenApi => Rules {
                keywords: &[
                    "nullable",
                    "format",
                    "pattern",
                    "minLength",
                    "maxLength",
                    "minimum",
                    "maximum",
                    "minItems",
                    "maxItems",
                    "minProperties",
                    "maxProperties",
                ],
                at_root: None,
                type_lists: false,
                null: NullStyle::Keyword,
                enums: EnumValues::Strings,
                formats: Some(&["date-time", "int32", "int64", "float", "double"]),
                names: PropertyNames::Identifier,
                typed: true,
                lone_union: true,
                empty_properties: false,
            },
            Self::Bedrock => Rules {
                at_root: Some(&["type", "properties", "required"]),
                type_lists: false,
                null: NullStyle::Words,
                names: PropertyNames::Dotted,
                ..PLAIN
            },
            Self::Local => Rules {
                keywords: &["additionalProperties", "minimum", "maximum", "minItems", "maxItems", "default"],
                type_lists: false,
                null: NullStyle::Words,
                ..PLAIN
            },
        }
    }
}

/// Known to everybody and written by hand in `clean.rs`.
#[cfg(test)]
pub(super) const STRUCTURE: [&str; 7] = ["type", "description", "enum", "properties", "required", "items", "anyOf"];
