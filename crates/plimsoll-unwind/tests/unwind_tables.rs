//! Walks by unwind tables find what libgcc's unwinder finds.

use plimsoll_process::deep_stacks::LEFT_OUT;

use plimsoll_unwind::modules::ModuleList;
use plimsoll_unwind::registers::{Registers, Start};
use plimsoll_unwind::unwind_tables::*;
use plimsoll_unwind::walk::{End, Frames};
use plimsoll_unwind::walk_cache::Trail;

/// Returns the calling thread's return addresses from this function's caller on, as libgcc's
/// unwinder finds them.
fn reference() -> Vec<usize> {
    use std::ffi::c_void;
    unsafe extern "C" {
        fn _Unwind_Backtrace(
            trace: extern "C" fn(*mut c_void, *mut c_void) -> i32,
            found: *mut c_void,
        ) -> i32;
        fn _Unwind_GetIP(context: *mut c_void) -> usize;
    }
    extern "C" fn trace(context: *mut c_void, found: *mut c_void) -> i32 {
        // SAFETY: the unwinder passes its context, and `found` is the list below.
        unsafe { (*found.cast::<Vec<usize>>()).push(_Unwind_GetIP(context)) };
        0
    }
    let mut found = Vec::<usize>::new();
    // SAFETY: `trace` has the callback's signature and expects a list; `found` outlives the call.
    unsafe { _Unwind_Backtrace(trace, (&raw mut found).cast()) };
    // The unwinder reports a frame at 0 at the end.
    found.retain(|&address| address != 0);
    found
}

fn walked(modules: &ModuleList) -> Vec<usize> {
    let mut frames = [0; 128];
    let walk = walk(
        Start::Here(Registers::here()),
        modules,
        &mut Context::new_in(),
        &mut Trail::new(),
        Frames::leaf_end(&mut frames),
    );
    assert_eq!(walk.end, End::Outermost);
    frames[..walk.frames].to_vec()
}

/// Checks that both unwinders agree on all frames above the functions called here.
fn agree(modules: &ModuleList) {
    for _ in 0..2 {
        let (ours, theirs) = (walked(modules), reference());
        let common = theirs
            .iter()
            .rev()
            .zip(ours.iter().rev())
            .take_while(|(a, b)| a == b)
            .count();
        // All frames but those of the two functions called here, and the first frames of this
        // function, which differ by the call.
        assert!(
            common + 2 >= theirs.len().min(ours.len()) - 1 && common > 3,
            "{ours:x?}\n{theirs:x?}"
        );
    }
}

#[inline(never)]
fn deep(levels: usize, work: &mut dyn FnMut()) -> usize {
    let padding = std::hint::black_box([levels; 3]);
    if levels == 0 {
        work();
    } else {
        deep(levels - 1, work);
    }
    padding[1]
}

#[test]
fn agrees_with_the_languages_own_unwinder() {
    let modules = ModuleList::from_loader();
    agree(&modules);
    for levels in [1, 10, 40] {
        deep(levels, &mut || agree(&modules));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| deep(5, &mut || agree(&modules)));
    });
}

#[test]
fn a_deep_recursion_keeps_both_ends() {
    fn walked(at: Registers, limit: usize, root: usize) -> (Vec<usize>, End) {
        let (mut frames, mut ring) = (vec![0; limit], vec![0; root]);
        let walk = walk(
            Start::Here(at),
            &ModuleList::from_loader(),
            &mut Context::new_in(),
            &mut Trail::new(),
            Frames::new(&mut frames, &mut ring),
        );
        frames.truncate(walk.frames);
        (frames, walk.end)
    }
    let mut names = Vec::new();
    for levels in [200, 500, 3000] {
        deep(levels, &mut || {
            let at = Registers::here();
            let (all, end) = walked(at, 4000, 0);
            assert!(all.len() > levels && end == End::Outermost);
            let both = [&all[..95], &[LEFT_OUT], &all[all.len() - 32..]].concat();
            assert_eq!(walked(at, 128, 32), (both.clone(), End::Full));
            assert_eq!(walked(at, all.len(), 32), (all, End::Outermost));
            names.push(both);
        });
    }
    assert!(names.iter().all(|name| *name == names[0]), "of any depth");
}

/// Walks through the C library, which calls back.
#[test]
fn goes_through_foreign_code() {
    static MODULES: std::sync::OnceLock<ModuleList> = std::sync::OnceLock::new();
    MODULES.get_or_init(ModuleList::from_loader);
    extern "C" fn compare(_: *const std::ffi::c_void, _: *const std::ffi::c_void) -> i32 {
        agree(MODULES.get().expect("set above"));
        0
    }
    let mut numbers = [3, 1, 2];
    // SAFETY: sorts three numbers of 4 bytes; `compare` has the callback's signature.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 3, 4, Some(compare)) };
}

static INTERRUPTED: std::sync::Mutex<Vec<usize>> = std::sync::Mutex::new(Vec::new());

/// Walks from a signal handler on a separate stack into the interrupted code.
#[test]
fn goes_through_a_signal() {
    static MODULES: std::sync::OnceLock<ModuleList> = std::sync::OnceLock::new();
    MODULES.get_or_init(ModuleList::from_loader);
    extern "C" fn handler(_: i32) {
        // The thread that raises the signal does not hold this lock.
        *INTERRUPTED.lock().unwrap() = walked(MODULES.get().expect("set before"));
    }
    #[inline(never)]
    fn raises() {
        // SAFETY: raises a signal that has a handler.
        unsafe { libc::raise(libc::SIGUSR2) };
    }
    for alternative_stack in [false, true] {
        let mut memory = vec![0u8; 1 << 17];
        // SAFETY: the handler and the stack outlive the signal; the stack is uninstalled below.
        unsafe {
            let mut stack: libc::stack_t = std::mem::zeroed();
            (stack.ss_sp, stack.ss_size) = (memory.as_mut_ptr().cast(), memory.len());
            let mut before: libc::stack_t = std::mem::zeroed();
            assert_eq!(libc::sigaltstack(&raw const stack, &raw mut before), 0);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as extern "C" fn(i32) as libc::sighandler_t;
            action.sa_flags = if alternative_stack {
                libc::SA_ONSTACK
            } else {
                0
            };
            assert_eq!(
                libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()),
                0
            );
            deep(3, &mut raises);
            libc::sigaltstack(&raw const before, std::ptr::null_mut());
        }
        let stack = INTERRUPTED.lock().unwrap().clone();
        let within = |function: usize| {
            move |&&address: &&usize| (function..function + 512).contains(&address)
        };
        let levels = stack
            .iter()
            .filter(within(deep as *const () as usize))
            .count();
        assert!(
            levels >= 4,
            "{levels} of 4 frames below the signal: {stack:x?}"
        );
        assert!(
            stack
                .iter()
                .any(|address| within(raises as *const () as usize)(&address))
        );
    }
}

#[test]
fn an_address_that_is_no_code_ends_the_walk() {
    let modules = ModuleList::from_loader();
    let mut frames = [0; 16];
    for instruction in [1, 0x1000, 0x7fff_ffff_ffff, u64::MAX / 2] {
        let start = Registers {
            instruction,
            ..Registers::here()
        };
        let walk = walk(
            Start::Here(start),
            &modules,
            &mut Context::new_in(),
            &mut Trail::new(),
            Frames::leaf_end(&mut frames),
        );
        assert_eq!(walk.frames, 0, "{instruction:x}");
    }
}
