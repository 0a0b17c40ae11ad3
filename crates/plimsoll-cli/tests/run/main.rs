//! `plimsoll run`: unmodified programs behave as they do without it, and its report about them is
//! true.

mod blocks;
mod children;
mod compare;
mod confined;
mod cpu;
mod endings;
mod environment;
mod figures;
mod file_size;
mod first_process;
mod frames;
mod generated;
mod hostile;
mod inside;
mod killed;
mod list;
mod loading;
mod many;
mod mappings;
mod maximum;
mod memory;
#[path = "../port/mod.rs"]
mod port;
mod probes;
mod python;
mod refused;
mod resident;
mod scene;
mod signals;
mod sites;
mod sizes;
mod temporary;
mod threads;
mod wall;
mod well_known;
