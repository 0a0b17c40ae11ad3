//! The profiles in text form.

use crate::contention::scenarios;
use crate::contention::scene::alone;

#[test]
fn text_is_as_go_writes_it() {
    let _alone = alone();
    scenarios::mutex_lock();
    for (name, head) in [
        ("block", "--- contention:\ncycles/second=1000000000\n"),
        (
            "mutex",
            "--- mutex:\ncycles/second=1000000000\nsampling period=1\n",
        ),
    ] {
        let mut text = Vec::new();
        let profile = plimsoll::profile::lookup(name).unwrap();
        profile
            .write_to(&mut text, plimsoll::profile::Format::Text)
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        let rest = text.strip_prefix(head).unwrap_or_else(|| panic!("{text}"));
        let mut last = u64::MAX;
        let mut records = 0;
        for line in rest.lines().filter(|line| !line.is_empty()) {
            assert_ne!(line, "#\t0x0");
            if line.starts_with('#') {
                continue;
            }
            let (values, addresses) = line.split_once(" @").expect(line);
            let (delay, count) = values.split_once(' ').expect(line);
            let delay: u64 = delay.parse().expect(line);
            count.parse::<u64>().expect(line);
            assert!(
                addresses
                    .split(' ')
                    .skip(1)
                    .all(|address| address.starts_with("0x")),
                "{line}"
            );
            assert!(delay <= last, "the longest comes first");
            last = delay;
            records += 1;
        }
        assert!(
            records > 0 && text.contains("scenarios::mutex_lock"),
            "{text}"
        );
    }
}
