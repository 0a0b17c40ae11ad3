//! Prints all pages as plain text, once.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use super::pages::Page;
use super::table::Table;
use super::view::Look;
use plimsoll_args::args::TopArguments;
use plimsoll_command::failure::Failure;
use plimsoll_watch::watch::clean::ascii;
use plimsoll_watch::watch::find::Target;
use plimsoll_watch::watch::model::{Model, Trouble, Update};
use plimsoll_watch::watch::sites::Kind;
use plimsoll_watch::watch::source;

/// Reads the figures twice, because of the rates, and each profile once, and prints them.
///
/// # Errors
/// Figures cannot be read, or a profile other than those of CPU time and growth. If only profiles are missing, the
/// rest is printed.
pub(super) fn print(arguments: &TopArguments, target: &Target) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let mut model = Model::default();
    let read = |model: &mut Model| {
        let at = began.elapsed();
        let figures = source::figures_now(&target.pages);
        let figures = figures.map_err(|trouble| target.failure(&trouble))?;
        model.learn(Update::Figures(at, Ok(figures)));
        Ok::<(), Failure>(())
    };
    read(&mut model)?;
    thread::sleep(arguments.interval);
    read(&mut model)?;
    if let Ok(line) = target.pages.command_line() {
        model.learn(Update::CommandLine(line));
    }
    let mut missing: Option<(Kind, Trouble)> = None;
    let mut kinds: Vec<Kind> = Vec::new();
    for kind in Page::ALL.iter().flat_map(|page| page.profiles()) {
        if !kinds.contains(kind) {
            kinds.push(*kind);
        }
    }
    for kind in kinds {
        let sites = target.pages.profile(kind);
        // Another client may record a CPU profile, some systems have none, and growth may be off: their
        // tables say so.
        let is_optional = matches!(kind, Kind::Cpu | Kind::Growth);
        if let (Err(trouble), false) = (&sites, is_optional) {
            missing.get_or_insert_with(|| (kind, trouble.clone()));
        }
        model.learn(Update::Profile(kind, sites));
    }
    let text = text(&model, target, arguments);
    let text = if Look::of_environment().unicode {
        text
    } else {
        ascii(&text)
    };
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => {}
        // The reader closed its end of the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        Err(error) => return Err(Failure::new("stdout", error)),
    }
    match missing {
        None => Ok(ExitCode::SUCCESS),
        Some((kind, trouble)) => Err(Failure::new(
            format!("{}: the profile {}", target.name, kind.name()),
            trouble.why,
        )),
    }
}

fn text(model: &Model, target: &Target, arguments: &TopArguments) -> String {
    let mut text = format!("program  {}\npages    {}\n", model.program, target.name);
    for page in Page::ALL {
        let _ = writeln!(text, "\n{}", page.title().to_uppercase());
        let fields = page.fields(model);
        let width = fields
            .iter()
            .map(|field| field.name.len())
            .max()
            .unwrap_or(0);
        for field in &fields {
            let _ = writeln!(text, "{:width$}  {}", field.name, field.value);
        }
        // The table of the overview is the next page's.
        if page == Page::Overview {
            continue;
        }
        let mut table = page.table(model);
        table.filter(&arguments.filter);
        table.sort(page.order());
        // The table of sizes is short, and only useful as a whole.
        let all = page == Page::Sizes;
        let most = if all { usize::MAX } else { arguments.rows };
        put_table(&mut text, &table, most);
    }
    text
}

fn put_table(text: &mut String, table: &Table, most: usize) {
    if table.rows.is_empty() {
        let _ = writeln!(text, "{}", table.why_empty);
        return;
    }
    let heads = table.columns.iter().map(|column| column.title);
    put_row(text, table, heads);
    for row in table.rows.iter().take(most) {
        put_row(text, table, row.cells.iter().map(|cell| &*cell.text));
    }
    if let Some(more @ 1..) = table.rows.len().checked_sub(most) {
        let _ = writeln!(text, "... {more} more rows");
    }
}

fn put_row<'a>(text: &mut String, table: &Table, cells: impl Iterator<Item = &'a str>) {
    let mut line = String::new();
    for (column, cell) in table.columns.iter().zip(cells) {
        let width = column.width;
        if column.number {
            let _ = write!(line, "{cell:>width$}  ");
        } else {
            let _ = write!(line, "{cell:width$}  ");
        }
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::top::testing;
    use plimsoll_args::args::{Arguments, Command};

    fn printed(more: &[&str]) -> String {
        let line = ["plimsoll", "top", "http://127.0.0.1:6060", "--once"];
        let line = line.iter().chain(more);
        let Command::Top(arguments) = Arguments::parse_from(line).command else {
            unreachable!("the subject matches");
        };
        let target = Target::find(&arguments.program).expect("a URL");
        text(&testing::model(), &target, &arguments)
    }

    #[test]
    fn every_page_is_printed_with_its_figures_and_its_table() {
        let text = printed(&[]);
        for line in [
            "program  search --load 2",
            "pages    http://127.0.0.1:6060",
            "OVERVIEW",
            "heap        12.0 MiB",
            "SITES",
            "   IN USE  OBJECTS     ALLOC/S  ALLOCATED  WHERE",
            " 8.00 MiB       80  1.00 MiB/s   80.0 MiB  search::index::Index::add index.rs:120",
            "waiter    3.00 s           -       30  search::store::Cache::get store.rs:45",
            "holder    2.00 s           -       20  search::store::Cache::get store.rs:45",
            "      6  waiting       search::service::accept service.rs:9",
        ] {
            assert!(
                text.lines().any(|printed| printed == line),
                "{line}\n{text}"
            );
        }
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
        let waiter = text.find("\nwaiter").expect("a row");
        assert!(
            waiter < text.find("\nholder").expect("a row"),
            "the longest first"
        );
    }

    #[test]
    fn rows_are_as_many_as_wanted() {
        let text = printed(&["--rows", "1"]);
        assert!(text.contains("\n... 2 more rows\n"), "{text}");
        assert!(!text.contains("search::main main.rs"), "{text}");
        let text = printed(&["--filter", "MAIN"]);
        assert!(text.contains("search::main main.rs:7"), "{text}");
        assert!(!text.contains("search::store::Cache"), "{text}");
        assert!(text.contains("No row matches the filter."), "{text}");
    }
}
