//! Settings, which are not kept, and a [`Plimsoll`] that is never on.

use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::memory_limit::{MemoryLimit, set_memory_limit};
use crate::notice::NOT_COMPILED_IN;

pub fn start() -> Plimsoll {
    config().start()
}

#[derive(Clone, Debug, Default)]
#[must_use = "settings do nothing until `start`"]
pub struct Config {
    memory_limit: Option<MemoryLimit>,
}

#[inline]
pub fn config() -> Config {
    Config::default()
}

macro_rules! setters {
    ($($name:ident($($kind:ty)?);)*) => {
        $(
            #[inline]
            pub fn $name(self $(, _: $kind)?) -> Self {
                self
            }
        )*
    };
}

impl Config {
    setters! {
        http(impl Into<String>);
        http_host(impl Into<String>);
        http_token(impl Into<String>);
        out(impl Into<PathBuf>);
        heap_rate(usize);
        block_rate(Duration);
        mutex_fraction(u32);
        cpu_rate(u32);
        history(usize);
        growth(Duration);
        give_back(Duration);
        leak_age(Duration);
        long_poll(Duration);
        task_times(bool);
        go_names(bool);
        stack_depth(usize);
        dump_on_sigquit();
        out_on_sigterm();
        out_on_sigint();
        dump_on_panic();
        thread_signal(i32);
        off();
    }

    // Collectors of the program follow it.
    #[inline]
    pub fn memory_limit(mut self, limit: MemoryLimit) -> Self {
        self.memory_limit = Some(limit);
        self
    }

    pub fn start(self) -> Plimsoll {
        if let Some(limit) = self.memory_limit {
            let _ = set_memory_limit(limit);
        }
        static WARNED: AtomicBool = AtomicBool::new(false);
        if !WARNED.swap(true, Ordering::Relaxed) {
            let text = std::env::var_os("PLIMSOLL").unwrap_or_default();
            let text = text.to_string_lossy();
            let mut words = text.split(',').map(str::trim);
            if words.any(|word| !matches!(word, "" | "off")) {
                let line = format!("plimsoll: PLIMSOLL has no effect: {NOT_COMPILED_IN}\n");
                // In one write, and unlike `eprintln!`, no panic if it fails.
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
        }
        Plimsoll(())
    }
}

#[must_use = "dropping the value stops the pages and writes the profiles"]
pub struct Plimsoll(());

impl Plimsoll {
    #[inline]
    pub fn switch_off(&mut self) {}

    #[inline]
    pub fn switch_on(&mut self) {}

    #[inline]
    pub fn is_on(&self) -> bool {
        false
    }

    #[inline]
    pub fn http_address(&self) -> Option<SocketAddr> {
        None
    }
}

impl fmt::Debug for Plimsoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plimsoll")
            .field("is_on", &self.is_on())
            .finish_non_exhaustive()
    }
}

impl Drop for Plimsoll {
    #[inline]
    fn drop(&mut self) {}
}
