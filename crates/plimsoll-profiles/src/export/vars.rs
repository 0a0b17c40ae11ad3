//! The variables that Go's `expvar` publishes for every program, as JSON: the arguments, and
//! `runtime.MemStats` under Go's names. Also the program's accounts of memory, if any.

use std::fmt::{self, Write};

use plimsoll_stats::json::put_string;
use plimsoll_stats::stats::{AccountStats, DeclaredStats, MemStats};

/// Returns the content of Go's `/debug/vars`.
pub fn write(
    arguments: &[String],
    memory: &MemStats,
    accounts: &[AccountStats],
    declared: &[DeclaredStats],
) -> String {
    let mut out = String::with_capacity(8 << 10);
    put(&mut out, arguments, memory, accounts, declared).expect("writing to a string cannot fail");
    out
}

fn put(
    out: &mut String,
    arguments: &[String],
    memory: &MemStats,
    accounts: &[AccountStats],
    declared: &[DeclaredStats],
) -> fmt::Result {
    out.push_str("{\n\"cmdline\": ");
    put_list(out, arguments, |out, argument| put_string(out, argument))?;
    out.push_str(",\n\"memstats\": {");
    for (name, value) in [
        ("Alloc", memory.alloc),
        ("TotalAlloc", memory.total_alloc),
        ("Sys", memory.sys),
        ("Lookups", memory.lookups),
        ("Mallocs", memory.mallocs),
        ("Frees", memory.frees),
        ("HeapAlloc", memory.heap_alloc),
        ("HeapSys", memory.heap_sys),
        ("HeapIdle", memory.heap_idle),
        ("HeapInuse", memory.heap_inuse),
        ("HeapReleased", memory.heap_released),
        ("HeapObjects", memory.heap_objects),
        ("StackInuse", memory.stack_inuse),
        ("StackSys", memory.stack_sys),
        ("MSpanInuse", memory.mspan_inuse),
        ("MSpanSys", memory.mspan_sys),
        ("MCacheInuse", memory.mcache_inuse),
        ("MCacheSys", memory.mcache_sys),
        ("BuckHashSys", memory.buck_hash_sys),
        ("GCSys", memory.gc_sys),
        ("OtherSys", memory.other_sys),
        ("NextGC", memory.next_gc),
        ("LastGC", memory.last_gc),
        ("PauseTotalNs", memory.pause_total_ns),
        ("NumGC", memory.num_gc.into()),
        ("NumForcedGC", memory.num_forced_gc.into()),
    ] {
        write!(out, "\"{name}\":{value},")?;
        if name == "PauseTotalNs" {
            for (name, times) in [
                ("PauseNs", &memory.pause_ns),
                ("PauseEnd", &memory.pause_end),
            ] {
                write!(out, "\"{name}\":")?;
                put_list(out, times, |out, time| write!(out, "{time}"))?;
                out.push(',');
            }
        }
    }
    // JSON cannot represent infinity.
    let share = if memory.gc_cpu_fraction.is_finite() {
        memory.gc_cpu_fraction
    } else {
        0.0
    };
    write!(
        out,
        "\"GCCPUFraction\":{share},\"EnableGC\":{},\"DebugGC\":{},\"BySize\":",
        memory.enable_gc, memory.debug_gc
    )?;
    put_list(out, &memory.by_size, |out, class| {
        write!(
            out,
            "{{\"Size\":{},\"Mallocs\":{},\"Frees\":{}}}",
            class.size, class.mallocs, class.frees
        )
    })?;
    out.push('}');
    if !accounts.is_empty() {
        out.push_str(",\n\"plimsoll_accounts\": ");
        put_list(out, accounts, |out, account| {
            out.push_str("{\"Name\":");
            put_string(out, account.name)?;
            write!(
                out,
                ",\"Reserved\":{},\"Committed\":{},\"Excess\":{}}}",
                account.reserved, account.committed, account.excess
            )
        })?;
    }
    if !declared.is_empty() {
        out.push_str(",\n\"plimsoll_declared\": ");
        put_list(out, declared, |out, account| {
            out.push_str("{\"Path\":");
            put_string(out, &account.path)?;
            write!(
                out,
                ",\"Declared\":{},\"PeakDeclared\":{},\"Allocated\":{},\"PeakAllocated\":{},\"Excess\":{}}}",
                account.declared,
                account.peak_declared,
                account.allocated,
                account.peak_allocated,
                account.excess
            )
        })?;
    }
    out.push_str("\n}\n");
    Ok(())
}

fn put_list<T>(
    out: &mut String,
    items: &[T],
    mut put: impl FnMut(&mut String, &T) -> fmt::Result,
) -> fmt::Result {
    out.push('[');
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        put(out, item)?;
    }
    out.push(']');
    Ok(())
}
