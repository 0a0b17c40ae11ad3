//! Counts words. With the argument `copy`, the program copies each line before: a change that a review
//! may overlook.

use std::collections::HashMap;

fn main() {
    let copies = std::env::args().nth(1).is_some_and(|mode| mode == "copy");
    let text = "the quick brown fox jumps over the lazy dog\n".repeat(100);
    let mut counts = HashMap::new();
    for line in text.lines() {
        if copies {
            count(&mut counts, &normalize(line));
        } else {
            count(&mut counts, line);
        }
    }
    println!("{} words", counts.len());
}

#[inline(never)]
fn normalize(line: &str) -> String {
    line.trim().to_owned()
}

#[inline(never)]
fn count(counts: &mut HashMap<String, usize>, line: &str) {
    for word in line.split(' ') {
        match counts.get_mut(word) {
            Some(count) => *count += 1,
            None => {
                counts.insert(word.to_owned(), 1);
            }
        }
    }
}
