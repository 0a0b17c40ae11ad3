//! Attacks on a server of pages. All servers of the project have the same rules, so each test of one
//! calls [`attack`].

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::client::{Answer, connect, exchange, read_answer};

/// More connections than a server holds in any state.
const MANY: usize = 64;

/// The maximum length of a head in bytes.
const LONGEST_HEAD: usize = 16 << 10;

/// Attacks a server that answers a request for `target` with `status`, and checks the promises.
pub fn attack(address: SocketAddr, target: &str, status: u16) {
    let server = Server {
        address,
        target,
        status,
    };
    server.is_well();
    server.foreign_hosts_are_refused();
    server.pages_of_other_sites_are_refused();
    server.other_methods_are_refused();
    server.invalid_heads_are_refused();
    server.long_heads_are_refused();
    server.paths_do_not_leave_the_pages();
    server.no_header_comes_from_the_request();
    server.one_request_is_answered_on_a_connection();
    server.old_and_slow_clients_are_answered();
    server.clients_that_stall_keep_out_no_other();
    server.clients_that_leave_do_no_harm();
    server.is_well();
}

struct Server<'a> {
    address: SocketAddr,
    target: &'a str,
    status: u16,
}

impl Server<'_> {
    /// Sends a request with these header lines.
    fn ask(&self, method: &str, target: &str, headers: &[&str]) -> Answer {
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let request = format!("{method} {target} HTTP/1.1\r\n{headers}\r\n");
        let answer = exchange(self.address, request.as_bytes());
        answer.unwrap_or_else(|| panic!("no answer to {request:?}"))
    }

    fn status(&self, headers: &[&str]) -> u16 {
        self.ask("GET", self.target, headers).status
    }

    fn is_well(&self) {
        let answer = self.ask("GET", self.target, &["Host: localhost"]);
        assert_eq!(answer.status, self.status);
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        let length = answer.body.len().to_string();
        assert_eq!(answer.header("content-length"), Some(&*length));
    }

    /// Otherwise a page could resolve its own name to this address, and read the answers.
    fn foreign_hosts_are_refused(&self) {
        let own = format!("Host: {}", self.address);
        for headers in [
            &[][..],
            &[&*own],
            &["host: LOCALHOST:1"],
            &["Host: [::1]:6060"],
        ] {
            assert_eq!(self.status(headers), self.status, "{headers:?}");
        }
        for (headers, status) in [
            (&["Host: evil.example"][..], 403),
            (&["Host: localhost.evil.example"], 403),
            (&["Host: 127.0.0.1.evil.example:80"], 403),
            (&["Host: localhost", "Host: localhost"], 400),
            (&["Host: localhost", "HOST: evil.example"], 400),
            (&["Host:"], 400),
            (&["Host: a b"], 400),
            (&["Host: user@localhost"], 400),
            (&["Host: localhost/"], 400),
            (&["Host: localhost, evil.example"], 400),
        ] {
            assert_eq!(self.status(headers), status, "{headers:?}");
        }
        for (authority, status) in [
            ("localhost:1", self.status),
            ("evil.example", 403),
            ("user@localhost", 400),
            ("", 400),
        ] {
            let target = format!("http://{authority}{}", self.target);
            let answer = self.ask("GET", &target, &["Host: localhost"]);
            assert_eq!(answer.status, status, "{target}");
        }
    }

    fn pages_of_other_sites_are_refused(&self) {
        for (header, status) in [
            ("Sec-Fetch-Site: none", self.status),
            ("Sec-Fetch-Site: same-origin", self.status),
            ("Sec-Fetch-Site: cross-site", 403),
            ("sec-fetch-site:  Cross-Site ", 403),
            ("Origin: http://localhost:3000", self.status),
            ("Origin: https://evil.example", 403),
            ("Origin: null", 403),
            ("Origin: ", 403),
        ] {
            assert_eq!(
                self.status(&["Host: localhost", header]),
                status,
                "{header}"
            );
        }
    }

    fn other_methods_are_refused(&self) {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get", "BREW"] {
            let answer = self.ask(method, self.target, &["Host: localhost"]);
            assert_eq!(answer.status, 405, "{method}");
            assert_eq!(answer.header("allow"), Some("GET, HEAD"), "{method}");
        }
        let answer = self.ask("HEAD", self.target, &["Host: localhost"]);
        assert_eq!((answer.status, answer.body.len()), (self.status, 0));
        let length = answer.header("content-length");
        let whole = self
            .ask("GET", self.target, &["Host: localhost"])
            .body
            .len();
        assert_eq!(length, Some(&*whole.to_string()));
    }

    fn invalid_heads_are_refused(&self) {
        let target = self.target;
        for head in [
            "\0".to_owned(),
            "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03".to_owned(),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
            "GET\r\n\r\n".to_owned(),
            format!("GET {target}\r\n\r\n"),
            format!("GET {target} HTTP/9.9\r\n\r\n"),
            format!("GET {target}\0 HTTP/1.1\r\n\r\n"),
            format!("GET  {target} HTTP/1.1\r\n\r\n"),
            format!("GET {target} x HTTP/1.1\r\n\r\n"),
            format!("GET {target} HTTP/1.1\r\nno colon\r\n\r\n"),
            format!("GET {target} HTTP/1.1\r\nHost : localhost\r\n\r\n"),
            format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n"),
            format!("GET {target} HTTP/1.1\r\nHost: local\rhost\r\n\r\n"),
            format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nX: a\rSet-Cookie: b\r\n\r\n"),
            format!("GET {target} HTTP/1.1\r\nX: \0\r\n\r\n"),
        ] {
            let answer = exchange(self.address, head.as_bytes());
            let status = answer.map(|answer| answer.status);
            assert_eq!(status, Some(400), "{head:?}");
        }
    }

    fn long_heads_are_refused(&self) {
        let head = |bytes: usize| {
            let mut head = format!("GET {} HTTP/1.1\r\nX: ", self.target).into_bytes();
            head.resize(bytes - 4, b'x');
            head.extend_from_slice(b"\r\n\r\n");
            exchange(self.address, &head).map(|answer| answer.status)
        };
        assert_eq!(head(LONGEST_HEAD), Some(self.status));
        for bytes in [LONGEST_HEAD + 1, 2 * LONGEST_HEAD, 1 << 20] {
            assert_eq!(head(bytes), Some(431), "{bytes} bytes");
        }
        for (headers, status) in [(100, self.status), (101, 431), (1000, 431)] {
            assert_eq!(
                self.status(&vec!["a: b"; headers]),
                status,
                "{headers} headers"
            );
        }
    }

    fn paths_do_not_leave_the_pages(&self) {
        for path in [
            "/../../../../etc/passwd",
            "/..%2f..%2f..%2f..%2fetc%2fpasswd",
            "/%2e%2e/%2e%2e/etc/passwd",
            "//etc/passwd",
            "/etc/passwd%00.css",
            "file:///etc/passwd",
            "/\\..\\etc\\passwd",
        ] {
            for path in [path.to_owned(), format!("{}{path}", self.target)] {
                let answer = self.ask("GET", &path, &["Host: localhost"]);
                let text = String::from_utf8_lossy(&answer.body);
                assert_ne!(answer.status, 200, "{path}: {text}");
                assert!(!text.contains("root:"), "{path}: {text}");
            }
        }
    }

    fn no_header_comes_from_the_request(&self) {
        let is_added = |answer: &Answer| {
            let mut headers = answer.headers.iter();
            headers.any(|(name, value)| {
                name.starts_with("x-injected") || value.contains(|byte: char| byte.is_control())
            })
        };
        const INJECTED: [&str; 4] = [
            "%0d%0aX-Injected:%20a",
            "%0aX-Injected:%20a",
            "%E5%98%8A%E5%98%8DX-Injected:%20a",
            "\u{560a}\u{560d}X-Injected:a",
        ];
        for injected in INJECTED {
            for target in [
                format!("/{injected}"),
                format!("{}{injected}", self.target),
                format!("{}?{injected}", self.target),
                format!("{}?a={injected}", self.target),
                format!("//{injected}"),
            ] {
                let answer = self.ask("GET", &target, &["Host: localhost"]);
                assert!(!is_added(&answer), "{target}: {answer:?}");
            }
            let host = format!("Host: localhost{injected}");
            let answer = self.ask("GET", self.target, &[&host]);
            assert!(
                answer.status == 400 && !is_added(&answer),
                "{host}: {answer:?}"
            );
        }
    }

    fn one_request_is_answered_on_a_connection(&self) {
        let one = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", self.target);
        let answer = exchange(self.address, one.repeat(20).as_bytes()).expect("an answer");
        assert_eq!(answer.status, self.status);
        let length = answer.body.len().to_string();
        assert_eq!(
            answer.header("content-length"),
            Some(&*length),
            "and nothing else"
        );
        // A second request in the body of the first is not read.
        let smuggled = format!(
            "GET {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{one}",
            self.target,
            one.len()
        );
        let answer = exchange(self.address, smuggled.as_bytes()).expect("an answer");
        let length = answer.body.len().to_string();
        assert_eq!(
            answer.header("content-length"),
            Some(&*length),
            "and nothing else"
        );
    }

    fn old_and_slow_clients_are_answered(&self) {
        for head in [
            format!("GET {} HTTP/1.0\r\n\r\n", self.target),
            format!("GET {} HTTP/1.0\n\n", self.target),
            format!(
                "\r\nGET {}#part HTTP/1.1\r\nHost: localhost\r\n\r\n",
                self.target
            ),
        ] {
            let answer = exchange(self.address, head.as_bytes()).expect("an answer");
            assert_eq!(answer.status, self.status, "{head:?}");
            let mut stream = connect(self.address);
            stream.set_nodelay(true).unwrap();
            for byte in head.bytes() {
                stream.write_all(&[byte]).unwrap();
                std::thread::yield_now();
            }
            let answer = read_answer(&stream).expect("an answer");
            assert_eq!(answer.status, self.status, "{head:?}");
        }
    }

    fn clients_that_stall_keep_out_no_other(&self) {
        let whole = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", self.target);
        for part in [
            "",
            "G",
            &whole[..whole.len() / 2],
            &whole[..whole.len() - 1],
        ] {
            let stalled: Vec<TcpStream> = (0..MANY)
                .map(|_| {
                    let mut stream = connect(self.address);
                    let _ = stream.write_all(part.as_bytes());
                    stream
                })
                .collect();
            self.is_well();
            drop(stalled);
        }
        // They request the page, and do not read it.
        let unread: Vec<TcpStream> = (0..MANY)
            .map(|_| {
                let mut stream = connect(self.address);
                let _ = stream.write_all(whole.as_bytes());
                stream
            })
            .collect();
        // Under a burst, the newest requests come first; an older one may be answered 503.
        let is_answered = (0..100).any(|_| self.status(&["Host: localhost"]) == self.status);
        assert!(is_answered);
        drop(unread);
    }

    fn clients_that_leave_do_no_harm(&self) {
        let whole = format!("GET {} HTTP/1.1\r\n\r\n", self.target);
        for round in 0..MANY {
            let mut stream = connect(self.address);
            let part = ["", "GET", &whole][round % 3];
            let _ = stream.write_all(part.as_bytes());
            if round % 2 == 0 {
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
    }
}
