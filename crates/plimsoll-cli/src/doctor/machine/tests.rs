use super::super::findings::Level;
use super::*;

#[test]
fn barriers_decide_whether_snapshots_are_exact() {
    assert_eq!(membarrier(Some(0x1ff)).level, Level::Ok);
    assert_eq!(membarrier(Some(0x1f)).level, Level::Note);
    assert_eq!(membarrier(Some(1)).level, Level::Bad);
    assert_eq!(membarrier(None).level, Level::Bad);
    assert_eq!(membarrier(Some(1 << 7)).level, Level::Bad);
}

#[test]
fn a_machine_without_sequences_gets_a_note() {
    assert_eq!(of_restartable_sequences(Some(32)).level, Level::Ok);
    assert_eq!(of_restartable_sequences(Some(0)).level, Level::Note);
    assert_eq!(of_restartable_sequences(None).level, Level::Note);
}

#[test]
fn versions_of_the_kernel_are_parsed() {
    assert_eq!(clock("tsc").level, Level::Ok);
    assert_eq!(clock("arch_sys_counter").level, Level::Ok);
    assert_eq!(clock("hpet").level, Level::Note);
    assert!(
        huge_pages("always [madvise] never")
            .says
            .starts_with("madvise")
    );
    assert!(
        huge_pages("[always] madvise never")
            .says
            .starts_with("always")
    );
    assert!(perf("-1").says.contains("kernel included"));
    assert!(perf("4").says.contains("only root"));
    assert_eq!(overcommit("2").level, Level::Note);
    assert_eq!(memory_limit(Some(128 << 20)).level, Level::Note);
    assert_eq!(memory_limit(Some(8 << 30)).level, Level::Ok);
    assert_eq!(memory_limit(None).level, Level::Ok);
}

#[test]
fn memory_is_read_where_it_is_and_only_there() {
    let word = 7;
    // SAFETY: the function has no preconditions.
    let id = unsafe { libc::getpid() };
    assert!(read_word(id, &word));
    assert!(!read_word(-1, &word));
}

#[test]
fn sizes_are_printed_with_units() {
    assert_eq!(bytes(6 << 30), "6 GiB");
    assert_eq!(bytes(1536 << 10), "1.5 MiB");
    assert_eq!(bytes(10), "10 B");
}

#[test]
fn what_attach_may_read_is_said() {
    let says = |readable: Result<&'static str, &str>, is_permitted| {
        let found = attach(readable.map_err(str::to_owned), is_permitted);
        (found.level, found.says)
    };
    let all = Ok("any process (CAP_SYS_PTRACE)");
    let expected = "may read any process (CAP_SYS_PTRACE)";
    assert_eq!(says(all, Some(true)), (Level::Ok, expected.into()));
    assert_eq!(says(all, Some(false)).0, Level::Note);
    assert_eq!(says(all, None).0, Level::Note);
    let reason = "kernel.yama.ptrace_scope is 1";
    assert_eq!(says(Err(reason), Some(true)), (Level::Note, reason.into()));
}
