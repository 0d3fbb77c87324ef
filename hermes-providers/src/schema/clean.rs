//! One place of a schema: what it says, in the words of the dialect.

use serde_json::{Map, Value};

use super::flatten::{Cleaner, Reach, merge};
use super::notes::{self, json};
use super::root;
use super::rules::{EnumValues, NullStyle, SchemaDialect};
use super::{MAX_REF_REPEATS, MAX_SCHEMA_DEPTH};

/// Ever shorter reaches, for schemas that turn out to be too large.
const REACHES: [Reach; 6] = [
    Reach { repeats: MAX_REF_REPEATS, depth: MAX_SCHEMA_DEPTH },
    Reach { repeats: 1, depth: MAX_SCHEMA_DEPTH },
    Reach { repeats: 1, depth: 8 },
    Reach { repeats: 1, depth: 4 },
    Reach { repeats: 1, depth: 2 },
    Reach { repeats: 1, depth: 1 },
];
/// Said where a schema is cut.
const CUT: &str = "Any JSON value; what it holds is not shown.";
/// Places of an expanded "anything".
const ANY_NODES: usize = 6;
/// Levels of it.
const ANY_DEPTH: usize = 2;

pub(super) const TYPES: [&str; 6] = ["string", "number", "integer", "boolean", "object", "array"];

/// Most passes over one schema. A second one may find what only the first made visible (forms that have become equal).
const MAX_PASSES: usize = 4;

/// The schema of arguments, and what must be told beside it.
pub(super) fn parameters(schema: &Value, dialect: SchemaDialect) -> (Value, String) {
    let (mut cleaned, mut note) = pass(schema, dialect);
    for _ in 1..MAX_PASSES {
        let (again, more) = pass(&cleaned, dialect);
        if again == cleaned {
            break;
        }
        note = notes::join(&note, &[more]);
        cleaned = again;
    }
    (cleaned, note)
}

fn pass(schema: &Value, dialect: SchemaDialect) -> (Value, String) {
    for reach in REACHES {
        let mut cleaner = Cleaner::new(dialect.rules(), schema, reach);
        let cleaned = root::root(&mut cleaner);
        if !cleaner.is_spent() {
            return cleaned;
        }
    }
    let mut empty = Map::from_iter([("type".to_owned(), Value::from("object"))]);
    if dialect.rules().empty_properties {
        empty.insert("properties".to_owned(), Value::Object(Map::new()));
    }
    (Value::Object(empty), format!("The arguments: {}.", json(schema)))
}

/// What is known of one place.
#[derive(Default)]
pub(super) struct Place {
    pub(super) map: Map<String, Value>,
    pub(super) notes: Vec<String>,
    types: Vec<String>,
    nullable: bool,
    values: Vec<Value>,
    forms: Vec<Value>,
}

impl Cleaner<'_> {
    /// The schema of a place at this depth; `name` is the property's.
    pub(super) fn node(&mut self, value: &Value, depth: usize, name: Option<&str>) -> Value {
        let open = self.refs.len();
        let mut place = Place::default();
        place.map = self.flatten(value, &mut place.notes);
        if let (None, Some(Value::String(title))) = (place.map.get("description"), place.map.get("title"))
            && name.is_none_or(|name| letters(name) != letters(title))
        {
            place.map.insert("description".to_owned(), Value::from(title.as_str()));
        }
        // What is spent is thrown away: only an end is wanted.
        let out = if depth > self.reach.depth || self.is_spent() { self.cut(place) } else { self.write(place, depth) };
        self.refs.truncate(open);
        Value::Object(out)
    }

    fn cut(&self, mut place: Place) -> Map<String, Value> {
        let mut out = Map::new();
        if self.rules.typed {
            out.insert("type".to_owned(), "string".into());
        }
        notes::add(&mut place.notes, CUT.to_owned());
        describe(&mut out, &place);
        out
    }

    fn write(&mut self, mut place: Place, depth: usize) -> Map<String, Value> {
        place.mend();
        self.union(&mut place);
        place.types();
        place.values();
        self.tell_values(&mut place);
        self.shape(&mut place);
        let mut out = Map::new();
        self.kind(&mut out, &mut place, depth);
        // Told words come first in the reading order, but are known only at the end.
        let mut rest = Map::new();
        self.values(&mut rest, &mut place);
        if place.may_be("object") {
            self.object(&mut rest, &mut place, depth);
        }
        if place.may_be("array") {
            self.array(&mut rest, &mut place, depth);
        }
        if !place.forms.is_empty() {
            let mut forms: Vec<Value> = Vec::new();
            for form in std::mem::take(&mut place.forms) {
                let form = self.node(&form, depth + 1, None);
                if !forms.contains(&form) {
                    forms.push(form);
                }
            }
            if place.nullable && self.rules.null == NullStyle::TypeList {
                forms.push(null_type());
            }
            rest.insert("anyOf".to_owned(), Value::Array(forms));
        }
        let words = self.keywords(&mut place, depth);
        describe(&mut out, &place);
        out.extend(words);
        out.extend(rest);
        out
    }

    /// `anyOf` and `oneOf` as one list of forms. What fits one form of `oneOf` fits one of `anyOf`.
    fn union(&mut self, place: &mut Place) {
        for _ in 0..MAX_SCHEMA_DEPTH {
            let (any, one) = (list_of(&mut place.map, "anyOf"), list_of(&mut place.map, "oneOf"));
            if !any.is_empty() && !one.is_empty() {
                let more = Value::Array(one.clone());
                place.notes.extend(notes::keyword("oneOf", &more));
            }
            let list = if any.is_empty() { one } else { any };
            if list.is_empty() {
                return;
            }
            let (mut forms, mut needs) = (Vec::new(), Vec::new());
            for member in list {
                let open = self.refs.len();
                let mut scratch = Vec::new();
                let flat = self.flatten(&member, &mut scratch);
                self.refs.truncate(open);
                if is_null(&flat) {
                    place.nullable = true;
                } else if let Some(names) = only_requires(&flat) {
                    needs.push(names);
                } else if !forms.iter().any(|(form, _)| *form == member) {
                    forms.push((member, flat));
                }
            }
            if !needs.is_empty() {
                notes::add(&mut place.notes, format!("Give at least one of: {}.", needs.join("; ")));
            }
            if constants(&forms, place) {
                return;
            }
            if forms.len() > 1 {
                place.forms = forms.into_iter().map(|(form, _)| form).collect();
                return;
            }
            let Some((form, _)) = forms.pop() else { return };
            let more = self.flatten(&form, &mut place.notes);
            merge(&mut place.map, more, &mut place.notes);
            place.mend();
        }
    }

    /// Several types, or a union beside other keywords, in the way of the dialect.
    fn shape(&mut self, place: &mut Place) {
        if place.types.is_empty() && place.forms.is_empty() && place.values.is_empty() {
            place.infer();
        }
        if place.types.len() > 1 && !self.rules.type_lists {
            let several = std::mem::take(&mut place.types);
            if !place.forms.is_empty() {
                notes::add(&mut place.notes, format!("Type: {}.", several.join(" or ")));
            } else if place.values.is_empty() {
                place.forms = several.iter().map(|kind| place.of_type(kind)).collect();
            } else {
                // The values say it better.
                place.types = Some(place.types_of_values()).filter(|types| types.len() == 1).unwrap_or_default();
            }
            if !place.forms.is_empty() {
                place.map.retain(|key, _| family(key).is_none());
            }
        }
        if !place.forms.is_empty() && self.rules.lone_union {
            let mut base: Map<String, Value> = Map::new();
            for key in place.map.keys().filter(|key| family(key).is_some()).cloned().collect::<Vec<_>>() {
                base.extend(place.map.remove_entry(&key));
            }
            if let Some(kind) = place.types.pop() {
                base.insert("type".to_owned(), kind.into());
            }
            if !place.values.is_empty() {
                base.insert("enum".to_owned(), Value::Array(std::mem::take(&mut place.values)));
            }
            place.types.clear();
            if !base.is_empty() {
                let base = Value::Object(base);
                let with = |form: Value| {
                    Value::Object(Map::from_iter([("allOf".to_owned(), Value::Array(vec![form, base.clone()]))]))
                };
                place.forms = std::mem::take(&mut place.forms).into_iter().map(with).collect();
            }
        }
    }

    /// The type, and whether it may be null.
    fn kind(&mut self, out: &mut Map<String, Value>, place: &mut Place, depth: usize) {
        let is_open = place.types.is_empty() && place.forms.is_empty() && place.values.is_empty();
        if is_open && self.rules.typed && !place.nullable_alone() {
            place.nullable = false;
            if depth + ANY_DEPTH > self.reach.depth {
                notes::add(&mut place.notes, CUT.to_owned());
                place.types.push("string".to_owned());
            } else {
                self.visited += ANY_NODES;
                place.forms = TYPES.iter().filter(|kind| **kind != "integer").map(|kind| any_of_type(kind)).collect();
            }
        }
        if place.types.is_empty() && place.forms.is_empty() && self.rules.typed {
            place.types.push("string".to_owned());
        }
        let null = place.nullable.then_some(self.rules.null);
        let mut types: Vec<Value> = place.types.iter().map(|kind| Value::from(kind.as_str())).collect();
        match null {
            Some(NullStyle::TypeList) if !types.is_empty() || place.nullable_alone() => types.push("null".into()),
            Some(NullStyle::Words) if !is_open || place.nullable_alone() => {
                notes::add(&mut place.notes, "May be null.".to_owned());
            }
            _ => {}
        }
        if types.len() == 1 {
            out.insert("type".to_owned(), types.remove(0));
        } else if !types.is_empty() {
            out.insert("type".to_owned(), Value::Array(types));
        }
        if null == Some(NullStyle::Keyword) {
            out.insert("nullable".to_owned(), true.into());
        }
    }

    /// Values that the dialect cannot list are told.
    fn tell_values(&self, place: &mut Place) {
        let fits = |value: &Value| match self.rules.enums {
            EnumValues::Any => true,
            EnumValues::StringsAndNumbers => value.is_number() || value.as_str().is_some_and(|text| !text.is_empty()),
            EnumValues::Strings => value.as_str().is_some_and(|text| !text.is_empty()) && place.is("string"),
        };
        if !place.values.iter().all(fits) {
            let told = std::mem::take(&mut place.values);
            notes::add(&mut place.notes, format!("One of: {}.", notes::list(&told)));
        }
    }

    fn values(&self, out: &mut Map<String, Value>, place: &mut Place) {
        let mut values = std::mem::take(&mut place.values);
        if values.is_empty() {
            return;
        }
        if place.nullable && self.rules.null == NullStyle::TypeList {
            match self.rules.enums {
                EnumValues::Any => values.push(Value::Null),
                _ => notes::add(&mut place.notes, "May be null.".to_owned()),
            }
        }
        out.insert("enum".to_owned(), Value::Array(values));
    }

    /// Members of an object.
    pub(super) fn object(&mut self, out: &mut Map<String, Value>, place: &mut Place, depth: usize) {
        let declared = match place.map.remove("properties") {
            Some(Value::Object(declared)) => declared,
            _ => Map::new(),
        };
        let wanted: Vec<String> = match place.map.get("required") {
            Some(Value::Array(list)) => list.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            _ => Vec::new(),
        };
        let mut properties = Map::new();
        for (name, schema) in &declared {
            if self.rules.names.allow(name) {
                properties.insert(name.clone(), self.node(schema, depth + 1, Some(name)));
                continue;
            }
            let must = if wanted.contains(name) { "needs" } else { "takes" };
            notes::add(&mut place.notes, format!("It also {must} {}: {}.", Value::from(name.as_str()), json(schema)));
            place.map.retain(|key, value| key != "additionalProperties" || *value != Value::Bool(false));
        }
        let mut required: Vec<Value> = Vec::new();
        for name in wanted {
            if !properties.contains_key(&name) {
                if declared.contains_key(&name) {
                    continue;
                }
                if !self.rules.names.allow(&name) {
                    notes::add(&mut place.notes, format!("It also needs {}.", Value::from(name)));
                    continue;
                }
                // A name that only `required` mentions may hold what further properties may hold.
                let of_further = place.map.get("additionalProperties").filter(|schema| schema.is_object()).cloned();
                let schema = self.node(&of_further.unwrap_or(Value::Bool(true)), depth + 1, Some(&name));
                properties.insert(name.clone(), schema);
            }
            let name = Value::from(name);
            if !required.contains(&name) {
                required.push(name);
            }
        }
        place.map.retain(|key, value| key != "required" || !value.is_array());
        if !properties.is_empty() {
            out.insert("properties".to_owned(), Value::Object(properties));
        }
        if !required.is_empty() {
            out.insert("required".to_owned(), Value::Array(required));
        }
    }

    /// Items of a list. A list of places becomes a union, told in its order.
    fn array(&mut self, out: &mut Map<String, Value>, place: &mut Place, depth: usize) {
        let items = place.map.remove("items");
        let (places, rest) = match (place.map.remove("prefixItems"), items) {
            (Some(Value::Array(places)), rest) => (places, rest),
            (_, Some(Value::Array(places))) => (places, place.map.remove("additionalItems")),
            (_, items) => (Vec::new(), items),
        };
        place.map.remove("additionalItems");
        let schema = match places.as_slice() {
            [] => rest.unwrap_or(Value::Bool(true)),
            places => {
                notes::add(&mut place.notes, format!("Items in this order: {}.", notes::list(places)));
                let mut forms = places.to_vec();
                forms.extend(rest.filter(Value::is_object));
                Value::Object(Map::from_iter([("anyOf".to_owned(), Value::Array(forms))]))
            }
        };
        let schema = if schema.is_boolean() { Value::Bool(true) } else { schema };
        out.insert("items".to_owned(), self.node(&schema, depth + 1, None));
    }

    /// Every other keyword: as it is where the dialect knows it, else in words.
    pub(super) fn keywords(&mut self, place: &mut Place, depth: usize) -> Map<String, Value> {
        let known = self.rules.keywords;
        let allowed =
            |key: &str| known.contains(&key) && self.rules.at_root.is_none_or(|at| depth > 0 || at.contains(&key));
        let mut kept: Vec<(&'static str, Value)> = Vec::new();
        let mut map = std::mem::take(&mut place.map);
        place.map.extend(map.remove_entry("description"));
        for (key, value) in map {
            let of_other_type = family(&key).is_some_and(|kind| !place.has_family(kind));
            if key == "type" || of_other_type || !is_well_formed(&key, &value) {
                continue;
            }
            let word = known.iter().find(|word| **word == key && allowed(word));
            let fits = word.is_some_and(|word| self.fits(word, &value));
            match word.filter(|_| fits) {
                Some(word) => kept.push((word, value)),
                None => place.notes.extend(notes::keyword(&key, &value)),
            }
        }
        kept.sort_by_key(|(word, _)| known.iter().position(|other| other == word));
        let mut out = Map::new();
        for (word, value) in kept {
            let value = match (word, value) {
                ("additionalProperties", schema @ Value::Object(_)) => match self.node(&schema, depth + 1, None) {
                    Value::Object(map) if map.is_empty() => Value::Bool(true),
                    cleaned => cleaned,
                },
                (_, value) => value,
            };
            out.insert(word.to_owned(), value);
        }
        out
    }

    fn fits(&self, word: &str, value: &Value) -> bool {
        match (word, self.rules.formats) {
            ("format", Some(known)) => value.as_str().is_some_and(|format| known.contains(&format)),
            ("exclusiveMinimum" | "exclusiveMaximum", _) => value.is_number(),
            _ => true,
        }
    }
}

impl Place {
    /// Older and foreign spellings.
    fn mend(&mut self) {
        if let Some(value) = self.map.remove("const") {
            let mut more = Map::new();
            more.insert("enum".to_owned(), Value::Array(vec![value]));
            merge(&mut self.map, more, &mut self.notes);
        }
        if self.map.remove("nullable") == Some(Value::Bool(true)) {
            self.nullable = true;
        }
        for (exclusive, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
            if let Some(Value::Bool(is_exclusive)) = self.map.get(exclusive) {
                let limit = if *is_exclusive { self.map.remove(limit) } else { None };
                self.map.remove(exclusive);
                self.map.extend(limit.map(|limit| (exclusive.to_owned(), limit)));
            }
        }
        self.map.retain(|key, value| match key.as_str() {
            "required" => *value == Value::Bool(true) || value.as_array().is_some_and(|list| !list.is_empty()),
            "enum" | "prefixItems" => value.as_array().is_some_and(|list| !list.is_empty()),
            _ => true,
        });
    }

    fn types(&mut self) {
        let names = match self.map.remove("type") {
            Some(Value::Array(list)) => list,
            Some(one) => vec![one],
            None => return,
        };
        for name in names {
            let Some(name) = name.as_str().map(str::to_lowercase) else { continue };
            let name = match name.as_str() {
                "null" | "none" => {
                    self.nullable = true;
                    continue;
                }
                "int" | "long" => "integer",
                "float" | "double" => "number",
                "bool" => "boolean",
                "str" => "string",
                "dict" | "map" => "object",
                "list" | "tuple" | "set" => "array",
                "any" => continue,
                known if TYPES.contains(&known) => known,
                other => {
                    notes::add(&mut self.notes, format!("Type: {other}."));
                    continue;
                }
            };
            if !self.types.iter().any(|kind| kind == name) {
                self.types.push(name.to_owned());
            }
        }
        if self.types.iter().any(|kind| kind == "number") {
            self.types.retain(|kind| kind != "integer");
        }
    }

    fn values(&mut self) {
        let Some(Value::Array(values)) = self.map.remove("enum") else { return };
        for value in values {
            if value.is_null() {
                self.nullable = true;
            } else if !self.values.contains(&value) {
                self.values.push(value);
            }
        }
        if self.types.is_empty() && self.forms.is_empty() {
            self.types = self.types_of_values();
        }
    }

    fn types_of_values(&self) -> Vec<String> {
        let mut types: Vec<String> = Vec::new();
        for value in &self.values {
            let kind = type_of(value);
            if !types.iter().any(|known| known == kind) {
                types.push(kind.to_owned());
            }
        }
        if types.iter().any(|kind| kind == "number") {
            types.retain(|kind| kind != "integer");
        }
        types
    }

    /// The types that the other keywords are about.
    fn infer(&mut self) {
        let kinds: Vec<&str> = ["object", "array", "string", "number"]
            .into_iter()
            .filter(|kind| self.map.iter().any(|(key, value)| family(key) == Some(kind) && says_something(key, value)))
            .collect();
        self.types = kinds.into_iter().map(str::to_owned).collect();
    }

    /// The keywords that are about one type, with it.
    fn of_type(&self, kind: &str) -> Value {
        let about =
            |key: &str| family(key).is_some_and(|family| family == kind || family == "number" && kind == "integer");
        let mut form: Map<String, Value> = Map::new();
        form.insert("type".to_owned(), kind.into());
        form.extend(self.map.iter().filter(|(key, _)| about(key)).map(|(key, value)| (key.clone(), value.clone())));
        Value::Object(form)
    }

    /// The top is an object, whatever it says.
    pub(super) fn is_root_object(&mut self) {
        self.mend();
        self.types = vec!["object".to_owned()];
    }

    fn is(&self, kind: &str) -> bool {
        self.types.iter().any(|known| known == kind)
    }

    /// Of this type; or of no type, with keywords about it.
    fn may_be(&self, kind: &str) -> bool {
        let speaks = |(key, value): (&String, &Value)| family(key) == Some(kind) && says_something(key, value);
        self.is(kind) || self.types.is_empty() && self.map.iter().any(speaks)
    }

    /// Whether a keyword about this type has a meaning here.
    fn has_family(&self, kind: &str) -> bool {
        self.types.is_empty() || self.is(kind) || kind == "number" && self.is("integer")
    }

    fn nullable_alone(&self) -> bool {
        self.nullable && self.types.is_empty() && self.forms.is_empty() && self.values.is_empty()
    }
}

pub(super) fn describe(out: &mut Map<String, Value>, place: &Place) {
    let own = place.map.get("description").or_else(|| out.get("description")).and_then(Value::as_str).unwrap_or("");
    let text = notes::join(own, &place.notes);
    if !text.is_empty() {
        out.insert("description".to_owned(), text.into());
    }
}

/// The type that a keyword is about.
fn family(key: &str) -> Option<&'static str> {
    Some(match key {
        "properties"
        | "required"
        | "additionalProperties"
        | "minProperties"
        | "maxProperties"
        | "patternProperties"
        | "propertyNames" => "object",
        "items" | "prefixItems" | "additionalItems" | "minItems" | "maxItems" | "uniqueItems" | "contains" => "array",
        "pattern" | "minLength" | "maxLength" => "string",
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => "number",
        _ => return None,
    })
}

/// Values that no checker refuses.
fn is_well_formed(key: &str, value: &Value) -> bool {
    match key {
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => value.is_number(),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => value.is_u64(),
        "pattern" | "format" => value.is_string(),
        "uniqueItems" => value.is_boolean(),
        "additionalProperties" => value.is_boolean() || value.is_object(),
        "properties" => value.is_object(),
        "required" => value.is_array() || *value == Value::Bool(true),
        "prefixItems" => value.is_array(),
        _ => true,
    }
}

/// Well formed, and more than nothing.
fn says_something(key: &str, value: &Value) -> bool {
    let is_empty = value.as_object().is_some_and(Map::is_empty) && matches!(key, "properties" | "patternProperties");
    is_well_formed(key, value) && !is_empty && (key != "required" || value.is_array())
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn null_type() -> Value {
    Value::Object(Map::from_iter([("type".to_owned(), Value::from("null"))]))
}

fn any_of_type(kind: &str) -> Value {
    let mut form = Map::from_iter([("type".to_owned(), Value::from(kind))]);
    if kind == "array" {
        form.insert("items".to_owned(), Value::Object(Map::from_iter([("type".to_owned(), Value::from("string"))])));
    }
    Value::Object(form)
}

pub(super) fn list_of(map: &mut Map<String, Value>, key: &str) -> Vec<Value> {
    match map.remove(key) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// A schema that only null fits.
pub(super) fn is_null(flat: &Map<String, Value>) -> bool {
    let of_type = flat.get("type").is_some_and(|kind| *kind == "null" || *kind == Value::Array(vec!["null".into()]));
    let of_enum = flat.get("enum").is_some_and(|values| *values == Value::Array(vec![Value::Null]));
    of_type || of_enum || flat.get("const").is_some_and(Value::is_null)
}

/// The names of a form that says nothing but what must be given.
pub(super) fn only_requires(flat: &Map<String, Value>) -> Option<String> {
    let speaks = |key: &str| !matches!(key, "required" | "type" | "title" | "description" | "$comment");
    let Some(Value::Array(names)) = flat.get("required") else { return None };
    if flat.keys().any(|key| speaks(key)) || names.is_empty() {
        return None;
    }
    let names: Vec<String> = names.iter().filter_map(Value::as_str).map(|name| format!("`{name}`")).collect();
    Some(names.join(" with "))
}

/// Forms that are single values become a list of values; what each means is told.
fn constants(forms: &[(Value, Map<String, Value>)], place: &mut Place) -> bool {
    const ABOUT: [&str; 5] = ["const", "enum", "type", "title", "description"];
    let is_value = |flat: &Map<String, Value>| {
        (flat.contains_key("const")
            || flat.get("enum").is_some_and(|values| values.as_array().is_some_and(|list| !list.is_empty())))
            && flat.keys().all(|key| ABOUT.contains(&key.as_str()))
    };
    if forms.len() < 2 || place.map.contains_key("enum") || !forms.iter().all(|(_, flat)| is_value(flat)) {
        return false;
    }
    let mut values = Vec::new();
    for (_, flat) in forms {
        let of_form = match (flat.get("const"), flat.get("enum")) {
            (Some(one), _) => vec![one.clone()],
            (None, Some(Value::Array(list))) => list.clone(),
            _ => Vec::new(),
        };
        let told = flat.get("description").or_else(|| flat.get("title")).and_then(Value::as_str);
        if let Some(told) = told.filter(|told| of_form.len() != 1 || of_form[0].as_str() != Some(told)) {
            notes::add(&mut place.notes, format!("{}: {told}.", notes::list(&of_form)).replace("..", "."));
        }
        values.extend(of_form);
    }
    place.map.insert("enum".to_owned(), Value::Array(values));
    true
}

/// A name as its letters alone: `User Id` and `user_id` are one.
fn letters(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}
