//! Values and attributes.

use plimsoll_pprof::message::Message;

use crate::field::{any_value, array_value, key_value};

/// The value of an attribute. The message states its type even for an empty text and for 0.
pub(crate) enum Value<'a> {
    Text(&'a str),
    Number(i64),
    Texts(&'a [&'a str]),
}

impl Value<'_> {
    /// Returns the value as an `AnyValue`.
    pub(crate) fn encode(&self) -> Message {
        let mut value = Message::default();
        match *self {
            Self::Text(text) => value.bytes(any_value::STRING, text.as_bytes()),
            Self::Number(number) => value.repeated(any_value::INT, number as u64),
            Self::Texts(texts) => {
                let mut array = Message::default();
                for text in texts {
                    array.message(array_value::VALUES, &Value::Text(text).encode());
                }
                value.message(any_value::ARRAY, &array);
            }
        }
        value
    }
}

/// Returns an attribute of a resource or a scope, a `KeyValue`.
pub(crate) fn key_value(key: &str, value: &str) -> Message {
    let mut attribute = Message::default();
    attribute.bytes(key_value::KEY, key.as_bytes());
    attribute.message(key_value::VALUE, &Value::Text(value).encode());
    attribute
}
