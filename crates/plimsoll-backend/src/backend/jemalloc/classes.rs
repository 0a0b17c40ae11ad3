//! jemalloc's memory for each size class, from the copy of its statistics.
//!
//! A refresh copies the figures under the lock of each bin in turn, so the figures of one bin are
//! of one moment. Another caller may refresh between two reads; so each class is read again until
//! all its figures come from the same copy.

use std::ffi::c_uint;

use super::arenas::{ALL, refresh};
use super::control::{self, Name};
use crate::backend::LARGEST_CLASS;
use crate::backend::SizeClass;

/// The maximum number of attempts to read a class.
const TRIES: usize = 1000;

/// Space for the classes of blocks with separate pages, up to [`LARGEST_CLASS`]; jemalloc has five.
const MAX_LARGE: usize = 16;

/// Visits all classes by size, from a new copy. Returns false if this jemalloc keeps no statistics,
/// or none that yield sizes.
pub(super) fn visit(visit: &mut dyn FnMut(SizeClass)) -> bool {
    Statistics::find()
        .filter(|_| refresh().is_some())
        .and_then(|statistics| statistics.visit(visit))
        .is_some()
}

/// The controls to read, with 0 in place of the class.
struct Statistics {
    epoch: Name,
    bins: usize,
    size: Name,
    slab_blocks: Name,
    slab_bytes: Name,
    in_use: Name,
    slabs: Name,
    larger: usize,
    large_size: Name,
    large_in_use: Name,
    large_bytes: Name,
    /// Extra bytes of each large block, which spread their starts over the lines of the cache.
    beside: usize,
}

impl Statistics {
    fn find() -> Option<Self> {
        // SAFETY: the controls have these types.
        let (has_statistics, is_shifted, bins, larger) = unsafe {
            (
                control::read::<bool>(c"config.stats")?,
                control::read::<bool>(c"opt.cache_oblivious")?,
                control::read::<c_uint>(c"arenas.nbins")? as usize,
                control::read::<c_uint>(c"arenas.nlextents")? as usize,
            )
        };
        if !has_statistics {
            return None;
        }
        let of_all = |name| Some(Name::find(name)?.with(2, ALL));
        Some(Self {
            epoch: Name::find(c"epoch")?,
            bins,
            size: Name::find(c"arenas.bin.0.size")?,
            slab_blocks: Name::find(c"arenas.bin.0.nregs")?,
            slab_bytes: Name::find(c"arenas.bin.0.slab_size")?,
            in_use: of_all(c"stats.arenas.0.bins.0.curregs")?,
            slabs: of_all(c"stats.arenas.0.bins.0.curslabs")?,
            larger,
            large_size: Name::find(c"arenas.lextent.0.size")?,
            large_in_use: of_all(c"stats.arenas.0.lextents.0.curlextents")?,
            large_bytes: of_all(c"stats.arenas.0.large.allocated")?,
            beside: if is_shifted { control::page_size()? } else { 0 },
        })
    }

    fn visit(&self, visit: &mut dyn FnMut(SizeClass)) -> Option<()> {
        for bin in 0..self.bins {
            visit(self.of_one_copy(|| self.bin(bin))?);
        }
        let large = self.of_one_copy(|| self.large())?;
        let classes = large.into_iter().filter(|class| class.largest > 0);
        classes.for_each(visit);
        Some(())
    }

    fn of_one_copy<T>(&self, read: impl Fn() -> Option<T>) -> Option<T> {
        // SAFETY: the control has this type. Reading it does not refresh the copy.
        let epoch = || unsafe { self.epoch.read::<u64>() };
        for _ in 0..TRIES {
            let before = epoch()?;
            let value = read()?;
            if epoch()? == before {
                return Some(value);
            }
        }
        None
    }

    fn bin(&self, bin: usize) -> Option<SizeClass> {
        // SAFETY: the controls have these types.
        let (size, blocks, bytes, in_use, slabs) = unsafe {
            (
                self.size.with(2, bin).read::<usize>()?,
                u64::from(self.slab_blocks.with(2, bin).read::<u32>()?),
                self.slab_bytes.with(2, bin).read::<usize>()? as u64,
                self.in_use.with(4, bin).read::<usize>()? as u64,
                self.slabs.with(4, bin).read::<usize>()? as u64,
            )
        };
        Some(SizeClass {
            largest: size,
            room: slabs * blocks,
            in_use,
            in_use_bytes: in_use * size as u64,
            active: slabs * bytes,
        })
    }

    /// Returns the classes of blocks with separate pages. Above [`LARGEST_CLASS`], jemalloc counts by
    /// classes to which it does not round up. Those become one class here, with the remainder of
    /// the sum.
    fn large(&self) -> Option<[SizeClass; MAX_LARGE + 1]> {
        let mut classes = [SizeClass::default(); MAX_LARGE + 1];
        let (mut count, mut above) = (0, SizeClass::default());
        for class in 0..self.larger {
            // SAFETY: the controls have these types.
            let (size, in_use) = unsafe {
                (
                    self.large_size.with(2, class).read::<usize>()?,
                    self.large_in_use.with(4, class).read::<usize>()? as u64,
                )
            };
            if size <= LARGEST_CLASS && count < MAX_LARGE {
                classes[count] = self.of_large(size, in_use, in_use * size as u64);
                count += 1;
            } else {
                above.in_use += in_use;
            }
        }
        // SAFETY: the control has this type.
        let all = unsafe { self.large_bytes.read::<usize>()? } as u64;
        let below: u64 = classes.iter().map(|class| class.in_use_bytes).sum();
        classes[count] = self.of_large(usize::MAX, above.in_use, all.checked_sub(below)?);
        Some(classes)
    }

    fn of_large(&self, largest: usize, in_use: u64, in_use_bytes: u64) -> SizeClass {
        SizeClass {
            largest,
            room: in_use,
            in_use,
            in_use_bytes,
            active: in_use_bytes + in_use * self.beside as u64,
        }
    }
}
