//! Which frames of a deep stack are kept.

use plimsoll_process::deep_stacks::LEFT_OUT;
use plimsoll_unwind::walk::{End, Frames};

/// The number of frames after which the root end is not looked for.
const MAX_WALKED: usize = 16_384;

/// Returns the frames of a walk through the frames 100, 101 and so on.
fn walked(depth: usize, end: End, limit: usize, root: usize) -> (Vec<usize>, End) {
    let (mut frames, mut ring) = (vec![0; limit], vec![0; root]);
    let mut memory = Frames::new(&mut frames, &mut ring);
    let mut found = 0;
    let end = loop {
        let Some(place) = memory.place(found) else {
            break End::Full;
        };
        if found == depth {
            break end;
        }
        *place = 100 + found;
        found += 1;
    };
    let walk = memory.finish(found, end);
    (frames[..walk.frames].to_vec(), walk.end)
}

#[test]
fn a_deep_stack_has_its_leaf_end_and_its_root_end() {
    for limit in 4..20 {
        for root in 1..limit {
            for depth in 0..60 {
                let all: Vec<usize> = (100..100 + depth).collect();
                let expected = if depth <= limit {
                    (all, End::Outermost)
                } else {
                    let leaf = &all[..limit - root - 1];
                    let both = [leaf, &[LEFT_OUT], &all[depth - root..]].concat();
                    (both, End::Full)
                };
                let found = walked(depth, End::Outermost, limit, root);
                assert_eq!(found, expected, "{limit} {root} {depth}");
            }
        }
    }
}

#[test]
fn a_stack_whose_root_is_not_found_keeps_its_leaf_end() {
    let leaf: Vec<usize> = (100..110).collect();
    for end in [End::Lost, End::Stale] {
        assert_eq!(walked(10, end, 10, 3), (leaf.clone(), end));
        assert_eq!(walked(30, end, 10, 3), (leaf.clone(), end));
    }
    let all = |depth| walked(depth, End::Outermost, 10, 3);
    assert_eq!(all(MAX_WALKED - 1).0[6], LEFT_OUT);
    assert_eq!(all(MAX_WALKED), (leaf.clone(), End::Full));
    assert_eq!(walked(30, End::Outermost, 10, 0), (leaf, End::Full));
}
