//! The writer of a profile fails.

use std::io::{self, Write};

use plimsoll::profile::{self, Format};
use plimsoll_testkit::child;

/// Takes so many bytes, and then fails.
struct Failing(usize);

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        match taken {
            0 => Err(io::Error::other("the disk is on fire")),
            taken => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn errors_of_a_writer_are_returned_by_each_profile_in_each_form() {
    let name = "errors_of_a_writer_are_returned_by_each_profile_in_each_form";
    child::run(name, "heap_rate=0,cpu_rate=100", || {
        let _plimsoll = plimsoll::start();
        let mut number = 0;
        for profile in profile::profiles() {
            for format in [Format::Pprof, Format::Text, Format::Dump] {
                let mut whole = Vec::new();
                profile.write_to(&mut whole, format).unwrap();
                for taken in [0, whole.len() / 2] {
                    let error = profile.write_to(&mut Failing(taken), format).unwrap_err();
                    let message = error.to_string();
                    let name = profile.name();
                    assert!(message.contains("the disk is on fire"), "{name}: {message}");
                }
                number += 1;
            }
            profile.write_to(&mut Vec::new(), Format::Pprof).unwrap();
        }
        assert!(number >= 3 * 10, "{number}");
    });
}
