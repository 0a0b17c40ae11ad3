//! The parts, each with a check that returns what it saw.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use plimsoll::profile::{self, Detail, Profile};

/// What was seen of a part that works, or why it does not.
type Check = Result<String, String>;

/// The name of a part, and its check.
type Part = (&'static str, fn() -> Check);

/// All parts.
pub const PARTS: &[Part] = &[
    ("counts", counts),
    ("stacks", stacks),
    ("names", names),
    ("plimsoll-locks", plimsoll_locks),
    ("other-locks", other_locks),
    ("creators", creators),
    ("tasks", tasks),
    ("labels", labels),
    ("metrics", metrics),
    ("threads", threads),
    ("dump", dump),
    ("http", http),
    ("cpu-profile", cpu_profile),
    ("wall-profile", wall_profile),
    ("resident", resident),
    ("post-mortem", post_mortem),
];

/// Returns whether a part has this name.
pub fn is_part(name: &str) -> bool {
    PARTS.iter().any(|(of, _)| *of == name)
}

/// A size of block that nothing else in this program has.
const SIZE: usize = 20_011;
const BLOCKS: usize = 1_000;

fn allocate() -> Vec<Vec<u8>> {
    (0..BLOCKS).map(|_| black_box(vec![1; SIZE])).collect()
}

fn profile(name: &str) -> Result<Profile, String> {
    profile::lookup(name).ok_or_else(|| format!("no profile {name}"))
}

fn ensure(condition: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    match condition {
        true => Ok(()),
        false => Err(otherwise()),
    }
}

/// The counts of large blocks: exact differences, and all frees.
fn counts() -> Check {
    let class = |stats: &plimsoll::HeapStats| {
        let classes = stats.by_class.iter();
        let class = classes
            .filter(|class| class.size >= SIZE)
            .min_by_key(|class| class.size);
        class.map(|class| (class.mallocs, class.frees))
    };
    let before = plimsoll::heap_stats();
    drop(allocate());
    let after = plimsoll::heap_stats();
    let (Some(before_class), Some(after_class)) = (class(&before), class(&after)) else {
        return Err(format!("no class for {SIZE} bytes"));
    };
    let allocated = after_class.0 - before_class.0;
    let freed = after_class.1 - before_class.1;
    ensure((allocated, freed) == (BLOCKS as u64, BLOCKS as u64), || {
        format!("{BLOCKS} blocks counted as {allocated}, and {freed} frees")
    })?;
    ensure(after.exact, || "not exact".into())?;
    Ok(format!("{allocated} allocations and frees"))
}

/// Returns the stack of the blocks of `allocate`, and how many have it.
fn stack_of_blocks() -> Result<(Vec<usize>, i64), String> {
    let allocs = profile("allocs")?;
    let before = allocs.snapshot();
    let blocks = allocate();
    let delta = allocs.snapshot().since(&before);
    drop(blocks);
    let delta = delta.map_err(|error| error.to_string())?;
    let largest = delta
        .records()
        .max_by_key(|record| record.value("alloc_space"));
    let largest = largest.ok_or("no sample")?;
    let objects = largest.value("alloc_objects").unwrap_or(0);
    Ok((largest.stack().to_vec(), objects))
}

fn stacks() -> Check {
    let (stack, objects) = stack_of_blocks()?;
    ensure(objects == BLOCKS as i64, || {
        format!("{objects} blocks in the sample")
    })?;
    // `allocate`, this function and `main` at the least.
    ensure(stack.len() >= 3, || format!("{} frames", stack.len()))?;
    Ok(format!("{} frames of {objects} blocks", stack.len()))
}

fn names() -> Check {
    let (stack, _) = stack_of_blocks()?;
    let frames = profile::frames(&stack, Detail::Full);
    let frame = frames.iter().find(|frame| {
        let function = frame.function.as_deref();
        function.is_some_and(|name| name.contains("parts::allocate"))
    });
    let frame = frame.ok_or("no frame is named")?;
    Ok(format!("{:?} line {:?}", frame.function, frame.line))
}

/// Makes threads wait for a lock with `contend`, until the block profile has a wait for it.
fn waits(contend: impl Fn()) -> Check {
    const ROUNDS: usize = 200;
    let block = profile("block")?;
    let before = block.snapshot();
    for _ in 0..ROUNDS {
        contend();
        let delta = block.snapshot().since(&before);
        let delta = delta.map_err(|error| error.to_string())?;
        let is_mutex = |kind: Option<&str>| kind == Some("mutex");
        if let Some(record) = delta.records().find(|record| is_mutex(record.kind())) {
            let (frames, delay) = (record.stack().len(), record.delay());
            ensure(frames >= 2, || format!("{frames} frames"))?;
            return Ok(format!("{frames} frames, {delay:?}"));
        }
    }
    Err(format!("no wait was seen in {ROUNDS} rounds"))
}

fn plimsoll_locks() -> Check {
    let lock = plimsoll::sync::Mutex::new(());
    waits(|| {
        let held = lock.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(lock.lock()));
            std::thread::sleep(Duration::from_millis(2));
            drop(held);
        });
    })
}

fn other_locks() -> Check {
    let lock = std::sync::Mutex::new(());
    waits(|| {
        let held = lock.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(lock.lock()));
            std::thread::sleep(Duration::from_millis(2));
            drop(held);
        });
    })
}

/// A thread that waits in a function of this program while a check runs.
fn beside_a_thread<T>(check: impl FnOnce() -> T) -> T {
    let (begun, has_begun) = mpsc::channel();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let _ = begun.send(());
            park_until(&ends);
        });
        let _ = has_begun.recv();
        let result = check();
        ends.store(true, Ordering::Release);
        thread.thread().unpark();
        result
    })
}

#[inline(never)]
fn park_until(ends: &AtomicBool) {
    while !ends.load(Ordering::Acquire) {
        std::thread::park();
    }
    black_box(ends);
}

fn creators() -> Check {
    beside_a_thread(|| {
        let snapshot = profile("threadcreate")?.snapshot();
        let deepest = snapshot.records().map(|record| record.stack().len()).max();
        let deepest = deepest.unwrap_or(0);
        ensure(deepest >= 3, || format!("{deepest} frames"))?;
        Ok(format!("{deepest} frames"))
    })
}

fn tasks() -> Check {
    let mut polls = 0;
    let task = std::future::poll_fn(move |_| {
        polls += 1;
        match polls {
            2 => Poll::Ready(()),
            _ => Poll::<()>::Pending,
        }
    });
    let mut task = std::pin::pin!(
        plimsoll::task::track(task)
            .named("waits")
            .label("part", "tasks")
    );
    let mut context = Context::from_waker(Waker::noop());
    let _ = task.as_mut().poll(&mut context);
    let all = plimsoll::task::tasks();
    let seen = all.iter().find(|task| task.name() == Some("waits"));
    let seen = seen.ok_or("the task is not listed")?;
    ensure(seen.labels().get("part") == Some("tasks"), || {
        format!("{:?}", seen.labels())
    })?;
    let in_profile = profile("goroutine")?.snapshot();
    let is_there = in_profile
        .records()
        .any(|record| record.name() == Some("waits"));
    ensure(is_there, || "not in the profile goroutine".into())?;
    ensure(task.as_mut().poll(&mut context).is_ready(), || {
        "never ready".into()
    })?;
    Ok(format!("{:?}, {} poll", seen.state(), seen.polls()))
}

fn labels() -> Check {
    let _label = plimsoll::label::with([("part", "labels")]);
    let blocks = allocate();
    let snapshot = profile("heap")?.snapshot();
    drop(blocks);
    let is_labelled = |label: (&str, &str)| label == ("part", "labels");
    let objects: i64 = (snapshot.records())
        .filter(|record| record.labels().any(is_labelled))
        .filter_map(|record| record.value("inuse_objects"))
        .sum();
    ensure(objects >= BLOCKS as i64, || format!("{objects} blocks"))?;
    Ok(format!("{objects} blocks"))
}

fn metrics() -> Check {
    let mut samples = [plimsoll::metrics::Sample::new("/gc/heap/allocs:objects")];
    plimsoll::metrics::read(&mut samples);
    match samples[0].value {
        plimsoll::metrics::Value::Uint64(allocs) if allocs > 0 => Ok(format!("{allocs} objects")),
        ref other => Err(format!("{other:?}")),
    }
}

fn threads() -> Check {
    beside_a_thread(|| {
        // A thread may be running when it is read.
        for _ in 0..1_000 {
            let all = plimsoll::thread::threads();
            for thread in &all {
                let frames = profile::frames(thread.stack(), Detail::Names);
                let functions = frames.iter().filter_map(|frame| frame.function.as_deref());
                if functions
                    .into_iter()
                    .any(|name| name.contains("park_until"))
                {
                    return Ok(format!("{} threads, one {:?}", all.len(), thread.state()));
                }
            }
        }
        Err("no stack of another thread".into())
    })
}

fn dump() -> Check {
    beside_a_thread(|| {
        for _ in 0..1_000 {
            let mut text = Vec::new();
            let written = plimsoll::dump(&mut text);
            written.map_err(|error| error.to_string())?;
            if String::from_utf8_lossy(&text).contains("park_until") {
                return Ok(format!("{} bytes", text.len()));
            }
        }
        Err("no stack of another thread".into())
    })
}

/// Serves the pages, and fetches one.
fn fetch(path: &str) -> Result<Vec<u8>, String> {
    let plimsoll = plimsoll::config().http("127.0.0.1:0").start();
    let address = plimsoll.http_address().ok_or("no server")?;
    let get = || -> Result<Vec<u8>, std::io::Error> {
        let mut stream = TcpStream::connect(address)?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    get().map_err(|error| error.to_string())
}

fn http() -> Check {
    let answer = fetch("/debug/pprof/heap?debug=1")?;
    let answer = String::from_utf8_lossy(&answer);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    ensure(body.starts_with("heap profile: "), || answer.to_string())?;
    Ok(format!("{} bytes", answer.len()))
}

/// Uses CPU time until `is_over`.
#[inline(never)]
fn compute_until(is_over: impl Fn() -> bool) {
    while !is_over() {
        for round in 0..10_000 {
            black_box(round);
        }
    }
}

fn cpu_profile() -> Check {
    const ROUNDS: usize = 20;
    for _ in 0..ROUNDS {
        let used = cpu_time_in_function()?;
        if !used.is_zero() {
            return Ok(format!("{used:?} in the function"));
        }
    }
    Err(format!("no sample in the function in {ROUNDS} rounds"))
}

/// Returns the CPU time that a profile of half a second shows for [`compute_until`].
fn cpu_time_in_function() -> Result<Duration, String> {
    profile::cpu::start().map_err(|error| error.to_string())?;
    let began = std::time::Instant::now();
    compute_until(|| began.elapsed() > Duration::from_millis(500));
    let recorded = profile::cpu::stop().ok_or("the profile was not running")?;
    let in_function = recorded.records().filter(|record| {
        let frames = profile::frames(record.stack(), Detail::Names);
        let mut names = frames.iter().filter_map(|frame| frame.function.as_deref());
        names.any(|name| name.contains("compute_until"))
    });
    let used: i64 = in_function.filter_map(|record| record.value("cpu")).sum();
    Ok(Duration::from_nanos(used.unsigned_abs()))
}

fn wall_profile() -> Check {
    let answer = beside_a_thread(|| fetch("/debug/pprof/wall?seconds=1"))?;
    let (head, body) = (b"HTTP/1.1 200", b"\r\n\r\n\x1f\x8b");
    let is_profile = answer.starts_with(head) && answer.windows(6).any(|bytes| bytes == body);
    ensure(is_profile, || String::from_utf8_lossy(&answer).into())?;
    // More than a profile without a sample.
    ensure(answer.len() > 1_000, || format!("{} bytes", answer.len()))?;
    Ok(format!("{} bytes", answer.len()))
}

fn resident() -> Check {
    let found = plimsoll::reconcile();
    let kernel = found.kernel.as_ref().ok_or("no figures of the kernel")?;
    ensure(kernel.resident > 0, || "nothing is resident".into())?;
    Ok(format!(
        "{} of {} bytes",
        found.explained(),
        kernel.resident
    ))
}

/// The variable with which this program runs as its own child that aborts.
const ABORTS: &str = "PLATFORM_CHECK_ABORTS";

/// In the child of [`post_mortem`]: allocates, and ends the process by a signal.
pub fn abort_if_child() {
    if std::env::var_os(ABORTS).is_some() {
        let blocks = black_box(allocate());
        println!("{}", blocks.len());
        std::process::abort();
    }
}

fn post_mortem() -> Check {
    let file = std::env::temp_dir().join(format!("platform-check-{}", std::process::id()));
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let child = std::process::Command::new(program)
        .env(ABORTS, "1")
        .env(
            "PLIMSOLL",
            format!("heap_rate=1,postmortem={}", file.display()),
        )
        .output();
    let child = child.map_err(|error| error.to_string())?;
    ensure(!child.status.success(), || "the child did not abort".into())?;
    let opened = std::fs::File::open(&file).map_err(|error| error.to_string());
    let read =
        opened.and_then(|file| plimsoll_postmortem::read(&file).map_err(|error| error.to_string()));
    // Fails where no file was made.
    let _ = std::fs::remove_file(&file);
    let read = read?;
    let objects = read.estimated_in_use().objects();
    ensure(objects >= BLOCKS as u64, || {
        format!("{objects} objects in use")
    })?;
    Ok(format!("{objects} objects in use when the process ended"))
}
