//! Linux.

pub mod cgroup;
pub mod code_mappings;
pub mod copied_memory;
pub mod cpus;
pub mod file_size;
pub mod handler_stacks;
mod mapping;
mod mapping_query;
mod page_scan;
pub mod realtime_signal;
pub mod residency;
mod resident_mappings;
pub mod robust_list;
pub mod smaps;
pub mod task_file;
pub mod wipe_on_fork;
