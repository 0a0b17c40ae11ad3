//! Files about threads of this process: not available on this system.

use std::convert::Infallible;

/// A directory that no system but Linux has.
pub struct TaskDirectory(Infallible);

/// A file that no system but Linux has.
pub struct TaskFile(Infallible);

/// Returns `None`: the system does not report the number of threads.
#[inline]
pub fn threads() -> Option<usize> {
    None
}

impl TaskDirectory {
    /// Returns an error.
    ///
    /// # Errors
    /// Always 0, which is no error number of the system.
    #[inline]
    pub fn open() -> Result<Self, i32> {
        Err(0)
    }

    /// Is never called.
    pub fn threads(&self) -> Option<Vec<i32>> {
        match self.0 {}
    }

    /// Is never called.
    ///
    /// # Errors
    /// None.
    #[inline]
    pub fn file(&self, _thread: i32, _name: &str) -> Result<TaskFile, i32> {
        match self.0 {}
    }
}

impl TaskFile {
    /// Is never called.
    ///
    /// # Errors
    /// None.
    #[inline]
    pub fn read<'b>(&self, _buffer: &'b mut [u8]) -> Result<&'b [u8], i32> {
        match self.0 {}
    }
}
