//! A profile as it was read, before it has names or a format.

/// What a value counts, and in what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueType {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
}

/// The most values that a sample has.
pub(crate) const MOST_VALUES: usize = 4;

/// A profile for the binary format.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// At most [`MOST_VALUES`].
    pub(crate) sample_types: &'static [ValueType],
    /// The name of the type that viewers show first; empty for the last.
    pub(crate) default_type: &'static str,
    pub(crate) period_type: ValueType,
    /// 0 to leave it out.
    pub(crate) period: i64,
    /// When the reading was taken, in nanoseconds since 1970.
    pub(crate) time_nanos: i64,
    /// How long it covers, in nanoseconds; 0 for everything since the process began.
    pub(crate) duration_nanos: i64,
    pub(crate) samples: Vec<Sample>,
    /// Lines for whoever looks at the profile.
    pub(crate) comments: Vec<String>,
}

/// One stack with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) stack: Stack,
    /// As many as there are sample types.
    pub(crate) values: [i64; MOST_VALUES],
    /// The size of the objects in bytes, where that is part of what a sample is.
    pub(crate) bytes: Option<i64>,
}

/// Where something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stack {
    /// Return addresses, leaf first.
    Frames(&'static [usize]),
    /// Not known, with the reason.
    Unknown(&'static str),
}

impl Stack {
    pub(crate) fn frames(&self) -> &'static [usize] {
        match self {
            Self::Frames(frames) => frames,
            Self::Unknown(_) => &[],
        }
    }
}

/// A profile for the text format.
#[derive(Clone, Debug)]
pub(crate) struct TextReading {
    /// What comes first, with its line ends.
    pub(crate) head: String,
    /// In the order in which they are printed: what stands before the addresses, and the stack.
    pub(crate) rows: Vec<(String, &'static [usize])>,
    /// What comes last, with its line ends.
    pub(crate) tail: String,
}

/// Now, in nanoseconds since 1970.
pub(crate) fn now_nanos() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    })
}
