//! The schemas of the OpenAPI document, in the form that client generators read best.

use schemars::generate::{Contract, SchemaSettings};
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::types::units::UNITS_MAX;

const SCHEMAS: &str = "/components/schemas";

/// The schemas of requests and responses: a type may accept more forms than it writes.
pub struct Schemas {
    pub(super) accepted: SchemaGenerator,
    pub(super) sent: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let of = |contract| {
            SchemaGenerator::new(SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = SCHEMAS.into();
                settings.contract = contract;
            }))
        };
        Self { accepted: of(Contract::Deserialize), sent: of(Contract::Serialize) }
    }

    /// The schema itself, not a reference to it.
    pub(super) fn accepted_inline<T: JsonSchema>(&mut self) -> Schema {
        let mut schema = T::json_schema(&mut self.accepted);
        RecursiveTransform(|schema: &mut Schema| simplify(schema, &Contract::Deserialize)).transform(&mut schema);
        schema
    }

    /// All named schemas.
    pub(super) fn into_named(mut self) -> Map<String, Value> {
        let mut named = Map::new();
        for (generator, contract) in
            [(&mut self.accepted, Contract::Deserialize), (&mut self.sent, Contract::Serialize)]
        {
            for (name, schema) in generator.take_definitions(false) {
                let mut schema = Schema::try_from(schema).expect("a schema");
                RecursiveTransform(|schema: &mut Schema| simplify(schema, &contract)).transform(&mut schema);
                let schema = Value::from(schema);
                let other = named.insert(name.clone(), schema.clone()).filter(|other| *other != schema);
                assert!(other.is_none(), "two schemas are named {name}");
            }
        }
        named
    }
}

/// Writes a schema in the form that client generators read best.
fn simplify(schema: &mut Schema, contract: &Contract) {
    let Some(object) = schema.as_object_mut() else { return };
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = text.replace('\n', " ").replace("[`", "`").replace("`]", "`");
    }
    // A JSON integer has no size. Every language can hold the integers that Lua in Redis can.
    match object.get("format").and_then(Value::as_str) {
        Some("uint64") => {
            object.remove("format");
            object.entry("maximum").or_insert_with(|| UNITS_MAX.into());
        }
        Some("uint8" | "uint16" | "uint32" | "double") => drop(object.remove("format")),
        _ => {}
    }
    // An enum with described variants.
    let words = |choices: &Value| {
        let words = choices.as_array()?.iter().map(|choice| choice.get("const").cloned());
        words.collect::<Option<Vec<Value>>>()
    };
    if let Some(words) = object.get("oneOf").and_then(words) {
        object.remove("oneOf");
        object.insert("type".to_owned(), "string".into());
        object.insert("enum".to_owned(), words.into());
    }
    // A map with keys of a pattern.
    if let Some(Value::Object(patterns)) = object.remove("patternProperties") {
        let (pattern, values) = patterns.into_iter().next().expect("one pattern");
        object.insert("propertyNames".to_owned(), json!({"pattern": pattern}));
        object.insert("additionalProperties".to_owned(), values);
    }
    let required: Vec<Value> = object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    for (name, field) in object.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        let Some(field) = field.as_object_mut() else { continue };
        // Generators of clients take a field with a default for one that is always there.
        field.remove("default");
        // An optional field of a response is absent, never null.
        if *contract == Contract::Serialize && !required.iter().any(|one| one == name) {
            without_null(field);
        }
    }
}

/// Removes null from a schema whose field is absent instead.
pub(super) fn without_null(field: &mut Map<String, Value>) {
    field.retain(|name, value| name != "default" || !value.is_null());
    let null = json!({"type": "null"});
    if let Some(Value::Array(types)) = field.get_mut("type") {
        types.retain(|one| one != "null");
        if let [only] = types.as_slice() {
            field["type"] = only.clone();
        }
    }
    if let Some(Value::Array(choices)) = field.get("anyOf")
        && let [Value::Object(only), other] = choices.as_slice()
        && *other == null
    {
        let only = only.clone();
        field.remove("anyOf");
        field.extend(only);
    }
}
