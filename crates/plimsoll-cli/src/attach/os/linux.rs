//! Linux.

pub(crate) use plimsoll_attach::attach::attach;
