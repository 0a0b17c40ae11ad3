//! The users of processes, and the reports that they may write.
//!
//! A worker of a server that has dropped its privileges knows the directory for reports, and may be hostile. The
//! kernel states the owner of each file. So a file of another user counts only for a process that may have been
//! that user's, and has less room.

use std::fs;

use super::numbers::Id;

/// The users of a run.
#[derive(Clone, Debug, Default)]
pub struct Users {
    /// The user of this process.
    own: u32,
    /// The program, and its users at its end; none if they are unknown.
    program: u32,
    of_program: Vec<u32>,
}

impl Users {
    /// Reads the users of the program, which has ended and not been waited for.
    pub fn at_end_of(program: u32) -> Self {
        Self {
            own: rustix::process::geteuid().as_raw(),
            program,
            of_program: users_of(program).unwrap_or_default(),
        }
    }

    /// Returns whether this process runs as the user.
    pub fn is_own(&self, user: u32) -> bool {
        user == self.own
    }

    /// Returns whether a file of a user may be the report of a process. The users of another process than the
    /// program are known only while it lives, and in the namespace of this command.
    pub fn may_report(&self, user: u32, process: Id) -> bool {
        if self.is_own(user) {
            return true;
        }
        if process == Id::here(self.program) {
            return self.of_program.contains(&user);
        }
        process.namespace != 0
            || users_of(process.process).is_none_or(|users| users.contains(&user))
    }
}

/// Returns the real, effective, saved and file-system user of a process.
pub(super) fn users_of(process: u32) -> Option<Vec<u32>> {
    let users = field(process, "Uid")?;
    let users = users.split_ascii_whitespace();
    users.map(|user| user.parse().ok()).collect()
}

/// Returns a field of the status of a process.
pub(super) fn field(process: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let mut fields = status.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(its, _)| *its == name)?;
    Some(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_user_reports_only_on_processes_of_its_own() {
        const OTHER: u32 = 12_345;
        let program = Id::here(std::process::id());
        let first = Id::here(1);
        let mut users = Users::at_end_of(program.process);
        assert!(users.may_report(users.own, program) && users.may_report(users.own, first));
        assert!(!users.may_report(OTHER, program) && !users.may_report(OTHER, first));
        // No process has this number.
        assert!(users.may_report(OTHER, Id::here(u32::MAX)));
        users.of_program = vec![0, OTHER];
        assert!(users.may_report(OTHER, program));
    }
}
