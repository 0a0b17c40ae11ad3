//! Functions of POSIX, which Linux and the other Unix systems share.

pub mod atfork;
pub mod close_on_fork;
pub mod environment;
pub mod own_descriptor;
pub mod signals;
pub mod thread_end;
pub mod threads;
