//! Finds the watched program by the URL of its pages, or by its process id.
//!
//! A process serves its pages on one of the TCP sockets on which it listens. Each address is requested
//! for the page of figures until one returns Plimsoll's. The token is sent to none of them: any
//! process may be the one behind a socket. It is sent only to an address that the user names.

use std::io;
use std::time::Duration;

use super::clean::clean;
use super::model::Trouble;
use super::source::Pages;
use plimsoll_command::failure::Failure;
use plimsoll_command::sockets;

/// The timeout for identifying a socket's server, which may be any program.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Advice for programs that serve no pages.
const START: &str = "start it with PLIMSOLL=http=127.0.0.1:6060 in its environment";

/// A watched program.
#[derive(Debug)]
pub struct Target {
    /// The pages of the program.
    pub pages: Pages,
    /// Its name on the screen and in errors.
    pub name: String,
}

impl Target {
    /// Finds the program that the argument names.
    pub fn find(program: &str) -> Result<Self, Failure> {
        if !program.is_empty() && program.bytes().all(|byte| byte.is_ascii_digit()) {
            return of_process(program);
        }
        let pages = Pages::of_url(program).ok_or_else(|| {
            let cause = "neither a URL, such as http://127.0.0.1:6060, nor a process id";
            Failure::new(named(program), cause).with_code(2)
        })?;
        Ok(Self {
            name: clean(pages.base()),
            pages,
        })
    }

    /// Describes in one line why the program cannot be watched.
    pub fn failure(&self, trouble: &Trouble) -> Failure {
        let advice = if trouble.gone {
            format!("; {START}")
        } else {
            String::new()
        };
        Failure::new(&self.name, format!("{}{advice}", trouble.why))
    }
}

fn named(program: &str) -> String {
    match program {
        "" => "''".into(),
        program => clean(program),
    }
}

fn of_process(pid: &str) -> Result<Target, Failure> {
    let fail = |cause: String| Failure::new(format!("process {pid}"), cause);
    let listening = sockets::listening(pid).and_then(|listening| {
        let shares_network = sockets::shares_network(pid)?;
        Ok((listening, shares_network))
    });
    // A number that is too large does not name a process either.
    let (listening, shares_network) = listening.map_err(|error| {
        let is_port = pid.parse::<u16>().is_ok() && error.kind() == io::ErrorKind::NotFound;
        let advice = if is_port {
            format!("; a port is :{pid}")
        } else {
            String::new()
        };
        fail(format!("{}{advice}", reason(&error)))
    })?;
    if listening.is_empty() {
        return Err(fail(format!("the process listens on no TCP port; {START}")));
    }
    let mut ports: Vec<String> = listening.iter().map(|at| at.port().to_string()).collect();
    ports.dedup();
    ports.truncate(10);
    let ports = ports.join(", ");
    if !shares_network {
        return Err(fail(format!(
            "it is in another network namespace, in which it listens on port {ports}; run plimsoll \
             top there, as in `nsenter --net=/proc/{pid}/ns/net plimsoll top :PORT`"
        )));
    }
    let mut protected = None;
    for address in listening.into_iter().map(sockets::reachable) {
        let pages = Pages::found(address);
        match pages.figures(TIMEOUT) {
            Ok(_) => {
                return Ok(Target {
                    name: format!("process {pid}, {}", pages.base()),
                    pages,
                });
            }
            Err(trouble) if trouble.needs_token => protected = protected.or(Some(address)),
            Err(_) => {}
        }
    }
    if let Some(address) = protected {
        return Err(fail(format!(
            "its pages at {address} require a token, which is sent only to an address that you name: \
             PLIMSOLL_TOKEN=TOKEN plimsoll top {address}"
        )));
    }
    Err(fail(format!(
        "Plimsoll responds on none of its ports ({ports}); {START}, or give the URL of its pages"
    )))
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such process".into(),
        io::ErrorKind::PermissionDenied => {
            "it belongs to another user; watch it as that user or as root, or give the URL of its \
             pages"
                .into()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn failure(program: &str) -> String {
        Target::find(program)
            .expect_err("there is no such program")
            .to_string()
    }

    #[test]
    fn an_invalid_target_is_reported_in_one_line() {
        for (program, why) in [
            ("", "neither a URL"),
            ("search", "neither a URL"),
            ("-1", "neither a URL"),
            ("a\u{1b}[31m\nb", "neither a URL"),
            ("0", "no such process"),
            ("99999999999999999999999", "no such process"),
        ] {
            let message = failure(program);
            assert!(message.contains(why), "{program:?}: {message}");
            assert!(!message.contains(char::is_control), "{message:?}");
        }
    }

    #[test]
    fn sockets_that_are_not_plimsolls_are_passed_over() {
        // Dropping the listener closes the port.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let hang_up = std::thread::spawn(move || {
            for connection in listener.incoming() {
                drop(connection);
            }
        });
        let message = failure(&std::process::id().to_string());
        assert!(message.contains("on none of its ports"), "{message}");
        assert!(message.contains(&address.port().to_string()), "{message}");
        drop(hang_up);
    }
}
