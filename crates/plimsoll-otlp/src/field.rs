//! The numbers of the fields of OTLP's messages.

pub(crate) mod request {
    pub(crate) const RESOURCE_PROFILES: u64 = 1;
    pub(crate) const DICTIONARY: u64 = 2;
}
pub(crate) mod dictionary {
    pub(crate) const MAPPING: u64 = 1;
    pub(crate) const LOCATION: u64 = 2;
    pub(crate) const FUNCTION: u64 = 3;
    pub(crate) const LINK: u64 = 4;
    pub(crate) const STRING: u64 = 5;
    pub(crate) const ATTRIBUTE: u64 = 6;
    pub(crate) const STACK: u64 = 7;
}
pub(crate) mod resource_profiles {
    pub(crate) const RESOURCE: u64 = 1;
    pub(crate) const SCOPE_PROFILES: u64 = 2;
}
pub(crate) mod resource {
    pub(crate) const ATTRIBUTES: u64 = 1;
}
pub(crate) mod scope_profiles {
    pub(crate) const SCOPE: u64 = 1;
    pub(crate) const PROFILES: u64 = 2;
}
pub(crate) mod scope {
    pub(crate) const NAME: u64 = 1;
    pub(crate) const VERSION: u64 = 2;
    pub(crate) const ATTRIBUTES: u64 = 3;
}
pub(crate) mod profile {
    pub(crate) const SAMPLE_TYPE: u64 = 1;
    pub(crate) const SAMPLES: u64 = 2;
    pub(crate) const TIME_UNIX_NANO: u64 = 3;
    pub(crate) const DURATION_NANO: u64 = 4;
    pub(crate) const PERIOD_TYPE: u64 = 5;
    pub(crate) const PERIOD: u64 = 6;
    pub(crate) const DROPPED_ATTRIBUTES_COUNT: u64 = 8;
    pub(crate) const ATTRIBUTE_INDICES: u64 = 11;
}
pub(crate) mod value_type {
    pub(crate) const TYPE: u64 = 1;
    pub(crate) const UNIT: u64 = 2;
}
pub(crate) mod sample {
    pub(crate) const STACK_INDEX: u64 = 1;
    pub(crate) const ATTRIBUTE_INDICES: u64 = 2;
    pub(crate) const VALUES: u64 = 4;
}
pub(crate) mod mapping {
    pub(crate) const MEMORY_START: u64 = 1;
    pub(crate) const MEMORY_LIMIT: u64 = 2;
    pub(crate) const FILE_OFFSET: u64 = 3;
    pub(crate) const FILENAME: u64 = 4;
    pub(crate) const ATTRIBUTE_INDICES: u64 = 5;
}
pub(crate) mod stack {
    pub(crate) const LOCATION_INDICES: u64 = 1;
}
pub(crate) mod location {
    pub(crate) const MAPPING_INDEX: u64 = 1;
    pub(crate) const ADDRESS: u64 = 2;
    pub(crate) const LINES: u64 = 3;
}
pub(crate) mod line {
    pub(crate) const FUNCTION_INDEX: u64 = 1;
    pub(crate) const LINE: u64 = 2;
}
pub(crate) mod function {
    pub(crate) const NAME: u64 = 1;
    pub(crate) const SYSTEM_NAME: u64 = 2;
    pub(crate) const FILENAME: u64 = 3;
    pub(crate) const START_LINE: u64 = 4;
}
/// An attribute of the dictionary.
pub(crate) mod key_value_and_unit {
    pub(crate) const KEY: u64 = 1;
    pub(crate) const VALUE: u64 = 2;
    pub(crate) const UNIT: u64 = 3;
}
/// An attribute of a resource or a scope.
pub(crate) mod key_value {
    pub(crate) const KEY: u64 = 1;
    pub(crate) const VALUE: u64 = 2;
}
pub(crate) mod any_value {
    pub(crate) const STRING: u64 = 1;
    pub(crate) const INT: u64 = 3;
    pub(crate) const ARRAY: u64 = 5;
}
pub(crate) mod array_value {
    pub(crate) const VALUES: u64 = 1;
}
