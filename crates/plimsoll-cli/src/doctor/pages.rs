//! Findings about the pages of a process, whose settings name their address.
//!
//! Any process can have any settings, and any process may be the one behind an address. So a request
//! goes only to a port on which the process listens, in the network of this one, and without the token.

use super::findings::{Finding, Section};
use super::{settings, url};
use plimsoll_command::http::Server;
use plimsoll_command::sockets;

const SUBJECT: &str = "pages";

/// Returns findings about the pages, if the process's settings serve them.
pub(super) fn section(process: u32, settings: &str) -> Option<Section> {
    let address = settings::value(settings, "http").filter(|&value| value != "off")?;
    let found = pages(process, address);
    Some(found.unwrap_or_else(|finding| Section {
        title: format!("pages at {address}"),
        findings: vec![finding],
    }))
}

fn pages(process: u32, address: &str) -> Result<Section, Finding> {
    if address.starts_with("unix:") {
        return Err(Finding::ok(
            SUBJECT,
            "they are at a path, which is not read here",
        ));
    }
    let unknown = |error: std::io::Error| {
        Finding::note(SUBJECT, format!("its sockets cannot be read: {error}"))
            .so("run plimsoll doctor as its user, or as root")
    };
    let listening = sockets::listening(process).map_err(unknown)?;
    if !sockets::shares_network(process).map_err(unknown)? {
        return Err(Finding::note(
            SUBJECT,
            "they are in another network namespace, which is not read here",
        )
        .so(format!(
            "nsenter --net=/proc/{process}/ns/net plimsoll doctor :PORT"
        )));
    }
    let port = address
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok());
    let own = listening
        .into_iter()
        .find(|listening| Some(listening.port()) == port);
    let Some(own) = own else {
        let says = format!("its settings enable them at {address}, but it does not listen there");
        return Err(Finding::bad(SUBJECT, says).so(
            "check its standard error; it must call plimsoll::start, and keep the returned value",
        ));
    };
    let url = format!("http://{}", sockets::reachable(own));
    url::section(&url, Server::Found).map_err(|failure| Finding::bad(SUBJECT, failure.to_string()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::findings::Level;
    use super::*;

    #[test]
    fn only_ports_of_the_process_are_requested() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let answers = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a request");
            drop(stream);
        });
        let own = std::process::id();
        // The settings name another host: the request goes to this process.
        let found = section(own, &format!("http=evil.example:{port}")).expect("it serves");
        assert_eq!(found.findings[0].level, Level::Bad);
        answers.join().expect("it was requested");
        for (settings, says) in [
            ("http=evil.example:1", "does not listen there"),
            ("http=0", "does not listen there"),
            ("http=unix:/run/x", "are at a path"),
        ] {
            let found = section(own, settings).expect("it serves");
            assert!(found.findings[0].says.contains(says), "{found:?}");
        }
        assert!(section(own, "http=off").is_none());
        assert!(section(own, "heap_rate=1").is_none());
    }
}
