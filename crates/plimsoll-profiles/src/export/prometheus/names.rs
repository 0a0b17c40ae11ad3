//! The names in Prometheus of Go's and Plimsoll's metrics.
//!
//! `/gc/heap/allocs:bytes` is `plimsoll_gc_heap_allocs_bytes`, and
//! `plimsoll_gc_heap_allocs_bytes_total` if it is a counter. Duplicate parts occur once: a unit at
//! the end of the path, a `total` before `_total`, and the name of Plimsoll.

/// The name of a metric's family, without `_total`, and its unit. The name ends with the unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub family: String,
    pub unit: String,
}

/// Metrics that deviate from the rule, with their names without the unit.
const EXCEPTIONS: &[(&str, &str)] = &[
    // By the rule, the name would be the histogram's.
    (
        "/plimsoll/gc/pauses:seconds",
        "plimsoll_gc_completed_pauses",
    ),
];

/// Returns the name for a metric such as `/gc/heap/allocs:bytes`; `counter` if it gets `_total`.
pub(crate) fn prometheus_name(metric: &str, counter: bool) -> Name {
    let (path, unit) = metric.split_once(':').unwrap_or((metric, ""));
    let path = path.trim_start_matches('/');
    let path = path.strip_prefix("plimsoll/").unwrap_or(path);
    let path = match path.strip_suffix("/total") {
        Some(rest) if counter => rest,
        _ => path,
    };
    let (path, whole_unit) = (in_letters(path), in_letters(unit));
    let exception = EXCEPTIONS.iter().find(|(name, _)| *name == metric);
    let mut family = match exception {
        Some((_, name)) => name.to_string(),
        None => format!("plimsoll_{path}"),
    };
    if !unit.is_empty() && !family.ends_with(&format!("_{whole_unit}")) {
        family.push('_');
        family.push_str(&whole_unit);
    }
    // The base unit of CPU seconds is the second.
    let unit = match whole_unit.strip_suffix("_seconds") {
        Some(_) => "seconds".into(),
        None => whole_unit,
    };
    Name { family, unit }
}

/// Replaces all characters that a name must not contain with underscores.
fn in_letters(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            'a'..='z' | '0'..='9' => character,
            'A'..='Z' => character.to_ascii_lowercase(),
            _ => '_',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_by_one_rule() {
        for (metric, counter, family, unit) in [
            (
                "/gc/heap/allocs:bytes",
                true,
                "plimsoll_gc_heap_allocs_bytes",
                "bytes",
            ),
            (
                "/gc/heap/allocs-by-size:bytes",
                false,
                "plimsoll_gc_heap_allocs_by_size_bytes",
                "bytes",
            ),
            (
                "/gc/cycles/total:gc-cycles",
                true,
                "plimsoll_gc_cycles",
                "gc_cycles",
            ),
            (
                "/gc/cycles/forced:gc-cycles",
                true,
                "plimsoll_gc_cycles_forced_gc_cycles",
                "gc_cycles",
            ),
            (
                "/cpu/classes/user:cpu-seconds",
                true,
                "plimsoll_cpu_classes_user_cpu_seconds",
                "seconds",
            ),
            (
                "/memory/classes/total:bytes",
                false,
                "plimsoll_memory_classes_total_bytes",
                "bytes",
            ),
            (
                "/sched/goroutines:goroutines",
                false,
                "plimsoll_sched_goroutines",
                "goroutines",
            ),
            ("/plimsoll/own:bytes", false, "plimsoll_own_bytes", "bytes"),
            (
                "/plimsoll/gc/pauses:seconds",
                true,
                "plimsoll_gc_completed_pauses_seconds",
                "seconds",
            ),
            ("/a/B.c", false, "plimsoll_a_b_c", ""),
        ] {
            let expected = Name {
                family: family.into(),
                unit: unit.into(),
            };
            assert_eq!(prometheus_name(metric, counter), expected, "{metric}");
        }
    }
}
