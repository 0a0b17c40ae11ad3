use super::*;
use crate::modules::ModuleList;
use crate::unwind_tables::{self, Context};
use crate::walk::Frames;

#[test]
fn a_name_belongs_to_one_walk() {
    let modules = ModuleList::from_loader();
    let mut trail = Trail::new();
    let mut context = Context::new_in();
    let mut frames = [0; 128];
    let start = Start::Here(Registers::here());
    let from = Beginning::new(start, WalkMethod::Tables).unwrap();
    unwind_tables::walk(
        start,
        &modules,
        &mut context,
        &mut trail,
        Frames::leaf_end(&mut frames),
    );
    let met = loop {
        if let Some(met) = remember(&from, &trail) {
            break met;
        }
    };
    assert_eq!(met.name(), None);
    met.set_name(StackName(7));
    let again = find(&from, |_, _| ()).expect("just remembered").0;
    assert_eq!(again.name(), Some(StackName(7)));
    // Often enough that the entry is reused.
    for _ in 0..2 * IN_SET {
        remember(&from, &trail);
    }
    let reused = Remembered {
        turn: met.key.turn.load(Ordering::Relaxed),
        ..met
    };
    assert_eq!(reused.name(), None);
}
