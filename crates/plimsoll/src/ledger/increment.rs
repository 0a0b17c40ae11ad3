//! One operation, one word: the instruction sequence on which the cost of counting rests.

/// Whether [`macro@increment`] is made of restartable sequences on this platform. Otherwise it is
/// the ordinary Rust of [`super::per_thread`], and [`super::Protocol::PerCpu`] is not to be had.
pub(crate) const HAS_SEQUENCES: bool = cfg!(all(
    target_os = "linux",
    target_arch = "x86_64",
    not(any(miri, plimsoll_portable))
));

/// Adds 1 to a word of a ledger: `increment!(LEDGER, area, offset, FIRST)` adds to the word that
/// lies `offset` bytes after the word numbered `FIRST` (a literal), in the shard that `area` stands
/// for.
///
/// Seven instructions on x86-64, none of them locked, for both protocols:
///
/// ```text
///     lea   descriptor, %t          announce: in a per-CPU shard, to the kernel, which restarts the
///     mov   %t, 8(area)                       sequence if the thread is disturbed before its last
///                                             instruction; in a per-thread shard, to the reader
///     imul  $8192, (area), %t       which shard: the processor's number, or the thread's own
///     add   LEDGER.current, %t      which generation, and where shards are
///     incq  FIRST(%t, offset)       count: the last instruction, the commit
///     movq  $0, 8(area)             done
/// ```
///
/// Safety: `area` comes from `LEDGER.area()` for the calling thread, which has not retired since;
/// and `offset` is a multiple of 8 that keeps within the delta.
macro_rules! increment {
    ($ledger:path, $area:expr, $offset:expr, $first:literal) => {
        $crate::ledger::increment!(
            @ $ledger, $area,
            concat!("inc qword ptr [{t} + {offset} + 8*", $first, "]"),
            { offset = in(reg) $offset, },
            $first + $offset / 8, 1
        )
    };
    (@ $ledger:path, $area:expr, $count:expr, {$($operands:tt)*}, $word:expr, $amount:expr) => {{
        #[cfg(all(target_os = "linux", target_arch = "x86_64", not(any(miri, plimsoll_portable))))]
        std::arch::asm!(
            "771:",
            "lea {t}, [rip + 773f]",
            "mov qword ptr [{area} + 8], {t}",
            "774:",
            "imul {t:e}, dword ptr [{area}], 8192",
            "add {t}, qword ptr [rip + {ledger}]",
            $count,
            "775:",
            "mov qword ptr [{area} + 8], 0",
            // The descriptor: version, flags, start, length, where to go on after a disturbance.
            ".pushsection .data.rel.ro.plimsoll_sequences,\"aw\"",
            ".balign 32",
            "773:",
            ".long 0, 0",
            ".quad 774b, 775b - 774b, 776f",
            ".popsection",
            // The way back in, behind the signature that the C library registered: an undefined
            // instruction that carries the number, so that nothing else can jump here.
            ".pushsection .text.unlikely.plimsoll_sequences,\"ax\"",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "776:",
            "jmp 771b",
            ".popsection",
            area = in(reg) $area,
            $($operands)*
            t = out(reg) _,
            ledger = sym $ledger,
            options(nostack),
        );
        #[cfg(not(all(target_os = "linux", target_arch = "x86_64", not(any(miri, plimsoll_portable)))))]
        $ledger.add_portably($area, $word, $amount);
    }};
}

/// Adds `amount` to word `WORD` of the delta, a literal, as [`increment`] does 1 to another.
///
/// Safety: as there.
#[cfg(feature = "preload")]
macro_rules! add {
    ($ledger:path, $area:expr, $word:literal, $amount:expr) => {
        $crate::ledger::increment!(
            @ $ledger, $area,
            concat!("add qword ptr [{t} + 8*", $word, "], {amount}"),
            { amount = in(reg) $amount, },
            $word, $amount
        )
    };
}

#[cfg(feature = "preload")]
pub(crate) use add;
pub(crate) use increment;

#[cfg(not(all(
    target_os = "linux",
    target_arch = "x86_64",
    not(any(miri, plimsoll_portable))
)))]
impl<D: super::Delta> super::Ledger<D> {
    /// What the macros do, in ordinary Rust: in the shard that owns the area.
    ///
    /// # Safety
    /// As for `increment`.
    #[inline]
    pub(crate) unsafe fn add_portably(
        &self,
        area: *mut crate::os::rseq::Area,
        word: usize,
        amount: u64,
    ) {
        // SAFETY: the caller's; areas are only given out for per-thread shards here.
        let shard = unsafe { super::ShardIndex::of_area(area) };
        self.per_thread
            .record(shard, &[(word, amount)], || self.generation());
    }
}
