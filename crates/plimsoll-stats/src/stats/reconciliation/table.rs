//! The table as text and as JSON.

use std::fmt::{self, Display, Write};

use super::{Basis, Reconciliation, Row};
use crate::json::put_string;
use crate::stats::footprint::Footprint;
use crate::stats::limits::{ControlGroup, NearestLimit};

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
        let Footprint {
            accounts,
            declared,
            peak_declared,
            ..
        } = &self.footprint;
        if !accounts.is_empty() {
            line("declared by the program", *declared)?;
            line("  at the peak", *peak_declared)?;
        }
        for group in &self.groups {
            line("control group", group.current)?;
            for (name, bytes) in parts(group) {
                line(name, bytes)?;
            }
            let limits = [("its limit", group.max), ("slowed down from", group.high)];
            for (name, limit) in limits {
                limit.map_or(Ok(()), |limit| line(name, limit))?;
            }
        }
        if let Some(nearest) = &self.nearest_limit {
            writeln!(f, "{nearest}")?;
        }
        for account in &self.footprint.accounts {
            writeln!(f, "{account}")?;
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
        put_footprint(out, &self.footprint)?;
        out.push_str(",\"groups\":[");
        for (place, group) in self.groups.iter().enumerate() {
            if place > 0 {
                out.push(',');
            }
            put_group(out, group)?;
        }
        out.push(']');
        if let Some(nearest) = &self.nearest_limit {
            put_nearest(out, nearest)?;
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

/// Returns the parts of a group's memory that are not 0, with their names in the table.
fn parts(group: &ControlGroup) -> impl Iterator<Item = (&'static str, u64)> {
    [
        ("  anonymous", group.anonymous),
        ("  cached files", group.files),
        ("  tmpfs and shared", group.shared),
        ("  kernel", group.kernel),
        ("  sockets", group.sockets),
        ("  can be taken back", group.reclaimable),
        ("swapped out", group.swapped.unwrap_or(0)),
    ]
    .into_iter()
    .filter(|&(_, bytes)| bytes > 0)
}

fn put_footprint(out: &mut String, footprint: &Footprint) -> fmt::Result {
    out.push_str(",\"footprint\":{");
    for (name, bytes) in [
        ("declared", footprint.declared),
        ("peak_declared", footprint.peak_declared),
        ("allocated", footprint.allocated),
        ("heap", footprint.heap),
        ("committed", footprint.committed),
    ] {
        write!(out, "\"{name}\":{bytes},")?;
    }
    if let Some(resident) = footprint.resident {
        write!(out, "\"resident\":{resident},")?;
    }
    out.push_str("\"accounts\":[");
    for (place, account) in footprint.accounts.iter().enumerate() {
        out.push_str(if place > 0 { ",{" } else { "{" });
        out.push_str("\"path\":");
        put_string(out, &account.path)?;
        for (name, bytes) in [
            ("declared", account.declared),
            ("peak_declared", account.peak_declared),
            ("allocated", account.allocated),
            ("peak_allocated", account.peak_allocated),
            ("excess", account.excess),
        ] {
            write!(out, ",\"{name}\":{bytes}")?;
        }
        out.push('}');
    }
    out.push_str("]}");
    Ok(())
}

fn put_group(out: &mut String, group: &ControlGroup) -> fmt::Result {
    out.push_str("{\"path\":");
    put_string(out, &group.path)?;
    let known = [
        ("current", group.current),
        ("anonymous", group.anonymous),
        ("files", group.files),
        ("shared", group.shared),
        ("kernel", group.kernel),
        ("sockets", group.sockets),
        ("reclaimable", group.reclaimable),
    ];
    let optional = [
        ("swapped", group.swapped),
        ("max", group.max),
        ("high", group.high),
        ("swap_max", group.swap_max),
        ("kills", group.kills),
        ("slowdowns", group.slowdowns),
    ];
    let optional = optional
        .into_iter()
        .filter_map(|(name, number)| Some((name, number?)));
    for (name, number) in known.into_iter().chain(optional) {
        write!(out, ",\"{name}\":{number}")?;
    }
    if let Some(stalled) = group.stalled {
        let (some, full) = (stalled.some.as_secs_f64(), stalled.full.as_secs_f64());
        write!(
            out,
            ",\"stalled\":{{\"some_seconds\":{some},\"full_seconds\":{full}}}"
        )?;
    }
    out.push('}');
    Ok(())
}

fn put_nearest(out: &mut String, nearest: &NearestLimit) -> fmt::Result {
    let NearestLimit {
        limit, used, left, ..
    } = nearest;
    write!(
        out,
        ",\"nearest_limit\":{{\"limit\":{limit},\"used\":{used},\"left\":{left}"
    )?;
    if let Some(group) = &nearest.group {
        out.push_str(",\"group\":");
        put_string(out, group)?;
    }
    if let Some(growth) = nearest.bytes_per_second {
        write!(out, ",\"bytes_per_second\":{growth:.0}")?;
    }
    if let Some(time) = nearest.time_left {
        write!(out, ",\"seconds_left\":{:.1}", time.as_secs_f64())?;
    }
    out.push('}');
    Ok(())
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
