//! Hand-made profiles: pprof's `profile.proto`, compressed.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Functions with their files and lines, the innermost first.
pub type Stack = Vec<(String, String, u64)>;

/// Returns a profile with these sample types and these values of stacks.
pub fn profile<const N: usize>(types: &[&str; N], samples: &[(Stack, [i64; N])]) -> Vec<u8> {
    let mut strings = vec![String::new()];
    let mut index = |text: &str| {
        strings.push(text.into());
        strings.len() as u64 - 1
    };
    let mut bytes = Vec::new();
    for name in types {
        let mut message = Vec::new();
        number(&mut message, 1, index(name));
        number(&mut message, 2, index("count"));
        part(&mut bytes, 1, &message);
    }
    let mut locations = 0;
    for (stack, values) in samples {
        let mut sample = Vec::new();
        for (function, file, line) in stack {
            locations += 1;
            number(&mut sample, 1, locations);
            let mut of_line = Vec::new();
            number(&mut of_line, 1, locations);
            number(&mut of_line, 2, *line);
            let mut location = Vec::new();
            number(&mut location, 1, locations);
            part(&mut location, 4, &of_line);
            part(&mut bytes, 4, &location);
            let mut of_function = Vec::new();
            number(&mut of_function, 1, locations);
            number(&mut of_function, 2, index(function));
            number(&mut of_function, 4, index(file));
            part(&mut bytes, 5, &of_function);
        }
        for value in values {
            number(&mut sample, 2, value.cast_unsigned());
        }
        part(&mut bytes, 2, &sample);
    }
    for string in &strings {
        part(&mut bytes, 6, string.as_bytes());
    }
    let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
    compressed.write_all(&bytes).expect("memory takes it");
    compressed.finish().expect("memory takes it")
}

fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn number(to: &mut Vec<u8>, field: u64, value: u64) {
    varint(to, field << 3);
    varint(to, value);
}

fn part(to: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    varint(to, field << 3 | 2);
    varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}
