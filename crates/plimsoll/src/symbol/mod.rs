//! Names for addresses.
/// Detail
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// a
    Full,
    /// b
    Names,
    /// c
    Addresses,
}
pub(crate) struct Symbols {
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) functions: Vec<Function>,
}
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) limit: u64,
    pub(crate) offset: u64,
    pub(crate) file: String,
    pub(crate) build_id: String,
    pub(crate) has_functions: bool,
    pub(crate) has_filenames: bool,
    pub(crate) has_line_numbers: bool,
    pub(crate) has_inline_frames: bool,
}
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) system_name: String,
    pub(crate) file: String,
    pub(crate) start_line: u64,
}
pub(crate) struct Location {
    pub(crate) mapping: Option<u32>,
    pub(crate) symbol_offset: u64,
}
pub(crate) struct Line {
    pub(crate) function: u32,
    pub(crate) line: u64,
}
pub(crate) fn resolve(_a: &[usize], _d: Detail) -> Symbols {
    Symbols {
        mappings: vec![],
        functions: vec![],
    }
}
impl Symbols {
    pub(crate) fn location(&self, _r: usize) -> Option<&Location> {
        None
    }
    pub(crate) fn lines(&self, _l: &Location) -> &[Line] {
        &[]
    }
}
