//! The growth of allocation sites as JSON.

use std::fmt::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_leaves::leaves;
use plimsoll_symbolize::{Detail, Symbols};

use super::{Growth, READINGS_NEEDED, SiteGrowth};
use plimsoll_core::stack;
use plimsoll_profiles::export::distinct;
use plimsoll_profiles::export::dump::frames_of;
use plimsoll_profiles::export::json_frames::put_frames;
use plimsoll_profiles::symbol;

/// The maximum number of sites that are written.
const MAX_SITES: usize = 200;

/// Returns the growth, the leaks first:
///
/// `{"version":1,"readings":n,"readings_needed":n,"observed":seconds,"bytes_per_second":x,
/// "seconds_to_limit":null,"total":n,"sites":[{"verdict":"leaking, unsteady or not significant",
/// "bytes":n,"bytes_per_second":x,"error":x,"chance":x,"window":seconds,"mallocs":n,"frees":n,
/// "lifetime":null,"course":[[t,bytes]],"stack":[{"function":"","file":"","line":n}]}]}`
pub(crate) fn write(growth: &Growth) -> String {
    stack::refresh_modules();
    let sites = &growth.sites[..growth.sites.len().min(MAX_SITES)];
    let stacks = sites.iter().map(|site| &*site.stack);
    let symbols = symbol::resolve(&distinct(stacks), Detail::Full);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = put(&mut text, growth, sites, &symbols);
    text
}

fn put(text: &mut String, growth: &Growth, sites: &[SiteGrowth], symbols: &Symbols) -> fmt::Result {
    write!(
        text,
        "{{\"version\":1,\"readings\":{},\"readings_needed\":{READINGS_NEEDED},\"observed\":{:.3},\
         \"bytes_per_second\":{},\"seconds_to_limit\":",
        growth.readings,
        growth.observed.as_secs_f64(),
        growth.bytes_per_second,
    )?;
    put_seconds(text, growth.time_to_limit)?;
    write!(text, ",\"total\":{},\"sites\":[", growth.sites.len())?;
    for (at, site) in sites.iter().enumerate() {
        text.push_str(if at > 0 { ",\n" } else { "\n" });
        put_site(text, site, symbols)?;
    }
    text.push_str("]}\n");
    Ok(())
}

fn put_site(text: &mut String, site: &SiteGrowth, symbols: &Symbols) -> fmt::Result {
    write!(
        text,
        "{{\"verdict\":\"{}\",\"bytes\":{},\"bytes_per_second\":{},\"error\":{},\"chance\":{:e},\
         \"window\":{:.3},\"mallocs\":{},\"frees\":{},\"lifetime\":",
        site.verdict,
        site.bytes,
        site.bytes_per_second,
        site.error,
        site.chance,
        site.window.as_secs_f64(),
        site.mallocs,
        site.frees,
    )?;
    put_seconds(text, site.lifetime)?;
    text.push_str(",\"course\":[");
    for (at, (time, bytes)) in site.course.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        write!(text, "[{:.3},{bytes}]", seconds(*time))?;
    }
    text.push_str("],\"stack\":[");
    put_frames(
        text,
        &frames_of(&site.stack, leaves::allocation::leaf, symbols),
    )?;
    text.push_str("]}");
    Ok(())
}

fn put_seconds(text: &mut String, time: Option<Duration>) -> fmt::Result {
    match time {
        Some(time) => write!(text, "{:.3}", time.as_secs_f64()),
        None => write!(text, "null"),
    }
}

/// Returns a time in seconds since 1970.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}
