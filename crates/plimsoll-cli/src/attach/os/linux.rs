//! Linux.

pub(crate) use plimsoll_attach::attach::attach;
pub(crate) use plimsoll_attach::tasks::tasks;
