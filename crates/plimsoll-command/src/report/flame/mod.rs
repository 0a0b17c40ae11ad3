//! Flame graphs: `--svg`. One file with its script, which refers to no other file.

mod tree;

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::plain_text::plain_lines;
use crate::report::{Shown, Stop, alone, share};
use tree::{Node, Tree};

const SCRIPT: &str = include_str!("flame.js");
const STYLE: &str = include_str!("flame.css");

/// The height of a frame in pixels. `HEAD` is the space above the frames, and
/// `WIDTH` is the width without the script.
const HEIGHT: usize = 17;
const HEAD: usize = 64;
const WIDTH: f64 = 1200.0;

/// The width of a letter in pixels.
const LETTER: f64 = 7.3;

/// Writes an SVG file: its head, the frames and the script.
pub(crate) fn svg(to: &mut dyn Write, shown: &Shown<'_>) -> Result<(), Stop> {
    let tree = Tree::new(shown);
    let deepest = tree.nodes.iter().map(|(node, _)| node.depth).max();
    let height = HEAD + (deepest.unwrap_or(0) as usize + 1) * HEIGHT + 4;
    let title = escaped(&title(shown));
    let subtitle = escaped(&subtitle(shown, &tree));
    writeln!(
        to,
        r#"<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" id="flame" width="{WIDTH}" height="{height}" font-family="monospace" font-size="12">
<style>
{STYLE}</style>
<text x="8" y="18" font-size="15">{title}</text>
<text id="search" class="button" x="8" y="38">Search</text>
<text id="reset" class="button hidden" x="78" y="38">Reset zoom</text>
<text id="matched" x="178" y="38"></text>
<text id="details" x="8" y="56">{subtitle}</text>"#
    )?;
    let total = tree.nodes.first().map_or(0, |(root, _)| root.weight).max(1);
    for &(node, left) in &tree.nodes {
        write_frame(to, shown, &node, left, total)?;
    }
    writeln!(to, "<script>//<![CDATA[\n{SCRIPT}//]]></script>\n</svg>")?;
    Ok(())
}

/// Returns the title: the sample type and the profiles.
fn title(shown: &Shown<'_>) -> String {
    let kind = &shown.input.profile.sample_types()[shown.sample_type].name;
    match &shown.input.base {
        Some(base) => format!("{kind} of {}, less {base}", shown.input.name),
        None => format!("{kind} of {}", shown.input.name),
    }
}

/// Returns a short explanation of the picture.
fn subtitle(shown: &Shown<'_>, tree: &Tree) -> String {
    let mut subtitle = match shown.is_difference() {
        true => "Width is the sum of both; red is an increase, blue a decrease.".to_owned(),
        false => "Width is the value; callers are above.".to_owned(),
    };
    subtitle += " Click on a frame to zoom into it, Escape to see all.";
    if tree.is_cut {
        subtitle += " The deepest stacks are cut off.";
    }
    subtitle
}

fn write_frame(
    to: &mut dyn Write,
    shown: &Shown<'_>,
    node: &Node,
    left: u64,
    total: u64,
) -> io::Result<()> {
    let is_root = node.depth == 0;
    let name = if is_root {
        "all"
    } else {
        shown.frames.name(node.frame)
    };
    let percent = |weight: u64| weight as f64 * 100.0 / total as f64;
    let (x, width) = (percent(left), percent(node.weight));
    let y = HEAD + node.depth as usize * HEIGHT;
    let text_y = y + HEIGHT - 5;
    let fill = fill(shown, name, node);
    let title = escaped(&format!("{name}\n{}", values(shown, node, total)));
    let letters = ((width / 100.0 * WIDTH - 6.0) / LETTER) as usize;
    let text = escaped(&shortened(name, letters));
    let depth = node.depth;
    writeln!(
        to,
        r#"<g class="f" data-x="{x}" data-w="{width}" data-d="{depth}"><title>{title}</title><rect x="{x:.4}%" y="{y}" width="{width:.4}%" height="{HEIGHT}" fill="{fill}"/><text x="{x:.4}%" dx="3" y="{text_y}">{text}</text></g>"#
    )
}

/// Formats the values of a frame.
fn values(shown: &Shown<'_>, node: &Node, total: u64) -> String {
    let unit = shown.unit();
    if !shown.is_difference() {
        let weight = i64::try_from(node.weight).unwrap_or(i64::MAX);
        let total = i64::try_from(total).unwrap_or(i64::MAX);
        let part = share(weight, total, false);
        return format!("{}, {}", alone(node.value, unit, false), part.trim_start());
    }
    // The weight is the sum of absolute values, so these are the sums of the positive and of the
    // negative samples.
    let sum = i128::from(node.weight);
    let new = ((sum + i128::from(node.value)) / 2) as i64;
    let old = ((sum - i128::from(node.value)) / 2) as i64;
    format!(
        "{}: {}, was {}",
        alone(node.value, unit, true),
        alone(new, unit, false),
        alone(old, unit, false)
    )
}

/// Returns the colour of a frame. In a difference, it depends on the change. Otherwise it depends
/// on the beginning of the name, so that the functions of a crate look alike.
fn fill(shown: &Shown<'_>, name: &str, node: &Node) -> String {
    if node.depth == 0 {
        return "#ddd".to_owned();
    }
    if shown.is_difference() {
        let part = node.value as f64 / node.weight.max(1) as f64;
        let pale = (235.0 - 150.0 * part.abs()) as u8;
        return match part >= 0.0 {
            true => format!("rgb(245,{pale},{pale})"),
            false => format!("rgb({pale},{pale},245)"),
        };
    }
    let crate_name = name.trim_start_matches(['<', '&', '[', '(']);
    let crate_name = crate_name.split("::").next().unwrap_or_default();
    let spread = |text: &str| {
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
    };
    let hue = spread(crate_name) % 55;
    let light = 62 + spread(name) % 12;
    format!("hsl({hue},85%,{light}%)")
}

/// Shortens a name to at most `letters` letters, the last of which is then an ellipsis.
fn shortened(name: &str, letters: usize) -> String {
    if letters < 3 {
        return String::new();
    }
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    let mut short: String = name.chars().take(letters - 1).collect();
    short.push('\u{2026}');
    short
}

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in plain_lines(text).chars() {
        let _ = match letter {
            '&' => escaped.write_str("&amp;"),
            '<' => escaped.write_str("&lt;"),
            '>' => escaped.write_str("&gt;"),
            '"' => escaped.write_str("&quot;"),
            // XML does not allow these characters.
            '\u{fffe}' | '\u{ffff}' => escaped.write_char(char::REPLACEMENT_CHARACTER),
            letter => escaped.write_char(letter),
        };
    }
    escaped
}
