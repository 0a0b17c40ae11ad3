use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_IMM, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_JSET,
    BPF_K, BPF_LD, BPF_LDX, BPF_MEM, BPF_MISC, BPF_OR, BPF_RET, BPF_RSH, BPF_ST, BPF_TAX, BPF_TXA,
    BPF_W, BPF_X, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_LOG,
    SECCOMP_RET_TRAP, sock_filter,
};

use super::*;

fn jump(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    let code = code as u16;
    sock_filter { code, jt, jf, k }
}

fn plain(code: u32, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

fn load(offset: u32) -> sock_filter {
    plain(BPF_LD | BPF_W | BPF_ABS, offset)
}

fn end(result: u32) -> sock_filter {
    plain(BPF_RET | BPF_K, result)
}

const READ: c_long = libc::SYS_read;
const WRITE: c_long = libc::SYS_write;
const GETPID: c_long = libc::SYS_getpid;

/// Evaluates a program; another test may evaluate one at the same time.
fn allowed_by(program: &[sock_filter]) -> Calls {
    let mut paths = loop {
        match Paths::take() {
            Some(paths) => break paths,
            None => std::thread::yield_now(),
        }
    };
    let allowed = (0..NUMBERS as u32).filter(|&number| paths.allow(program, number));
    allowed.fold(Calls::NONE, |calls, number| calls.with(number.into()))
}

#[test]
fn a_list_of_allowed_calls_allows_these_and_no_other() {
    for refusal in [
        SECCOMP_RET_KILL_PROCESS,
        SECCOMP_RET_TRAP,
        SECCOMP_RET_LOG,
        SECCOMP_RET_ERRNO | 1,
    ] {
        let program = [
            load(4),
            jump(BPF_JMP | BPF_JEQ | BPF_K, FILTER_ARCHITECTURE, 0, 3),
            load(0),
            jump(BPF_JMP | BPF_JEQ | BPF_K, READ as u32, 2, 0),
            jump(BPF_JMP | BPF_JEQ | BPF_K, WRITE as u32, 1, 0),
            end(refusal),
            end(SECCOMP_RET_ALLOW),
        ];
        assert_eq!(
            allowed_by(&program),
            Calls::NONE.with(READ).with(WRITE),
            "{refusal:#x}"
        );
    }
}

#[test]
fn a_call_that_depends_on_an_argument_is_not_allowed() {
    let program = [
        load(0),
        jump(BPF_JMP | BPF_JEQ | BPF_K, WRITE as u32, 0, 3),
        load(16),
        jump(BPF_JMP | BPF_JEQ | BPF_K, 1, 1, 0),
        end(SECCOMP_RET_KILL_PROCESS),
        end(SECCOMP_RET_ALLOW),
    ];
    let calls = allowed_by(&program);
    assert!(!calls.contains(WRITE) && calls.contains(READ) && calls.contains(GETPID));
}

#[test]
fn what_no_path_leads_to_does_not_count() {
    // A range of numbers by calculation, and a refusal that no number reaches.
    let program = [
        load(0),
        plain(BPF_ALU | BPF_RSH | BPF_K, 31),
        jump(BPF_JMP | BPF_JSET | BPF_K, 1, 0, 1),
        end(SECCOMP_RET_KILL_PROCESS),
        load(0),
        jump(BPF_JMP | BPF_JGE | BPF_K, 2, 0, 1),
        end(SECCOMP_RET_ERRNO | 1),
        end(SECCOMP_RET_ALLOW),
    ];
    assert_eq!(allowed_by(&program), Calls::NONE.with(0).with(1));
}

#[test]
fn a_program_that_is_not_valid_allows_nothing() {
    for program in [
        vec![],
        vec![load(0)],
        vec![jump(BPF_JMP | BPF_JA, 5, 0, 0), end(SECCOMP_RET_ALLOW)],
        vec![
            jump(BPF_JMP | BPF_JA, u32::MAX, 0, 0),
            end(SECCOMP_RET_ALLOW),
        ],
        vec![plain(BPF_RET | libc::BPF_X, SECCOMP_RET_ALLOW)],
        vec![end(SECCOMP_RET_ALLOW); MAX_LENGTH + 1],
    ] {
        let length = program.len();
        let calls = match length > MAX_LENGTH || program.is_empty() {
            true => Calls::allowed_by(&program),
            false => allowed_by(&program),
        };
        assert_eq!(calls, Calls::NONE, "{length} instructions");
    }
    assert_eq!(allowed_by(&[end(SECCOMP_RET_ALLOW)]), Calls::ALL);
}

#[test]
fn sets_of_calls_have_their_members() {
    let set = Calls::NONE.with(0).with(63).with(64).with(511).with(512);
    for number in [0, 63, 64, 511] {
        assert!(set.contains(number));
    }
    assert!(!set.contains(512) && !set.contains(-1) && !set.contains(1));
    let both = set.and(&Calls::NONE.with(64).with(65));
    assert_eq!(both, Calls::NONE.with(64));
    assert_eq!(set.and(&Calls::ALL), set);
}

/// A generator of numbers with a fixed seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((self.0 >> 33) as u32) % limit
    }
}

/// The calls that the kernel is asked for: without effects and without pointers.
const TRIED: [c_long; 6] = [
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_getgid,
    libc::SYS_gettid,
    libc::SYS_sched_yield,
];

/// Returns a program that the kernel accepts. It allows the end of the process.
fn random_program(numbers: &mut Numbers) -> Vec<sock_filter> {
    const REFUSAL: u32 = SECCOMP_RET_ERRNO | 99;
    let length = 2 + numbers.below(24);
    let mut program = vec![
        load(0),
        jump(BPF_JMP | BPF_JEQ | BPF_K, libc::SYS_exit_group as u32, 0, 1),
        end(SECCOMP_RET_ALLOW),
        // The scratch memory must be stored before it is loaded.
        plain(BPF_ST, 0),
        plain(BPF_LDX | BPF_W | BPF_IMM, 3),
    ];
    for at in 0..length {
        let rest = length - at - 1;
        let constant = match numbers.below(3) {
            0 => TRIED[numbers.below(6) as usize] as u32,
            1 => numbers.below(300),
            _ => numbers.below(4),
        };
        let mut skipped = || numbers.below(rest.clamp(1, 200)) as u8;
        let (one, other) = (skipped(), skipped());
        let kind = numbers.below(14);
        program.push(match kind {
            _ if rest == 0 => end(REFUSAL),
            0 | 1 => load(0),
            2 => load(16 + 4 * numbers.below(4)),
            3 => load(4),
            4 => plain(BPF_ALU | BPF_AND | BPF_K, constant),
            5 => plain(BPF_ALU | BPF_OR | BPF_X, 0),
            6 => plain(BPF_LD | BPF_W | BPF_MEM, 0),
            7 => plain(BPF_MISC | [BPF_TAX, BPF_TXA][numbers.below(2) as usize], 0),
            8 => end(SECCOMP_RET_ALLOW),
            9 => jump(BPF_JMP | BPF_JGT | BPF_K, constant, one, other),
            10 => jump(BPF_JMP | BPF_JSET | BPF_X, 0, one, other),
            _ => jump(BPF_JMP | BPF_JEQ | BPF_K, constant, one, other),
        });
    }
    *program.last_mut().unwrap() = end([REFUSAL, SECCOMP_RET_ALLOW][numbers.below(2) as usize]);
    program
}

/// Installs a program, makes the tried calls with these arguments, and ends the process: with a bit set for each call
/// that was made, or with 255 if the kernel refuses the program.
fn end_with_answers(program: &[sock_filter], arguments: [usize; 6]) -> ! {
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the program is valid for the calls, which have no effect but on this process, which ends.
    unsafe {
        let installed = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter,
            ) == 0;
        let mut made = 0;
        for (bit, number) in TRIED.into_iter().enumerate() {
            let result = crate::arch::system_call(number, arguments);
            made |= usize::from(result != -99) << bit;
        }
        crate::arch::system_call(
            libc::SYS_exit_group,
            [if installed { made } else { 255 }, 0, 0, 0, 0, 0],
        );
    }
    unreachable!("the program allows the end of the process");
}

#[test]
fn the_kernel_makes_every_call_that_counts_as_allowed() {
    let mut numbers = Numbers(1);
    let (mut allowed, mut refused, mut accepted) = (0, 0, 0);
    for _ in 0..300 {
        let program = random_program(&mut numbers);
        let calls = allowed_by(&program);
        let mut arguments = [0; 6];
        arguments.fill_with(|| numbers.below(4) as usize);
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            end_with_answers(&program, arguments);
        }
        let mut status = 0;
        // SAFETY: waits for the own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "{status:#x}");
        let made = libc::WEXITSTATUS(status);
        if made == 255 {
            continue;
        }
        accepted += 1;
        for (bit, number) in TRIED.into_iter().enumerate() {
            let is_made = made >> bit & 1 != 0;
            if calls.contains(number) {
                allowed += 1;
                assert!(is_made, "{number} by {} instructions", program.len());
            } else if !is_made {
                refused += 1;
            }
        }
    }
    // The programs tell the calls apart.
    assert!(
        accepted >= 250 && allowed > 50 && refused > 50,
        "{accepted} {allowed} {refused}"
    );
}
