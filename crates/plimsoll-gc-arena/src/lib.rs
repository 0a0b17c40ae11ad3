//! gc-arena's arenas, with their collections in Plimsoll's statistics and heap profiles.
//!
//! [`Arena`] stands in place of [`gc_arena::Arena`] and has its methods. What the arena does, it
//! does as before; each call that collects is a pause of its thread, in [`plimsoll::gc_stats()`],
//! [`plimsoll::mem_stats()`] and [`plimsoll::metrics`], and the heap profile follows its cycles, as
//! Go's follows those of Go's collector.
//!
//! ```
//! use gc_arena::{Collect, Gc, Rootable};
//! use plimsoll_gc_arena::{Arena, Weight};
//!
//! #[global_allocator]
//! static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
//!
//! #[derive(Collect)]
//! #[collect(no_drop)]
//! struct Node<'gc> {
//!     next: Option<Gc<'gc, Node<'gc>>>,
//!     weight: Weight,
//! }
//!
//! let mut arena = Arena::<Rootable![Option<Gc<'_, Node<'_>>>]>::with_name("script", |_| None)?;
//! arena.mutate_root(|mutation, root| {
//!     let weight = Weight::of::<Node>();
//!     *root = Some(Gc::new(mutation, Node { next: None, weight }));
//! });
//! arena.finish_cycle();
//! assert_eq!(arena.cycles(), 1);
//! assert_eq!(arena.live_bytes(), Weight::of::<Node>().bytes() as u64);
//! # Ok::<(), plimsoll::gc::Error>(())
//! ```
//!
//! # What is reported
//! * A cycle begins when the collector leaves its sleep and ends when it sleeps again. It is
//!   counted at the end of marking, when [`CollectionPhase`] goes from `Marked` to `Sweeping`: also
//!   if a call runs through several phases, since each is driven by a call of its own.
//! * Each call that collects is a pause: one for each cycle that it works for. What the program
//!   does in [`MarkedArena::finalize`] is none.
//! * Whatever is freed by sweeping counts as freed in that cycle.
//! * A cycle that [`Arena::finish_cycle`] or [`Arena::finish_marking`] begins, and one that was
//!   asked for by [`plimsoll::gc::collect`] or `/debug/pprof/heap?gc=1`, is a forced one.
//! * Live bytes are those of what has a [`Weight`] and was marked.
//!
//! # What gc-arena does not tell
//! * **Bytes.** gc-arena counts objects, not bytes, and what is live only by sweeping. An object
//!   that has a [`Weight`] says at marking how much it is; without weights, live bytes and goal are
//!   0, which means that they are not known.
//! * **The goal** in bytes. The next cycle begins after as many new objects as [`Pacing`] says; the
//!   goal is what these come to if they are as large as those that are live. It follows what was
//!   set by [`Arena::set_pacing`]: what is set by [`Metrics::set_pacing`] cannot be read back.
//! * **Finalizers.** How many there are knows whoever calls [`MarkedArena::finalize`], who may
//!   report them to [`Arena::collector`] with `add`.
//! * **The collector's own memory**: its queues, and the two words before each object, which the
//!   allocator counts as part of the object.
//! * **What was scanned**: nothing is said of scannable bytes.
//! * [`plimsoll::gc::memory_limit`] is not followed, since bytes are not known where gc-arena
//!   decides when to collect. [`plimsoll::gc::percent`] is, if asked for:
//!   [`Arena::follow_percent`].
//!
//! # Requests
//! Who asks for a collection waits until the arenas' own threads have called one of the collecting
//! methods: an arena that is idle does not answer, and a request for the heap profile with `gc=1`
//! then takes as long as it waits at most. A program whose scripts rest should look at
//! `arena.collector().is_wanted()` now and then.
//!
//! [`CollectionPhase`]: gc_arena::arena::CollectionPhase
//! [`Pacing`]: gc_arena::metrics::Pacing
//! [`Metrics::set_pacing`]: gc_arena::metrics::Metrics::set_pacing

mod arena;
mod course;
mod weight;

pub use arena::{Arena, MarkedArena};
pub use gc_arena;
pub use weight::Weight;
