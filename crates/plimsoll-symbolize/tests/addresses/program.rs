//! Code of this program, compiled by the current compiler.

use std::arch::asm;
use std::ffi::c_void;

use object::Object as _;
use plimsoll_process::deep_stacks::{LEFT_OUT, LEFT_OUT_NAME};
use plimsoll_symbolize::{Detail, locate, resolve};

use super::{Call, calls_at, locations, mapping_of};

const INNERMOST: u32 = line!() + 2;
#[inline(always)]
fn innermost() -> usize {
    let return_address;
    // SAFETY: computes the address of the next instruction, as if this one were a call.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("lea {}, [rip]", out(reg) return_address, options(nomem, nostack));
        #[cfg(target_arch = "aarch64")]
        asm!("adr {}, . + 4", out(reg) return_address, options(nomem, nostack));
    }
    return_address
}

const MIDDLE: u32 = line!() + 2;
#[inline(always)]
fn middle() -> usize {
    innermost()
}

const OUTER: u32 = line!() + 2;
#[inline(never)]
fn outer() -> usize {
    let return_address = middle();
    std::hint::black_box(return_address)
}

/// Returns whether a function starts at `line`. Accepts an unknown start in builds with line tables
/// only.
fn starts_at(call: &Call<'_>, line: u32) -> bool {
    call.start_line == u64::from(line) || (!cfg!(debug_assertions) && call.start_line == 0)
}

#[cfg(feature = "debug-info")]
#[test]
fn lines_without_symbol_tables_are_the_same() {
    let here = outer();
    let positions = |detail| {
        let symbols = resolve(&[here], detail);
        let calls = calls_at(&symbols, here).into_iter();
        let positions = calls.map(|call| (call.file.to_owned(), call.line));
        positions.collect::<Vec<_>>()
    };
    let full = positions(Detail::Full);
    assert_eq!(full.len(), 3);
    assert_eq!(positions(Detail::Lines), full);
    // A function of the C library, which has no debug information here or one in a separate file.
    let elsewhere = libc::getppid as *const () as usize + 1;
    let symbols = resolve(&[elsewhere], Detail::Lines);
    let calls = calls_at(&symbols, elsewhere);
    assert!(calls.iter().all(|call| call.line != 0), "{calls:?}");
}

#[cfg(feature = "debug-info")]
#[test]
fn inlined_calls_come_innermost_first_with_the_lines_of_their_calls() {
    let here = outer();
    let symbols = resolve(&[here], Detail::Full);
    let calls = calls_at(&symbols, here);
    let expected = [
        (
            "innermost",
            INNERMOST,
            INNERMOST + if cfg!(target_arch = "x86_64") { 5 } else { 7 },
        ),
        ("middle", MIDDLE, MIDDLE + 1),
        ("outer", OUTER, OUTER + 1),
    ];
    assert_eq!(calls.len(), expected.len(), "{calls:?}");
    for (call, (name, start, line)) in calls.iter().zip(expected) {
        assert!(
            starts_at(call, start) && call.line == u64::from(line),
            "{call:?}"
        );
        assert!(call.file.starts_with('/') && call.file.ends_with("tests/addresses/program.rs"));
        let full = format!("addresses::program::{name}");
        assert_eq!(call.name, full, "in full, or by its file");
    }
    let physical = symbols.lines(symbols.location(here).unwrap())[2];
    let system_name = symbols.texts.get(symbols.function(physical).system_name);
    assert!(
        system_name.starts_with("_R") || system_name.starts_with("_ZN"),
        "{system_name}"
    );
    let mapping = mapping_of(&symbols, here);
    assert!(mapping.has_functions && mapping.has_inline_frames);
    assert!(mapping.has_filenames && mapping.has_line_numbers);
}

/// A generic function. Each instance has separate code, since the sizes differ.
#[inline(never)]
fn generic<T: Default + Copy>() -> usize {
    let return_address = innermost();
    std::hint::black_box([T::default(); 3]);
    return_address
}

/// Returns the names and the function indices of the instances for `u32` and `u64`.
fn instances(detail: Detail) -> [(String, u32); 2] {
    let addresses = [generic::<u32>(), generic::<u64>()];
    let symbols = resolve(&addresses, detail);
    addresses.map(|address| {
        let physical = *symbols
            .lines(symbols.location(address).unwrap())
            .last()
            .unwrap();
        let name = symbols.texts.get(symbols.function(physical).name);
        (name.to_owned(), physical.function)
    })
}

#[cfg(feature = "debug-info")]
#[test]
fn instances_of_a_generic_function_have_names_of_their_own() {
    let names = instances(Detail::Full).map(|(name, _)| name);
    // The form of the debug information, or of the mangling with types.
    let path = "addresses::program::generic";
    assert!(
        names == [format!("{path}<u32>"), format!("{path}<u64>")]
            || names == [format!("{path}::<u32>"), format!("{path}::<u64>")],
        "{names:?}"
    );
}

#[test]
fn instances_without_debug_information_are_functions_of_their_own() {
    let [(name, first), (_, second)] = instances(Detail::Names);
    assert!(name.contains("addresses::program::generic"), "{name}");
    assert_ne!(first, second);
}

#[cfg(feature = "debug-info")]
#[test]
fn closures_are_functions_with_their_own_start_lines() {
    let start = line!() + 1;
    let closure = |bit: usize| {
        let here = innermost();
        here | bit
    };
    let here = std::hint::black_box(closure)(0);
    let symbols = resolve(&[here], Detail::Full);
    let calls = calls_at(&symbols, here);
    assert!(calls[1].name.contains("{closure"), "{calls:?}");
    assert!(starts_at(&calls[1], start), "{calls:?}");
    assert_eq!(calls[1].line, u64::from(start) + 1);
}

#[test]
fn names_only_are_those_of_physical_functions_without_lines() {
    let here = outer();
    let symbols = resolve(&[here], Detail::Names);
    let calls = calls_at(&symbols, here);
    let name = "addresses::program::outer";
    assert_eq!(
        calls,
        [Call {
            name,
            file: "",
            start_line: 0,
            line: 0
        }]
    );
    let offset = symbols.location(here).unwrap().symbol_offset;
    assert_eq!(offset, Some(here - outer as *const () as usize));
    let mapping = mapping_of(&symbols, here);
    assert!(mapping.has_functions);
    assert!(!mapping.has_filenames && !mapping.has_line_numbers && !mapping.has_inline_frames);
}

#[test]
fn addresses_only_have_mappings_with_build_ids_and_nothing_else() {
    let here = outer();
    let symbols = resolve(&[here], Detail::Addresses);
    assert!(symbols.functions.is_empty());
    assert!(calls_at(&symbols, here).is_empty());
    let mapping = mapping_of(&symbols, here);
    assert!((mapping.start..mapping.limit).contains(&(here as u64)));
    let program = std::fs::read("/proc/self/exe").unwrap();
    let program = object::File::parse(&*program).unwrap();
    let build_id = program.build_id().unwrap().unwrap();
    let digits: String = (build_id.iter())
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(mapping.build_id, digits);
    assert_eq!(
        mapping.file,
        std::env::current_exe().unwrap().to_str().unwrap()
    );
    assert!(!mapping.has_functions);
}

#[test]
fn addresses_may_come_in_any_order_and_repeat() {
    let here = outer();
    let mut asked: Vec<usize> = (here..here + 50).chain(here - 3..here).collect();
    asked.reverse();
    asked.extend([here, here, here + 7]);
    let symbols = resolve(&asked, Detail::Names);
    let found: Vec<usize> = locations(&symbols).map(|at| at.return_address).collect();
    assert_eq!(found, (here - 3..here + 50).collect::<Vec<usize>>());
    for &address in &asked {
        assert_eq!(symbols.location(address).unwrap().return_address, address);
    }
    assert_eq!(symbols.location(here - 4), None);
    assert_eq!(symbols.location(here + 50), None);
}

#[test]
fn functions_are_stored_once() {
    let here = outer();
    let code: Vec<usize> = (here - 20_000..here + 20_000).step_by(11).collect();
    let symbols = resolve(&code, Detail::Full);
    let mut keys: Vec<_> = symbols
        .functions
        .iter()
        .map(|function| {
            let text = |text| symbols.texts.get(text);
            (
                text(function.name),
                text(function.system_name),
                text(function.file),
                function.start_line,
            )
        })
        .collect();
    let stored = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert!(stored > 10);
    assert_eq!(keys.len(), stored);
    let used: std::collections::HashSet<u32> = locations(&symbols)
        .flat_map(|location| symbols.lines(location).iter().map(|line| line.function))
        .collect();
    assert_eq!(used.len(), stored, "no function without a line");
}

#[test]
fn addresses_outside_files_have_no_mapping_and_no_lines() {
    let on_heap = Box::new([0u8; 64]);
    let (size, access) = (4096, libc::PROT_READ | libc::PROT_EXEC);
    let way = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: creates a mapping at an address that the kernel chooses.
    let generated = unsafe { libc::mmap(std::ptr::null_mut(), size, access, way, -1, 0) };
    assert_ne!(generated, libc::MAP_FAILED);
    let odd = [
        0,
        2,
        usize::MAX,
        on_heap.as_ptr() as usize,
        generated as usize + 16,
    ];
    for detail in [Detail::Full, Detail::Names, Detail::Addresses] {
        let symbols = resolve(&odd, detail);
        assert_eq!(symbols.location_count(), odd.len());
        for location in locations(&symbols) {
            assert_eq!(location.mapping, None, "{location:?}");
            assert!(symbols.lines(location).is_empty());
            assert_eq!(location.symbol_offset, None);
        }
    }
    // SAFETY: mapped above, and not used after this.
    unsafe { libc::munmap(generated, size) };
}

#[test]
fn the_frame_that_stands_for_others_is_named_without_a_mapping() {
    for detail in [Detail::Full, Detail::Names, Detail::Addresses] {
        let symbols = resolve(&[LEFT_OUT, 0, outer()], detail);
        let location = symbols.location(LEFT_OUT).unwrap();
        assert!(location.is_named && location.mapping.is_none());
        let names: Vec<&str> = symbols.names(&[LEFT_OUT]).collect();
        assert_eq!(names, [LEFT_OUT_NAME]);
    }
    let symbols = locate(&[outer(), LEFT_OUT]);
    assert_eq!(symbols.mappings, locate(&[outer()]).mappings);
    assert_eq!(symbols.names(&[LEFT_OUT]).count(), 1);
}

#[test]
fn an_empty_request_returns_only_the_mappings() {
    let symbols = resolve(&[], Detail::Full);
    assert!(symbols.location_count() == 0 && symbols.functions.is_empty());
    assert!(symbols.mappings.iter().any(|mapping| mapping.start != 0));
    assert!(
        symbols
            .mappings
            .iter()
            .all(|mapping| !mapping.has_functions)
    );
    assert!(symbols.mappings.is_sorted_by_key(|mapping| mapping.start));
}

/// The vDSO, the kernel's own object, has no file.
#[test]
fn functions_of_the_vdso_have_names() {
    let Some(entry) = vdso_function() else { return };
    let symbols = resolve(&[entry + 1], Detail::Full);
    assert_eq!(mapping_of(&symbols, entry + 1).file, "[vdso]");
    let calls = calls_at(&symbols, entry + 1);
    assert_eq!(calls.len(), 1);
    assert!(calls[0].name.ends_with("clock_gettime"), "{calls:?}");
}

/// Returns the address of the kernel's `clock_gettime`, as the C library finds it; `None` if the
/// process has no vDSO.
fn vdso_function() -> Option<usize> {
    let names = [c"linux-vdso.so.1", c"linux-gate.so.1"];
    let symbols = [c"__vdso_clock_gettime", c"__kernel_clock_gettime"];
    // SAFETY: the object is already loaded, so no code of it runs; the names are C strings.
    let find = |name: &std::ffi::CStr| unsafe {
        let object: *mut c_void = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        let found = symbols.map(|symbol| libc::dlsym(object, symbol.as_ptr()) as usize);
        (!object.is_null())
            .then_some(found)
            .into_iter()
            .flatten()
            .find(|&found| found != 0)
    };
    names.into_iter().find_map(find)
}
