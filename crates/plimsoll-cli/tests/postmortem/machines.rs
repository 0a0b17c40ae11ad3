//! Files that are read on another machine than the one that wrote them. `cargo xtask test-aarch64`
//! carries the files between the machines, both ways.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_postmortem::PostMortem;

use crate::command::{Directory, stdout_of};
use crate::{Process, read, totals_add_up};

/// Names the folder for the file of this machine.
const EXPORTED: &str = "PLIMSOLL_TEST_EXPORTED";
/// Names the folder with files of other machines.
const IMPORTED: &str = "PLIMSOLL_TEST_IMPORTED";

/// Everything that does not depend on the machine that reads: the writer's text is compared.
fn described(of: &PostMortem) -> String {
    let PostMortem {
        process,
        program,
        began_ns,
        heap,
        heap_rate,
        table_full,
        history,
        damaged,
        ..
    } = of;
    let mut text = format!(
        "{process} {program} {began_ns}\n{heap:?}\nrate {heap_rate}, {table_full} full, damaged: {damaged}\n"
    );
    for site in &of.sites {
        text += &format!("{site:?}\n");
    }
    text + &format!("{history:?}\n")
}

#[test]
fn a_file_describes_its_structures_for_readers_on_other_machines() {
    let directory = Directory::new("postmortem-machines");
    let folder = std::env::var_os(EXPORTED).map_or_else(|| directory.0.clone(), PathBuf::from);
    let file = folder.join(format!("{}.postmortem", std::env::consts::ARCH));
    let name = file.to_str().unwrap();
    let settings = "heap_rate=4096,table=1m,history=256k";
    let mut process = Process::start("rise and fall with a history", name, settings);
    process.is_ready();
    process.kill();
    let written = read(name);
    totals_add_up(&written);
    assert!(written.heap.mallocs >= 400 && written.sites.len() > 1);
    assert!(!written.history.heaps.is_empty());
    fs::write(file.with_extension("txt"), described(&written)).unwrap();
}

#[test]
fn files_of_other_machines_are_read_as_on_their_own() {
    let folder = std::env::var_os(IMPORTED).filter(|folder| Path::new(folder).is_dir());
    let Some(folder) = folder else {
        plimsoll_testkit::skip!("{IMPORTED} names no folder");
        return;
    };
    let mut read_files = 0;
    for entry in fs::read_dir(Path::new(&folder)).unwrap() {
        let file = entry.unwrap().path();
        if file
            .extension()
            .is_none_or(|extension| extension != "postmortem")
        {
            continue;
        }
        let name = file.to_str().unwrap();
        let found = read(name);
        totals_add_up(&found);
        let expected = fs::read_to_string(file.with_extension("txt")).unwrap();
        assert_eq!(described(&found), expected, "{name}");
        let report = stdout_of(&["report", "--comments", name]);
        let exactly = format!(" in {} objects exactly", found.heap.mallocs);
        assert!(report.contains(&exactly), "{name}: {exactly}: {report}");
        println!("{name}: {exactly}");
        read_files += 1;
    }
    assert!(read_files > 0, "no file in {}", folder.display());
}
