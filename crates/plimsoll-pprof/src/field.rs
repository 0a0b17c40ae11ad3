//! The numbers of the fields of pprof's messages.

pub(super) mod profile {
    pub(in super::super) const SAMPLE_TYPE: u64 = 1;
    pub(in super::super) const SAMPLE: u64 = 2;
    pub(in super::super) const MAPPING: u64 = 3;
    pub(in super::super) const LOCATION: u64 = 4;
    pub(in super::super) const FUNCTION: u64 = 5;
    pub(in super::super) const STRING_TABLE: u64 = 6;
    pub(in super::super) const DROP_FRAMES: u64 = 7;
    pub(in super::super) const KEEP_FRAMES: u64 = 8;
    pub(in super::super) const TIME_NANOS: u64 = 9;
    pub(in super::super) const DURATION_NANOS: u64 = 10;
    pub(in super::super) const PERIOD_TYPE: u64 = 11;
    pub(in super::super) const PERIOD: u64 = 12;
    pub(in super::super) const COMMENT: u64 = 13;
    pub(in super::super) const DEFAULT_SAMPLE_TYPE: u64 = 14;
}
pub(super) mod value_type {
    pub(in super::super) const NAME: u64 = 1;
    pub(in super::super) const UNIT: u64 = 2;
}
pub(super) mod sample {
    pub(in super::super) const LOCATION_ID: u64 = 1;
    pub(in super::super) const VALUE: u64 = 2;
    pub(in super::super) const LABEL: u64 = 3;
}
pub(super) mod label {
    pub(in super::super) const KEY: u64 = 1;
    pub(in super::super) const TEXT: u64 = 2;
    pub(in super::super) const NUMBER: u64 = 3;
    pub(in super::super) const UNIT: u64 = 4;
}
pub(super) mod mapping {
    pub(in super::super) const ID: u64 = 1;
    pub(in super::super) const MEMORY_START: u64 = 2;
    pub(in super::super) const MEMORY_LIMIT: u64 = 3;
    pub(in super::super) const FILE_OFFSET: u64 = 4;
    pub(in super::super) const FILENAME: u64 = 5;
    pub(in super::super) const BUILD_ID: u64 = 6;
    pub(in super::super) const HAS_FUNCTIONS: u64 = 7;
}
pub(super) mod location {
    pub(in super::super) const ID: u64 = 1;
    pub(in super::super) const MAPPING_ID: u64 = 2;
    pub(in super::super) const ADDRESS: u64 = 3;
    pub(in super::super) const LINE: u64 = 4;
}
pub(super) mod line {
    pub(in super::super) const FUNCTION_ID: u64 = 1;
    pub(in super::super) const LINE: u64 = 2;
}
pub(super) mod function {
    pub(in super::super) const ID: u64 = 1;
    pub(in super::super) const NAME: u64 = 2;
    pub(in super::super) const SYSTEM_NAME: u64 = 3;
    pub(in super::super) const FILENAME: u64 = 4;
    pub(in super::super) const START_LINE: u64 = 5;
}
