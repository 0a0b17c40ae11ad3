//! The result of a measurement.

use std::fmt;
use std::sync::OnceLock;

use plimsoll_sys::primitives::Ordering;

use plimsoll_core::alloc::measured::{Counts, Totals};

/// What was allocated and freed in a measurement, or by the tasks of a [`TaskAccount`]. All counts are
/// exact.
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// let measured = plimsoll::measure(|| String::from("text"));
/// assert_eq!(measured.result, "text");
/// assert_eq!((measured.net_blocks(), measured.net_bytes()), (1, 4));
/// let shown = "1 allocations of 4 bytes, 0 frees of 0 bytes, at most 4 bytes at once";
/// assert_eq!(measured.to_string(), shown);
/// ```
///
/// [`TaskAccount`]: crate::account::TaskAccount
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Measured<R = ()> {
    /// What the measured closure returned.
    pub result: R,
    /// The number of allocations, reallocations included. Refused ones do not count.
    pub allocations: u64,
    /// The number of frees, reallocations included.
    pub frees: u64,
    /// The bytes requested by these allocations; for a reallocation, all of its new size.
    pub allocated_bytes: u64,
    /// The bytes of the freed blocks, as requested at their allocation.
    pub freed_bytes: u64,
    /// The maximum of the bytes allocated less those freed, at any time of the measurement; at least
    /// 0. A reallocation changes the size of a block in one step.
    pub max_bytes: u64,
    /// The maximum of the number of allocations less that of frees, at any time of the measurement; at
    /// least 0.
    pub max_blocks: u64,
    sites: Vec<AllocationSite>,
    without_site: u64,
}

/// The allocations of a measurement with the same stack.
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// let measured = plimsoll::measure::measure_with_sites(|| vec![0u8; 1000]);
/// for site in measured.sites() {
///     assert_eq!((site.allocations, site.bytes), (1, 1000));
///     println!("{} frames", site.stack.len());
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationSite {
    /// The number of allocations.
    pub allocations: u64,
    /// The bytes that they requested.
    pub bytes: u64,
    /// The return addresses, leaf first, for `plimsoll::profile::frames`.
    pub stack: &'static [usize],
}

impl<R> Measured<R> {
    /// Returns the result of a measurement with these counts.
    pub fn from_counts(counts: &Counts, result: R) -> Self {
        let sites = counts.sites().into_iter().flat_map(|sites| sites.iter());
        Self {
            result,
            allocations: counts.allocations.get(),
            frees: counts.frees.get(),
            allocated_bytes: counts.allocated_bytes.get(),
            freed_bytes: counts.freed_bytes.get(),
            max_bytes: counts.max_bytes.get().max(0).unsigned_abs(),
            max_blocks: counts.max_blocks.get().max(0).unsigned_abs(),
            sites: sites
                .map(|(stack, allocations, bytes)| AllocationSite {
                    allocations,
                    bytes,
                    stack,
                })
                .collect(),
            without_site: counts.sites().map_or(0, |sites| sites.others.get()),
        }
    }

    /// Returns the sums of sites.
    pub(crate) fn of_sites(sites: Vec<AllocationSite>) -> Measured {
        Measured {
            allocations: sites.iter().map(|site| site.allocations).sum(),
            allocated_bytes: sites.iter().map(|site| site.bytes).sum(),
            sites,
            ..<Measured>::default()
        }
    }

    /// Returns the counts of an account.
    pub(crate) fn of_account(totals: &Totals) -> Measured {
        Measured {
            result: (),
            allocations: totals.allocations.load(Ordering::Relaxed),
            frees: totals.frees.load(Ordering::Relaxed),
            allocated_bytes: totals.allocated_bytes.load(Ordering::Relaxed),
            freed_bytes: totals.freed_bytes.load(Ordering::Relaxed),
            max_bytes: totals.max_bytes(),
            max_blocks: totals.max_blocks(),
            sites: Vec::new(),
            without_site: 0,
        }
    }

    /// Returns the same counts with another result.
    pub fn with_result<T>(self, result: T) -> Measured<T> {
        Measured {
            result,
            allocations: self.allocations,
            frees: self.frees,
            allocated_bytes: self.allocated_bytes,
            freed_bytes: self.freed_bytes,
            max_bytes: self.max_bytes,
            max_blocks: self.max_blocks,
            sites: self.sites,
            without_site: self.without_site,
        }
    }

    /// Returns the bytes allocated less those freed: negative if blocks were freed that are older than
    /// the measurement.
    pub fn net_bytes(&self) -> i64 {
        self.allocated_bytes.wrapping_sub(self.freed_bytes) as i64
    }

    /// Returns the number of allocations less that of frees.
    pub fn net_blocks(&self) -> i64 {
        self.allocations.wrapping_sub(self.frees) as i64
    }

    /// Returns the allocations by stack, in the order of each stack's first. Empty unless the
    /// measurement records stacks.
    pub fn sites(&self) -> &[AllocationSite] {
        &self.sites
    }
}

/// Returns a line for each of these sites, in their order.
type Describe = fn(&[AllocationSite]) -> Vec<String>;

static DESCRIBE: OnceLock<Describe> = OnceLock::new();

/// Registers what names the functions of sites. Without it, a site is shown as addresses. The first one stays.
pub fn describe_sites_by(describe: Describe) {
    let _ = DESCRIBE.set(describe);
}

/// Shows a site as addresses, leaf first.
fn addresses(site: &AllocationSite) -> String {
    let addresses = site.stack.iter().map(|address| format!("{address:#x}"));
    addresses.collect::<Vec<_>>().join(" < ")
}

/// The counts in one line, then a line for each site.
impl<R> fmt::Display for Measured<R> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "{} allocations of {} bytes, {} frees of {} bytes, at most {} bytes at once",
            self.allocations, self.allocated_bytes, self.frees, self.freed_bytes, self.max_bytes
        )?;
        let texts = match DESCRIBE.get() {
            Some(describe) => describe(&self.sites),
            None => self.sites.iter().map(addresses).collect(),
        };
        // A compiler that copies a call makes several stacks of one line.
        let mut lines: Vec<(String, u64, u64)> = Vec::new();
        for (site, text) in self.sites.iter().zip(texts) {
            match lines.iter_mut().find(|(known, ..)| *known == text) {
                Some((_, allocations, bytes)) => {
                    *allocations += site.allocations;
                    *bytes += site.bytes;
                }
                None => lines.push((text, site.allocations, site.bytes)),
            }
        }
        for (text, allocations, bytes) in lines {
            write!(to, "\n  {allocations} of {bytes} bytes: {text}")?;
        }
        if self.without_site > 0 {
            write!(
                to,
                "\n  {} at sites that are not recorded",
                self.without_site
            )?;
        }
        Ok(())
    }
}
