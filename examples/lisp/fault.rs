//! Faults of a script, with their positions.

use std::fmt;

/// The maximum number of callers that a fault names.
pub const MAX_CALLERS: usize = 8;

/// A fault in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub line: u32,
    pub message: String,
    /// Functions that were being executed, innermost first, each with its line.
    pub callers: Vec<(String, u32)>,
    /// The number of further callers.
    pub more_callers: usize,
}

impl Fault {
    pub fn new(line: u32, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
            callers: Vec::new(),
            more_callers: 0,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)?;
        for (function, line) in &self.callers {
            write!(f, "\n  in {function}, line {line}")?;
        }
        if self.more_callers > 0 {
            write!(f, "\n  and {} more", self.more_callers)?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
