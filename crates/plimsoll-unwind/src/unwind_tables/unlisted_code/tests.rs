//! Walks through a library that is loaded after the module list was made.

use std::ffi::{CString, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use plimsoll_process::loader;

use super::super::known_rules::RULES;
use super::super::{Context, walk, walk_without_frame_pointer};
use super::*;
use crate::modules::{Lookup, ModuleList};
use crate::registers::{Registers, Start};
use crate::rules::Key;
use crate::walk::Frames;
use plimsoll_process::stack_memory as memory;

/// `_Unwind_Backtrace`: calls the function for each frame until the result is not 0.
type Backtrace =
    unsafe extern "C" fn(extern "C" fn(*mut c_void, *mut c_void) -> c_int, *mut c_void) -> c_int;

/// Loads a copy of libgcc for good, into another namespace if `apart`. Returns its function that
/// calls back.
fn load_library(name: &str, apart: bool) -> Backtrace {
    let mut original = None;
    loader::each_object(|object| {
        let is_libgcc = object.name.to_bytes().ends_with(b"/libgcc_s.so.1");
        if is_libgcc {
            original = Some(object.name.to_owned());
        }
        !is_libgcc
    });
    let original = original.expect("the standard library needs libgcc");
    let copy = std::env::temp_dir().join(format!("plimsoll-{name}-{}.so", std::process::id()));
    std::fs::copy(original.to_str().unwrap(), &copy).unwrap();
    let path = CString::new(copy.as_os_str().as_bytes()).unwrap();
    // SAFETY: the library may be loaded twice. The function has this type.
    unsafe {
        let library = match apart {
            true => libc::dlmopen(libc::LM_ID_NEWLM, path.as_ptr(), libc::RTLD_NOW),
            false => libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL),
        };
        std::fs::remove_file(&copy).unwrap();
        assert!(!library.is_null());
        let function = libc::dlsym(library, c"_Unwind_Backtrace".as_ptr());
        assert!(!function.is_null());
        std::mem::transmute::<*mut c_void, Backtrace>(function)
    }
}

/// A walk below a library's function.
struct Capture<'a> {
    modules: &'a ModuleList,
    /// Whether to walk as if the stack belonged to another thread.
    foreign: bool,
    frames: Vec<usize>,
    end: End,
    unknown_code: Option<usize>,
}

/// The calling thread's stack, read as another thread's.
struct ForeignStack(Range<usize>);

impl Memory for ForeignStack {
    const IS_OWN_STACK: bool = false;

    fn read(&mut self, address: usize) -> Option<usize> {
        // SAFETY: the address is aligned and within the calling thread's stack.
        (self.0.contains(&address) && address % 8 == 0).then(|| unsafe { memory::load(address) })
    }

    fn go_on_at(&mut self, _: usize) {}
}

extern "C" fn capture(_: *mut c_void, capture: *mut c_void) -> c_int {
    // SAFETY: `walk_below` passes a `Capture` that it does not use meanwhile.
    let capture = unsafe { &mut *capture.cast::<Capture<'_>>() };
    let (mut context, mut trail) = (Context::new_in(), Trail::new());
    let mut frames = [0; 128];
    let at = Registers::here();
    let modules = capture.modules;
    let walk = if capture.foreign {
        let (_, high) = memory::known_range(at.stack as usize);
        let mut memory = ForeignStack(at.stack as usize..high);
        walk_without_frame_pointer(
            at.instruction,
            at.stack,
            &mut memory,
            modules,
            &mut context,
            Frames::leaf_end(&mut frames),
            |_, _| {},
        )
    } else {
        walk(
            Start::Here(at),
            modules,
            &mut context,
            &mut trail,
            Frames::leaf_end(&mut frames),
        )
    };
    capture.frames = frames[..walk.frames].to_vec();
    capture.end = walk.end;
    capture.unknown_code = trail.unknown_code();
    1
}

/// Walks the stack in a callback of the library.
fn walk_below(function: Backtrace, modules: &ModuleList, foreign: bool) -> Capture<'_> {
    let mut result = Capture {
        modules,
        foreign,
        frames: Vec::new(),
        end: End::Full,
        unknown_code: None,
    };
    // SAFETY: the function calls `capture` during this call, with a `Capture`.
    unsafe { function(capture, (&raw mut result).cast()) };
    result
}

/// Returns whether a walk contains code of the library, and the test beyond it.
fn passes_through(capture: &Capture<'_>, function: Backtrace) -> bool {
    let near = |start: usize| {
        let mut frames = capture.frames.iter();
        frames.position(|frame| (start..start + 4096).contains(frame))
    };
    let library = near(function as usize);
    let caller = near(walk_below as *const () as usize);
    capture.end == End::Outermost && library.is_some() && library < caller
}

#[test]
fn a_walk_passes_through_a_library_that_the_list_lacks() {
    let modules = ModuleList::from_loader();
    let function = load_library("late", false);
    for _ in 0..3 {
        let capture = walk_below(function, &modules, false);
        assert!(passes_through(&capture, function), "{:x?}", capture.frames);
        let unknown = capture.unknown_code.expect("the list lacks the library");
        assert!(matches!(modules.look_up(unknown), Lookup::Stale(_)));
        // The list's generation does not cover this code.
        for generation in [0, modules.generation()] {
            assert_eq!(RULES.get(Key::new(unknown, generation)), None);
        }
    }
    let modules = modules.successor(0).expect("a library was loaded");
    let capture = walk_below(function, &modules, false);
    assert!(passes_through(&capture, function), "{:x?}", capture.frames);
    assert_eq!(capture.unknown_code, None);
}

/// The library may be unloaded while another thread's stack is read.
#[test]
fn a_walk_of_another_threads_stack_ends_at_a_library_that_the_list_lacks() {
    let modules = ModuleList::from_loader();
    let function = load_library("foreign", false);
    let capture = walk_below(function, &modules, true);
    // It ends there, or at `capture`, or goes on at the next frame that saved its return address.
    let library = function as usize..function as usize + 4096;
    let callers = capture
        .frames
        .iter()
        .skip_while(|frame| !library.contains(frame));
    let description = format!("{:?} {:x?}", capture.end, capture.frames);
    assert!(callers.count() <= 1, "{description}");
    assert!(!passes_through(&capture, function), "{description}");
}

/// No list contains such a library, so a request for a new one is useless.
#[test]
#[cfg_attr(plimsoll_sanitized, ignore = "sanitizers fail with namespaces")]
fn a_walk_passes_through_a_library_of_another_namespace() {
    let modules = ModuleList::from_loader();
    let function = load_library("apart", true);
    let address = function as usize;
    // Repeats while another test loads a library.
    let mut modules = modules.successor(address).expect("a new library");
    while let Lookup::Stale(_) = modules.look_up(address) {
        modules = modules.successor(address).expect("a new library");
    }
    assert!(matches!(modules.look_up(address), Lookup::Unlisted(_)));
    let capture = walk_below(function, &modules, false);
    assert!(passes_through(&capture, function), "{:x?}", capture.frames);
    assert_eq!(capture.unknown_code, None);
}
