//! The table as text and as JSON.

use std::fmt::{self, Display, Write};

use super::{Basis, Reconciliation, Row};
use crate::json::put_string;

impl Display for Reconciliation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.name.chars().count()).max();
        let width = width.unwrap_or(0).max("proportional share".len());
        let total = self.kernel.map(|kernel| kernel.resident);
        let share = |f: &mut fmt::Formatter<'_>, bytes: i64| match total {
            Some(total) => write!(f, "{:>8.1}%", 100.0 * bytes as f64 / total.max(1) as f64),
            None => Ok(()),
        };
        writeln!(f, "{:width$}  {:>14}  {:>14}", "bytes", "sys", "resident")?;
        for row in &self.rows {
            let sys = row
                .sys
                .map_or_else(|| "-".to_owned(), |sys| sys.to_string());
            write!(f, "{:width$}  {sys:>14}  {:>14}", row.name, row.resident)?;
            share(f, row.resident as i64)?;
            f.write_str(match row.basis {
                Basis::Measured => "\n",
                Basis::Reported => "  as reported\n",
            })?;
        }
        if let Some(unexplained) = self.unexplained() {
            write!(
                f,
                "{:width$}  {:>14}  {unexplained:>14}",
                "unexplained", "-"
            )?;
            share(f, unexplained)?;
            f.write_char('\n')?;
        }
        f.write_char('\n')?;
        let mut line = |name: &str, bytes| writeln!(f, "{name:width$}  {:>14}  {bytes:>14}", "");
        if let Some(kernel) = &self.kernel {
            line("kernel: resident", kernel.resident)?;
            line("proportional share", kernel.proportional)?;
            line("anonymous", kernel.anonymous)?;
            line("lazily freed", kernel.lazily_freed)?;
            line("swapped", kernel.swapped)?;
        }
        if let Some(cgroup) = &self.cgroup {
            line("control group", cgroup.current)?;
            if let Some(limit) = cgroup.limit {
                line("its limit", limit)?;
            }
        }
        for (name, bytes) in &self.of_which {
            writeln!(f, "of which {bytes} {name}")?;
        }
        Ok(())
    }
}

impl Reconciliation {
    /// Returns the table as a JSON object, with numbers in bytes.
    pub fn json(&self) -> String {
        let mut out = String::new();
        self.put(&mut out).expect("writing to a string cannot fail");
        out
    }

    fn put(&self, out: &mut String) -> fmt::Result {
        out.push_str("{\"version\":1,\"rows\":[");
        for (place, row) in self.rows.iter().enumerate() {
            if place > 0 {
                out.push(',');
            }
            put_row(out, row)?;
        }
        write!(out, "],\"explained\":{}", self.explained())?;
        if let (Some(kernel), Some(unexplained)) = (&self.kernel, self.unexplained()) {
            write!(
                out,
                ",\"unexplained\":{unexplained},\"kernel\":{{\"resident\":{},\"proportional\":{},\
                 \"anonymous\":{},\"lazily_freed\":{},\"swapped\":{}}}",
                kernel.resident,
                kernel.proportional,
                kernel.anonymous,
                kernel.lazily_freed,
                kernel.swapped
            )?;
        }
        if let Some(cgroup) = &self.cgroup {
            write!(out, ",\"cgroup\":{{\"current\":{}", cgroup.current)?;
            if let Some(limit) = cgroup.limit {
                write!(out, ",\"limit\":{limit}")?;
            }
            out.push('}');
        }
        out.push_str(",\"of_which\":[");
        for (place, (name, bytes)) in self.of_which.iter().enumerate() {
            if place > 0 {
                out.push(',');
            }
            out.push_str("{\"name\":");
            put_string(out, name)?;
            write!(out, ",\"bytes\":{bytes}}}")?;
        }
        out.push_str("]}\n");
        Ok(())
    }
}

fn put_row(out: &mut String, row: &Row) -> fmt::Result {
    out.push_str("{\"name\":");
    put_string(out, &row.name)?;
    if let Some(sys) = row.sys {
        write!(out, ",\"sys\":{sys}")?;
    }
    let measured = row.basis == Basis::Measured;
    write!(
        out,
        ",\"resident\":{},\"measured\":{measured}}}",
        row.resident
    )
}
