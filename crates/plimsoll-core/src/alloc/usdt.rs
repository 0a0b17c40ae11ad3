//! Probes that a tracer outside the process can read: user-level statically defined tracing (USDT).
//!
//! These are the memory probes of OpenTelemetry's eBPF profiler (its design document 00003, memory
//! profiling), of the provider `otel_memory`. A tracer finds each by an ELF note of the section
//! `.note.stapsdt`, and places a breakpoint on a `nop`. Until then, a probe is a call of a function that
//! returns. The probes have no semaphore: allocations are sampled in any case.
//!
//! The arguments of a probe are unsigned numbers of 8 bytes in the registers of a C function's first
//! arguments. The first readers take them from there, without regard to the note.
//!
//! Linux on x86-64 and aarch64 has the probes; elsewhere these functions do nothing.

mod arch;

/// Fires `otel_memory:alloc`, for a sampled allocation. `size` is in bytes. `weight` is the number of
/// allocated bytes that the sample stands for. For hooks.
#[inline]
pub fn alloc(block: *mut u8, size: usize, weight: u64) {
    arch::probe_alloc(block.addr(), size as u64, weight);
}

/// Fires `otel_memory:free`, for a block for which [`alloc`] was fired, while no other thread can receive
/// its address. For hooks.
#[inline]
pub fn free(block: *mut u8) {
    arch::probe_free(block.addr());
}
