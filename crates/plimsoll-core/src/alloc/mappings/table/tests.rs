use super::*;

fn note(bucket: u32) -> Note {
    Note {
        bucket: Bucket(bucket),
        of_allocator: bucket % 2 == 1,
    }
}

fn pages(range: Range<usize>) -> Range<usize> {
    range.start * PAGE..range.end * PAGE
}

fn all(mappings: &Mappings) -> Vec<(Range<usize>, u32)> {
    let mut all = Vec::new();
    mappings.for_each(|range, note| {
        all.push((range.start / PAGE..range.end / PAGE, note.bucket.0));
    });
    all.sort_by_key(|(range, _)| range.start);
    all
}

fn cut(mappings: &Mappings, range: Range<usize>) -> Vec<(Range<usize>, Remainder)> {
    let mut cuts = Vec::new();
    mappings.cut(&pages(range), |cut| {
        cuts.push((cut.range.start / PAGE..cut.range.end / PAGE, cut.remainder));
    });
    cuts.sort_by_key(|(range, _)| range.start);
    cuts
}

#[test]
fn a_record_is_cut_at_its_head_its_tail_and_in_its_middle() {
    static MAPPINGS: Mappings = Mappings::new();
    let mappings = &MAPPINGS;
    assert!(mappings.insert(&pages(100..200), note(7)));
    assert_eq!(cut(mappings, 50..100), []);
    assert_eq!(cut(mappings, 90..110), [(100..110, Remainder::OnePart)]);
    assert_eq!(cut(mappings, 190..210), [(190..200, Remainder::OnePart)]);
    assert_eq!(cut(mappings, 140..150), [(140..150, Remainder::TwoParts)]);
    assert_eq!(all(mappings), [(110..140, 7), (150..190, 7)]);
    assert!(mappings.begins_at(150 * PAGE));
    assert_eq!(mappings.note_of(189 * PAGE + 5), Some(note(7)));
    assert_eq!(mappings.note_of(145 * PAGE), None);
    assert!(mappings.insert(&pages(140..150), note(8)));
    let rest = [
        (130..140, Remainder::OnePart),
        (140..150, Remainder::Empty),
        (150..160, Remainder::OnePart),
    ];
    assert_eq!(cut(mappings, 130..160), rest);
    assert_eq!(all(mappings), [(110..130, 7), (160..190, 7)]);
    cut(mappings, 0..1000);
    assert_eq!(all(mappings), []);
    assert!(
        mappings
            .used
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == 0)
    );
}

#[test]
fn the_longest_range_is_several_and_goes_at_once() {
    static MAPPINGS: Mappings = Mappings::new();
    let mappings = &MAPPINGS;
    let whole = PAGE..LIMIT;
    assert!(mappings.insert(&whole, note(3)));
    let found = all(mappings);
    assert_eq!(found.len(), LIMIT.div_ceil(LONGEST));
    assert_eq!(found.first().unwrap().0.start, 1);
    assert_eq!(found.last().unwrap().0.end, LIMIT / PAGE);
    let mut bytes = 0;
    mappings.cut(&whole, |cut| bytes += cut.range.len());
    assert_eq!((bytes, all(mappings)), (whole.len(), vec![]));
    assert!(!mappings.insert(&(LIMIT..LIMIT + PAGE), note(3)));
}

/// A full table finds all of its records as well.
#[test]
fn a_full_table_refuses_and_has_room_again() {
    static MAPPINGS: Mappings = Mappings::new();
    let mappings = &MAPPINGS;
    let at = |number: usize| pages(2 * number + 1..2 * number + 2);
    for number in 0..PLACES {
        assert!(mappings.insert(&at(number), note(number as u32)));
    }
    assert!(!mappings.insert(&at(PLACES), note(1)));
    assert_eq!(all(mappings).len(), PLACES);
    // This cut splits a record.
    assert_eq!(cut(mappings, 1..2), [(1..2, Remainder::Empty)]);
    assert!(mappings.insert(&pages(1_000_000..1_000_009), note(5)));
    let middle = cut(mappings, 1_000_003..1_000_005);
    assert_eq!(middle, [(1_000_003..1_000_009, Remainder::Truncated)]);
    assert_eq!(mappings.note_of(1_000_002 * PAGE), Some(note(5)));
    let mut gone = 0;
    mappings.cut(&pages(0..LIMIT / PAGE), |_| gone += 1);
    assert_eq!((gone, all(mappings)), (PLACES, vec![]));
    assert!(mappings.insert(&at(0), note(1)));
}

/// Random operations, compared with an array of pages after each step.
#[test]
fn the_table_agrees_with_a_list_of_pages() {
    const PAGES: usize = 300;
    static MAPPINGS: Mappings = Mappings::new();
    let mappings = &MAPPINGS;
    let mut model = [0u32; PAGES];
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for step in 1..5000u32 {
        let start = next(PAGES - 1);
        let range = start..start + 1 + next((PAGES - start).min(60));
        let mut gone = 0;
        mappings.cut(&pages(range.clone()), |cut| gone += cut.range.len() / PAGE);
        let there = model[range.clone()].iter().filter(|&&page| page != 0);
        assert_eq!(gone, there.count(), "{step}");
        let number = if next(2) == 0 { step } else { 0 };
        if number != 0 {
            assert!(mappings.insert(&pages(range.clone()), note(number)));
        }
        model[range].fill(number);
        let mut found = [0; PAGES];
        for (range, number) in all(mappings) {
            for page in range {
                assert_eq!(std::mem::replace(&mut found[page], number), 0, "twice");
            }
        }
        assert_eq!(found, model, "{step}");
    }
}

/// Each thread has separate addresses, like the threads of a program; two threads at a time cut the
/// head and the tail of one record.
#[test]
fn threads_that_map_and_cut_leave_nothing_and_lose_nothing() {
    static MAPPINGS: Mappings = Mappings::new();
    let mappings = &MAPPINGS;
    for round in 0..200 {
        let shared = pages(10..1010);
        assert!(mappings.insert(&shared, note(1)));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread: usize| {
                    scope.spawn(move || {
                        let mut gone = 0;
                        // Cuts from both ends.
                        for step in 0..250 {
                            let page = if thread % 2 == 0 {
                                10 + 2 * step + thread / 2
                            } else {
                                1009 - 2 * step - thread / 2
                            };
                            let range = pages(page..page + 1);
                            mappings.cut(&range, |cut| gone += cut.range.len());
                            let own = 10_000 * (thread + 1) + step;
                            assert!(mappings.insert(&pages(own..own + 1), note(2)));
                            mappings.cut(&pages(own..own + 1), |cut| {
                                assert_eq!(cut.remainder, Remainder::Empty);
                            });
                        }
                        gone
                    })
                })
                .collect();
            let gone: usize = threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum();
            // A concurrent cut may miss a piece that is moving to its place, if the move takes too
            // long.
            let left: usize = all(mappings).iter().map(|(range, _)| range.len()).sum();
            assert_eq!(gone / PAGE + left, 1000, "{round}");
            mappings.cut(&shared, |_| {});
        });
        assert_eq!(all(mappings), [], "{round}");
    }
}

/// The state that a fork finds while another thread is in the middle of a split: of `140..150` out of `100..200`.
fn in_a_split(mappings: &Mappings) {
    assert!(mappings.insert(&pages(100..200), note(7)));
    assert!(mappings.insert(&pages(300..301), note(8)));
    let at = mappings.place_of(100 * PAGE).unwrap();
    mappings.splits_begun.fetch_add(1, Ordering::SeqCst);
    assert!(mappings.replace(
        at,
        Word::from_range(&pages(100..200)).0,
        Word::from_range(&pages(100..140))
    ));
    mappings.taken.fetch_add(1, Ordering::Relaxed);
    let free = (0..PLACES)
        .find(|&at| Word(mappings.places[at].word.load(Ordering::Relaxed)) == Word::EMPTY);
    assert!(mappings.replace(free.unwrap(), Word::EMPTY.0, Word::CLAIMED));
}

#[test]
fn a_fork_in_a_split_leaves_a_table_in_which_looks_end_and_all_places_are_free() {
    static MAPPINGS: Mappings = Mappings::new();
    let mappings = &MAPPINGS;
    in_a_split(mappings);
    mappings.after_fork_in_child();
    let [begun, ended] =
        [&mappings.splits_begun, &mappings.splits_ended].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(begun, ended);
    assert_eq!(all(mappings), [(100..140, 7), (300..301, 8)]);
    assert_eq!(mappings.taken.load(Ordering::Relaxed), 2);
    let is_claimed = |place: &Entry| Word(place.word.load(Ordering::Relaxed)) == Word::CLAIMED;
    assert!(!mappings.places.iter().any(is_claimed));
    cut(mappings, 0..1000);
    assert_eq!(all(mappings), []);
    assert_eq!(mappings.taken.load(Ordering::Relaxed), 0);
}
