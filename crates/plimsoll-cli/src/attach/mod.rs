//! `plimsoll attach` and `plimsoll tasks`, which the crate `plimsoll-attach` implements on Linux.

mod os;

pub(crate) use os::{attach, tasks};
