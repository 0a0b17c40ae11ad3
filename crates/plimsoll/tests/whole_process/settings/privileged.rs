//! A program with privileges that its user lacks ignores all settings of the environment.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use plimsoll::profile;

use super::{Dir, lines};

/// Environment variable that is set in the privileged process.
const MARK: &str = "PLIMSOLL_TEST_PRIVILEGED";

/// A user and a group without privileges.
const USER: u32 = 65534;

/// The line that the process prints if the kernel granted the privileges.
const ELEVATED: &str = "the process has elevated privileges";

/// Runs in the privileged process.
fn privileged_program() {
    // SAFETY: `getauxval` reads what the kernel wrote before the process began.
    if unsafe { libc::getauxval(libc::AT_SECURE) } == 0 {
        return;
    }
    println!("{ELEVATED}");
    let plimsoll = plimsoll::start();
    assert_eq!(profile::heap_rate(), profile::DEFAULT_HEAP_RATE);
    assert_eq!(profile::set_stack_depth(5), 128);
    assert_eq!(plimsoll.http_address(), None);
    // SAFETY: reads the disposition of a signal; all zeros is a valid `sigaction`.
    let sigquit = unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        let done = libc::sigaction(libc::SIGQUIT, std::ptr::null(), &raw mut present);
        assert_eq!(done, 0);
        present.sa_sigaction
    };
    assert_eq!(sigquit, libc::SIG_DFL);
    drop(plimsoll);
}

/// Returns a value with every setting; files would be created in `dir`.
fn every_setting(dir: &Dir) -> String {
    let path = dir.0.display();
    format!(
        "postmortem={path}/post-mortem,out={path},http=127.0.0.1:0,heap_rate=3k,stack_depth=17,\
         dump_on=sigquit+panic,block_rate=1ns,mutex_fraction=1,leak_age=1s,long_poll=1ms,\
         task_times=on,go_names=on,memory_limit=64m,thread_signal=40,unwinder=tables,table=1m,\
         ledger=per-thread"
    )
}

#[test]
fn a_privileged_program_ignores_the_environment_and_warns_in_one_line() {
    const NAME: &str =
        "privileged::a_privileged_program_ignores_the_environment_and_warns_in_one_line";
    if std::env::var_os(MARK).is_some() {
        return privileged_program();
    }
    // SAFETY: the call has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        plimsoll_testkit::skip!("only root can make a program that is another user's and setuid");
        return;
    }
    // A shell makes its background jobs ignore this signal, and the program inherits that.
    //
    // SAFETY: sets a disposition that no handler of this process replaces.
    unsafe { libc::signal(libc::SIGQUIT, libc::SIG_DFL) };
    for (kind, mode) in [("setuid", 0o4755), ("setgid", 0o2755)] {
        let programs = Dir::new(kind);
        let program = programs.0.join("program");
        plimsoll_testkit::child::copy_program(&std::env::current_exe().unwrap(), &program);
        // A change of owner clears the mode bits, so they are set after it.
        chown(&program, Some(0), Some(0)).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
        let dir = Dir::new(&format!("{kind}-output"));
        fs::set_permissions(&dir.0, PermissionsExt::from_mode(0o777)).unwrap();
        let output = Command::new(&program)
            .args([
                &*plimsoll_testkit::child::full_name(NAME),
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(MARK, "1")
            .env("PLIMSOLL", every_setting(&dir))
            .current_dir("/")
            .uid(USER)
            .gid(USER)
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let warned = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kind}: {printed}{warned}");
        assert!(printed.contains("1 passed"), "{kind}: {printed}{warned}");
        if !printed.contains(ELEVATED) {
            plimsoll_testkit::skip!("the file system or this process's flags take {kind} away");
            continue;
        }
        assert!(dir.names().is_empty(), "{kind}: {:?}", dir.names());
        let warnings = lines(&warned);
        assert_eq!(warnings.len(), 1, "{kind}: {warned}");
        assert!(
            warnings[0].starts_with("plimsoll: PLIMSOLL is ignored: "),
            "{kind}: {warned}"
        );
    }
}
