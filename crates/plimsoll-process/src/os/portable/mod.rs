//! Every system but Linux. Figures that only Linux has are absent.

pub mod cgroup;
pub mod code_mappings;
pub mod copied_memory;
pub mod cpus;
pub mod handler_stacks;
pub mod residency;
pub mod smaps;
pub mod task_file;
pub mod wipe_on_fork;

#[cfg(not(unix))]
#[path = "no_unix/file_size.rs"]
pub mod file_size;
#[cfg(unix)]
#[path = "unix/file_size.rs"]
pub mod file_size;
