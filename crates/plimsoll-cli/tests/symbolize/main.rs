//! `plimsoll symbolize`: profiles without names are completed where the program is not.

#[path = "../command/mod.rs"]
mod command;
mod moved;
mod scene;
mod servers;
mod supplied;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
