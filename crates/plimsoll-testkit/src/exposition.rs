//! A strict reader of both formats of Prometheus. It rejects everything that the formats do not
//! define, and so more than any server does.

use std::collections::{BTreeMap, HashSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    OpenMetrics,
}

/// The metadata and samples of one metric name.
#[derive(Debug, Default)]
pub struct Family {
    pub name: String,
    pub kind: String,
    pub help: String,
    pub unit: String,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
    /// The value in its original form.
    pub written: String,
}

/// A parsed page.
#[derive(Debug)]
pub struct Page {
    pub families: Vec<Family>,
}

impl Page {
    /// Returns the value of the sample with that name and these labels. Panics if none exists.
    #[track_caller]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.get(name, labels)
            .unwrap_or_else(|| panic!("no {name} {labels:?}"))
            .value
    }

    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<&Sample> {
        let labels: BTreeMap<String, String> = labels
            .iter()
            .map(|(label, value)| (label.to_string(), value.to_string()))
            .collect();
        self.samples()
            .find(|sample| sample.name == name && sample.labels == labels)
    }

    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.families.iter().flat_map(|family| &family.samples)
    }

    pub fn family(&self, name: &str) -> Option<&Family> {
        self.families.iter().find(|family| family.name == name)
    }
}

type Result<T> = std::result::Result<T, String>;

/// Reads a page.
///
/// # Errors
/// A description of the violation, with the line.
pub fn parse(page: &str, format: Format) -> Result<Page> {
    let body = match format {
        Format::Text => page,
        Format::OpenMetrics => page.strip_suffix("# EOF\n").ok_or("it does not end")?,
    };
    if !body.is_empty() && !body.ends_with('\n') {
        return Err("the last line does not end".into());
    }
    let mut families: Vec<Family> = Vec::new();
    for line in body.split_terminator('\n') {
        let read = match line.strip_prefix("# ") {
            Some(comment) => read_metadata(&mut families, comment, format),
            None => read_sample(&mut families, line, format),
        };
        read.map_err(|error| format!("{error}: {line:?}"))?;
    }
    for family in &families {
        check_family(family).map_err(|error| format!("{error}: {family:?}"))?;
    }
    check_names(&families, format)?;
    Ok(Page { families })
}

fn read_metadata(families: &mut Vec<Family>, comment: &str, format: Format) -> Result<()> {
    let mut words = comment.splitn(3, ' ');
    let (Some(word), Some(name), Some(text)) = (words.next(), words.next(), words.next()) else {
        return Err("not three words".into());
    };
    check_name(name, false)?;
    if families.last().is_none_or(|family| family.name != name) {
        if families.iter().any(|family| family.name == name) {
            return Err("a family twice".into());
        }
        families.push(Family {
            name: name.into(),
            ..Family::default()
        });
    }
    let family = families.last_mut().expect("one exists");
    if !family.samples.is_empty() {
        return Err("after the samples".into());
    }
    let field = match (word, format) {
        ("HELP", _) => {
            let help = unescape(text, format == Format::OpenMetrics)?;
            return set(&mut family.help, help);
        }
        ("TYPE", _) => &mut family.kind,
        ("UNIT", Format::OpenMetrics) => &mut family.unit,
        _ => return Err("not a word of this format".into()),
    };
    set(field, text.into())
}

fn set(field: &mut String, text: String) -> Result<()> {
    if !field.is_empty() {
        return Err("a metadata line occurs twice".into());
    }
    if text.is_empty() {
        return Err("the metadata line is empty".into());
    }
    *field = text;
    Ok(())
}

fn read_sample(families: &mut [Family], line: &str, format: Format) -> Result<()> {
    let family = families.last_mut().ok_or("of no family")?;
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let name = &line[..end];
    let (labels, value) = match line[end..].strip_prefix('{') {
        Some(rest) => read_labels(rest)?,
        None => (BTreeMap::new(), &line[end..]),
    };
    let written = value.strip_prefix(' ').ok_or("no space before the value")?;
    let sample = Sample {
        name: name.into(),
        value: number(written)?,
        labels,
        written: written.into(),
    };
    let known = family
        .samples
        .iter()
        .any(|other| (&other.name, &other.labels) == (&sample.name, &sample.labels));
    if known {
        return Err("a sample twice".into());
    }
    let rest = name.strip_prefix(&*family.name).ok_or("another name")?;
    let is_counter = family.kind == "counter";
    let label = match (&*family.kind, rest) {
        ("counter", "") if format == Format::Text && name.ends_with("_total") => None,
        ("counter", "_total") if format == Format::OpenMetrics => None,
        ("gauge", "") => None,
        ("unknown", "") if format == Format::OpenMetrics => None,
        ("histogram", "_bucket") => Some("le"),
        ("summary", "") => Some("quantile"),
        ("histogram" | "summary", "_sum" | "_count") => None,
        _ => return Err(format!("not of a {}", family.kind)),
    };
    for reserved in ["le", "quantile"] {
        let wanted = label == Some(reserved);
        if wanted != sample.labels.contains_key(reserved) {
            return Err(format!("label {reserved}"));
        }
    }
    let counts = is_counter || rest == "_bucket" || rest == "_count";
    if counts && !(sample.value.is_finite() && sample.value >= 0.0) {
        return Err("not a count".into());
    }
    family.samples.push(sample);
    Ok(())
}

/// Returns the labels up to the closing brace, and the text after it.
fn read_labels(text: &str) -> Result<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    loop {
        let (name, after) = rest.split_once("=\"").ok_or("no label")?;
        check_name(name, true)?;
        let mut escaped = false;
        let end = after.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let end = end.ok_or("a label without an end")?;
        let value = unescape(&after[..end], true)?;
        if labels.insert(name.into(), value).is_some() {
            return Err("a label twice".into());
        }
        rest = &after[end + 1..];
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        rest = rest.strip_prefix(',').ok_or("no comma")?;
    }
}

fn unescape(text: &str, quotes: bool) -> Result<String> {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        out.push(match character {
            '\\' => match rest.next() {
                Some('\\') => '\\',
                Some('n') => '\n',
                Some('"') if quotes => '"',
                _ => return Err("an unknown escape".into()),
            },
            '"' if quotes => return Err("a quote".into()),
            other => other,
        });
    }
    Ok(out)
}

fn check_name(name: &str, label: bool) -> Result<()> {
    let mut bytes = name.bytes();
    let first = bytes.next().ok_or("an empty name")?;
    let fits = |byte: u8| byte == b'_' || byte.is_ascii_lowercase();
    if !fits(first) || !bytes.all(|byte| fits(byte) || byte.is_ascii_digit()) {
        return Err(format!("the name {name:?}"));
    }
    if label && name.starts_with("__") {
        return Err("a label of the server's".into());
    }
    Ok(())
}

/// Parses a number in the form that both formats share.
fn number(text: &str) -> Result<f64> {
    match text {
        "+Inf" => return Ok(f64::INFINITY),
        "-Inf" => return Ok(f64::NEG_INFINITY),
        "NaN" => return Ok(f64::NAN),
        _ => {}
    }
    let plain = |byte: u8| byte.is_ascii_digit() || b"+-.e".contains(&byte);
    let parsed = text.parse().ok().filter(|_| text.bytes().all(plain));
    parsed.ok_or_else(|| "not a number".into())
}

fn check_family(family: &Family) -> Result<()> {
    if family.kind.is_empty() || family.help.is_empty() || family.samples.is_empty() {
        return Err("without type, help or samples".into());
    }
    if !family.unit.is_empty() {
        let name = family.name.strip_suffix(&*family.unit);
        if !name.is_some_and(|name| name.ends_with('_')) {
            return Err("the unit is not in the name".into());
        }
    }
    let reserved = ["_total", "_count", "_sum", "_bucket", "_created", "_gcount"];
    let counter = matches!(&*family.kind, "counter" | "unknown");
    if !counter && reserved.iter().any(|end| family.name.ends_with(end)) {
        return Err("a name that means something else".into());
    }
    // Samples with the same labels, apart from `le` and `quantile`, form one histogram or summary.
    let mut groups: BTreeMap<BTreeMap<&str, &str>, Vec<&Sample>> = BTreeMap::new();
    for sample in &family.samples {
        let labels = sample.labels.iter();
        let labels = labels.map(|(label, value)| (&**label, &**value));
        let labels = labels.filter(|(label, _)| !matches!(*label, "le" | "quantile"));
        groups.entry(labels.collect()).or_default().push(sample);
    }
    for group in groups.values() {
        match &*family.kind {
            "histogram" => check_histogram(group)?,
            "summary" => drop(parts(group, "quantile")?),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the series that `label` forms, which must ascend, and the sum and the count.
fn parts<'a>(samples: &[&'a Sample], label: &str) -> Result<(Vec<&'a Sample>, [&'a Sample; 2])> {
    let is_part = |sample: &&Sample| sample.labels.contains_key(label);
    let parts: Vec<_> = samples.iter().copied().filter(is_part).collect();
    let rest: Vec<_> = samples.iter().copied().filter(|it| !is_part(it)).collect();
    let [sum, count] = rest[..] else {
        return Err("not one sum and one count".into());
    };
    if !(sum.name.ends_with("_sum") && count.name.ends_with("_count")) {
        return Err("not the sum and then the count".into());
    }
    let at: Result<Vec<f64>> = parts
        .iter()
        .map(|part| number(&part.labels[label]))
        .collect();
    if !at?.is_sorted_by(|one, other| one < other) {
        return Err(format!("{label} does not rise"));
    }
    Ok((parts, [sum, count]))
}

fn check_histogram(samples: &[&Sample]) -> Result<()> {
    let (parts, [sum, count]) = parts(samples, "le")?;
    let last = parts.last().ok_or("no buckets")?;
    if last.labels["le"] != "+Inf" || last.value != count.value {
        return Err("the last bucket is not all".into());
    }
    if !parts.is_sorted_by_key(|part| part.value) || !sum.value.is_finite() {
        return Err("buckets are not cumulative".into());
    }
    Ok(())
}

/// Checks that no sample's name can belong to two families.
fn check_names(families: &[Family], format: Format) -> Result<()> {
    let mut taken = HashSet::new();
    for family in families {
        let ends: &[&str] = match (&*family.kind, format) {
            ("counter", Format::OpenMetrics) => &["", "_total", "_created"],
            ("histogram", Format::OpenMetrics) => &["", "_bucket", "_sum", "_count", "_created"],
            ("summary", Format::OpenMetrics) => &["", "_sum", "_count", "_created"],
            ("histogram", Format::Text) => &["", "_bucket", "_sum", "_count"],
            ("summary", Format::Text) => &["", "_sum", "_count"],
            _ => &[""],
        };
        for end in ends {
            let name = format!("{}{end}", family.name);
            if !taken.insert(name.clone()) {
                return Err(format!("two families have {name}"));
            }
        }
    }
    Ok(())
}
