//! The view as JSON: one object.

use plimsoll_process::deep_stacks::LEFT_OUT;
use serde_json::{Value, json};

use crate::calls;
use crate::names::Names;
use crate::process::Process;
use crate::threads::{Blocked, Position};
use crate::view::View;
use crate::waits::Kind;

/// Returns the object. Numbers of threads are those of this command's PID namespace; times are in nanoseconds.
pub(crate) fn view(process: &Process, view: &View, names: &Names<'_>) -> Value {
    let target = &process.target;
    let tid = |index: usize| view.threads[index].tid;
    let owners = view.memory.owners.iter().map(|(owner, share)| {
        let (kind, name) = owner.names();
        json!({
            "kind": kind,
            "name": name,
            "resident_bytes": share.resident,
            "anonymous_bytes": share.anonymous,
            "swapped_bytes": share.swapped,
            "mappings": share.mappings,
        })
    });
    let cycles = view.waits.cycles.iter();
    let cycles = cycles.map(|cycle| cycle.iter().map(|&at| tid(at)).collect::<Vec<_>>());
    json!({
        "version": 1,
        "pid": target.pid,
        "name": target.name,
        "program": target.program,
        "plimsoll": view.pages,
        "checks": target.passed,
        "reading_ns": nanoseconds(view.took),
        "stopped_threads": view.stops,
        "longest_stop_ns": nanoseconds(view.longest_stop),
        "memory": {
            "resident_bytes": view.memory.resident,
            "kernel_bytes_before": view.memory.kernel.map(|(before, _)| before),
            "kernel_bytes_after": view.memory.kernel.map(|(_, after)| after),
            "is_exact": view.memory.is_exact(),
            "owners": owners.collect::<Vec<_>>(),
        },
        "deadlocks": cycles.collect::<Vec<_>>(),
        "threads": (0..view.threads.len()).map(|at| thread(view, at, names)).collect::<Vec<_>>(),
    })
}

/// Returns a time in nanoseconds.
pub(crate) fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the functions of a stack, leaf first.
pub(crate) fn frames(frames: &[usize], names: &Names<'_>) -> Vec<Value> {
    let each = frames.iter().flat_map(|&address| {
        names.frames(address).into_iter().map(move |frame| {
            // Functions of Python, and frames that were left out, have no address in the process.
            let is_code = !frame.is_interpreted && address != LEFT_OUT;
            json!({
                "address": is_code.then(|| format!("{address:#x}")),
                "function": frame.name,
                "file": frame.file,
                "line": frame.line,
                "is_inlined": frame.is_inlined,
            })
        })
    });
    each.collect()
}

fn thread(view: &View, at: usize, names: &Names<'_>) -> Value {
    let (thread, stack) = (&view.threads[at], &view.stacks[at]);
    let call = match thread.position {
        Position::Blocked(Blocked { call, .. }) => call,
        Position::Running | Position::Ended => None,
    };
    let futex = view.waits.of(thread).map(|(address, futex)| {
        let others = futex.waiters.iter().filter(|&&waiter| waiter != at);
        json!({
            "address": format!("{address:#x}"),
            "kind": match futex.kind {
                Kind::Mutex => "mutex",
                Kind::Owned => "owned",
                Kind::Other => "unknown",
            },
            "owner": futex.owner.map(|owner| view.threads[owner].tid),
            "other_waiters": others.map(|&waiter| view.threads[waiter].tid).collect::<Vec<_>>(),
        })
    });
    let activity = &view.activities[at];
    json!({
        "tid": thread.tid,
        "own_tid": thread.own_tid,
        "name": thread.name,
        "state": thread.state_name(),
        "activity": activity.common,
        "object": activity.object,
        "cpu_ns": thread.cpu_ns,
        "system_call": call.map(|(number, _)| {
            calls::name(number).map_or_else(|| number.to_string(), str::to_owned)
        }),
        "kernel_function": thread.kernel_function,
        "futex": futex,
        "stack": {
            "is_complete": stack.is_complete,
            "was_stopped": stack.was_stopped,
            "missing": stack.missing,
            "frames": frames(&stack.frames, names),
        },
    })
}
