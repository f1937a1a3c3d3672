//! Contacts of the configuration: as those of subjects, but for a key that is none. There it is a note of the platform's; here it is a
//! mistake, because nobody else writes into the file.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// What is read from a table whose keys are all known.
pub(super) trait KnownKeys {
    /// The keys.
    const KEYS: &'static [&'static str];
}

/// Reads a list of tables, of which none may have another key.
///
/// # Errors
///
/// What is wrong with the first table that is not legal.
pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de> + KnownKeys>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let tables: Vec<StrictTable<T>> = Vec::deserialize(deserializer)?;
    Ok(tables.into_iter().map(|StrictTable(value)| value).collect())
}

struct StrictTable<T>(T);

impl<'de, T: Deserialize<'de> + KnownKeys> Deserialize<'de> for StrictTable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TableVisitor(PhantomData)).map(Self)
    }
}

struct TableVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + KnownKeys> Visitor<'de> for TableVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a channel and an address or url")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(StrictMap { map, keys: T::KEYS }))
    }
}

/// The entries of a table. The error is that of the entry's key, so that it says where that stands.
struct StrictMap<A> {
    map: A,
    keys: &'static [&'static str],
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for StrictMap<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.map.next_key_seed(StrictKey { seed, keys: self.keys })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

struct StrictKey<K> {
    seed: K,
    keys: &'static [&'static str],
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for StrictKey<K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for StrictKey<K> {
    type Value = K::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<K::Value, E> {
        match self.keys.contains(&key) {
            true => self.seed.deserialize(key.into_deserializer()),
            false => Err(E::unknown_field(key, self.keys)),
        }
    }
}
