//! Indices of the tables of a profile.

/// Index of a string of a profile. Index 0 is the empty string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StringId(pub(crate) u32);

/// Index of a function: `0..profile.functions().len()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub(crate) u32);

/// Index of a location: `0..profile.location_count()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocationId(pub(crate) u32);

/// Index of a mapping: `0..profile.mappings().len()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MappingId(pub(crate) u32);

macro_rules! as_index {
    ($($id:ident),*) => {$(
        impl $id {
            /// Returns the index, for tables with an entry for each id.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}
as_index!(StringId, FunctionId, LocationId, MappingId);
