//! Numbers for people.

use plimsoll_launch::run::units::{bytes, count, nanoseconds, seconds};

#[test]
fn numbers_are_written_to_be_read() {
    assert_eq!(bytes(0), "0 B");
    assert_eq!(bytes(1023), "1023 B");
    assert_eq!(bytes(1536), "1.5 KiB");
    assert_eq!(bytes(u64::MAX), "16.0 EiB");
    assert_eq!(count(0), "0");
    assert_eq!(count(999), "999");
    assert_eq!(count(1_234_567), "1,234,567");
    assert_eq!(seconds(0.000_001_5), "1.5 us");
    assert_eq!(nanoseconds(1_500_000), "1.5 ms");
    assert_eq!(seconds(61.0), "61.00 s");
}
