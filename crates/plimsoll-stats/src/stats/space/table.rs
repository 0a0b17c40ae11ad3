//! The table as text and as JSON.

use std::fmt::{self, Display, Write};

use super::{ClassSpace, Fragmentation, Live};
use crate::json::put_string;

impl Display for Fragmentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pages of {} that contain blocks", self.backend)?;
        writeln!(
            f,
            "{:>17}  {:>12}  {:>12}  {:>12}  {:>14}  {:>14}  {:>14}",
            "blocks of bytes", "room", "in use", "live", "active", "kept", "sparse"
        )?;
        for class in &self.classes {
            let sizes = match class.largest {
                usize::MAX => format!("over {}", class.above),
                largest => format!("{} to {largest}", class.above + 1),
            };
            let live = or_dash(class.live.map(|live| live.blocks));
            write!(
                f,
                "{sizes:>17}  {:>12}  {:>12}  {live:>12}",
                class.room, class.in_use
            )?;
            let (kept, sparse) = (or_dash(class.kept()), class.sparse());
            writeln!(f, "  {:>14}  {kept:>14}  {sparse:>14}", class.active)?;
        }
        write!(
            f,
            "{:>17}  {:>12}  {:>12}  {:>12}",
            "all",
            self.sum(|class| class.room),
            self.sum(|class| class.in_use),
            self.sum_of_live()
        )?;
        let (active, sparse) = (self.active(), self.sparse());
        write!(f, "  {active:>14}  {:>14}  {sparse:>14}", "")?;
        let share = 100.0 * sparse as f64 / active.max(1) as f64;
        writeln!(f, "{share:>8.1}%")?;
        f.write_str(
            "\nsparse: bytes of these pages outside allocated blocks\nkept: bytes of allocated \
             blocks that are not the program's, and of rounding up\nlive: as counted for the \
             program, without Plimsoll's own memory\n",
        )
    }
}

fn or_dash(number: Option<impl Display>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

impl Fragmentation {
    /// Includes large blocks whether or not a class contains them.
    fn sum_of_live(&self) -> u64 {
        let known = |class: &&ClassSpace| class.largest != usize::MAX;
        let classes = self.classes.iter().filter(known);
        let small: u64 = classes
            .filter_map(|class| class.live)
            .map(|live| live.blocks)
            .sum();
        small + self.large.blocks
    }

    /// Returns the table as a JSON object, with numbers in bytes and blocks.
    pub fn json(&self) -> String {
        let mut out = String::new();
        self.put(&mut out).expect("writing to a string cannot fail");
        out
    }

    fn put(&self, out: &mut String) -> fmt::Result {
        out.push_str("{\"backend\":");
        put_string(out, self.backend)?;
        write!(
            out,
            ",\"active\":{},\"sparse\":{},\"large\":",
            self.active(),
            self.sparse()
        )?;
        put_live(out, &self.large)?;
        out.push_str(",\"classes\":[");
        for (place, class) in self.classes.iter().enumerate() {
            if place > 0 {
                out.push(',');
            }
            put_class(out, class)?;
        }
        out.push_str("]}\n");
        Ok(())
    }
}

fn put_class(out: &mut String, class: &ClassSpace) -> fmt::Result {
    write!(out, "{{\"above\":{}", class.above)?;
    if class.largest != usize::MAX {
        write!(out, ",\"largest\":{}", class.largest)?;
    }
    write!(
        out,
        ",\"room\":{},\"in_use\":{},\"in_use_bytes\":{},\"active\":{},\"sparse\":{}",
        class.room,
        class.in_use,
        class.in_use_bytes,
        class.active,
        class.sparse()
    )?;
    if let (Some(live), Some(kept)) = (&class.live, class.kept()) {
        out.push_str(",\"live\":");
        put_live(out, live)?;
        write!(out, ",\"kept\":{kept}")?;
    }
    out.push('}');
    Ok(())
}

fn put_live(out: &mut String, live: &Live) -> fmt::Result {
    write!(
        out,
        "{{\"blocks\":{},\"bytes\":{}}}",
        live.blocks, live.bytes
    )
}
