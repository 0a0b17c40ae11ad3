//! gc-arena's arenas, with their collections in Plimsoll's statistics and heap profiles.
//!
//! [`Arena`] replaces [`gc_arena::Arena`] and has its methods, with unchanged behaviour. Each call
//! that collects is a pause of its thread, in [`plimsoll::gc_stats()`], [`plimsoll::mem_stats()`]
//! and [`plimsoll::metrics`]. The heap profile follows its cycles, as Go's follows those of Go's
//! collector.
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
//!   counted at the end of marking, when [`CollectionPhase`] goes from `Marked` to `Sweeping`. This
//!   also holds if a call runs several phases, since [`Arena`] drives each phase by a separate
//!   call.
//! * Each call that collects is one pause for each cycle on which it works. The program's work in
//!   [`MarkedArena::finalize`] is not a pause.
//! * Memory that is freed by sweeping counts as freed in that cycle.
//! * A cycle is forced if [`Arena::finish_cycle`] or [`Arena::finish_marking`] begins it. So is one
//!   that [`plimsoll::gc::collect`] or `/debug/pprof/heap?gc=1` requested.
//! * Live bytes are those of marked objects with a [`Weight`].
//!
//! # What gc-arena does not report
//! * **Bytes.** gc-arena counts objects, not bytes, and determines live objects only by sweeping.
//!   An object with a [`Weight`] reports its size at marking. Without weights, live bytes and goal
//!   are 0, which means unknown.
//! * **The goal** in bytes. [`Pacing`] determines the number of new objects after which the next
//!   cycle begins. The goal assumes that they are as large as the live ones. It follows
//!   [`Arena::set_pacing`]: a pacing set by [`Metrics::set_pacing`] cannot be read back.
//! * **Finalizers.** The caller of [`MarkedArena::finalize`] knows their number, and may report it
//!   to [`Arena::collector`] with `add`.
//! * **The collector's own memory**: its queues, and the two words before each object, which the
//!   allocator counts as part of the object.
//! * **Scannable bytes.** gc-arena does not provide such a figure.
//! * [`plimsoll::gc::memory_limit`] has no effect, since gc-arena decides on collections without
//!   knowledge of bytes. [`plimsoll::gc::percent`] has one on request:
//!   [`Arena::follow_percent`].
//!
//! # Requests
//! A request for a collection waits until the arenas' own threads call one of the collecting
//! methods. An idle arena does not respond, and a request for the heap profile with `gc=1` then
//! takes its full time limit. A program whose scripts pause should check
//! `arena.collector().is_wanted()` periodically.
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
