//! Why there is nothing, and types without values.

/// What a profile, a page and an error say.
pub(crate) const NOT_COMPILED_IN: &str =
    "not compiled in: plimsoll was built without its feature `on`";

/// The methods of a type without values.
macro_rules! no_values {
    ($type:ident { $($method:ident: $result:ty,)* }) => {
        impl $type {
            $(#[inline]
            pub fn $method(&self) -> $result {
                match self.0 {}
            })*
        }
    };
}
pub(crate) use no_values;
