//! The record of the growth of allocation sites.

use super::Sites;
use crate::bytes::word;
use crate::layout::history::{GROWTH, check, growth};

/// The growth of the allocation sites, and which of them leak. The documentation of
/// `plimsoll::history::growth` explains the figures, which are estimates from samples.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Growth {
    /// The time of the last reading in nanoseconds since 1970.
    pub time_ns: u64,
    /// The time between the first reading and the last in nanoseconds.
    pub observed_ns: u64,
    /// The number of readings, and the number from which on there are verdicts.
    pub readings: u64,
    /// See `readings`.
    pub readings_needed: u64,
    /// The growth of all leaking sites.
    pub bytes_per_second: f64,
    /// The time until the heap would have reached the memory limit; `None` without leak or limit.
    pub seconds_to_limit: Option<f64>,
    /// The number of judged sites.
    pub total: u64,
    /// The first sites: the fastest growing leaks first, then all others by growth.
    pub sites: Vec<SiteGrowth>,
}

/// The growth of one allocation site.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SiteGrowth {
    /// The index of a site with its stack in [`PostMortem::sites`](crate::PostMortem::sites).
    pub site: usize,
    /// What the readings showed.
    pub verdict: Verdict,
    /// Bytes in use.
    pub bytes: u64,
    /// The growth in the judged window.
    pub bytes_per_second: f64,
    /// Half of the 95 % confidence interval of that.
    pub error: f64,
    /// The length of the judged window in nanoseconds.
    pub window_ns: u64,
    /// The mean time that blocks are in use, in seconds; `None` if none was freed in the window.
    pub lifetime: Option<f64>,
}

/// What the readings of a site showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No growth, or none that chance does not explain.
    NotSignificant,
    /// Significant growth that slowed down or came in steps.
    Unsteady,
    /// Significant and steady growth beyond all earlier values.
    Leaking,
}

impl Verdict {
    fn from_word(word: u64) -> Option<Self> {
        [Self::NotSignificant, Self::Unsteady, Self::Leaking]
            .into_iter()
            .nth(usize::try_from(word).ok()?)
    }
}

/// Reads the newest valid record from the bytes of the part. `start` is the start of the system. Returns
/// also whether all of its sites are valid.
pub(super) fn read(bytes: &[u8], start: u64, names: &[u32]) -> Option<(Growth, bool)> {
    let copies = [0, growth::COPY_BYTES].map(|at| {
        let copy = bytes.get(GROWTH + at..)?.get(..growth::COPY_BYTES)?;
        let words: Vec<u64> = (0..growth::COPY_BYTES / 8)
            .map(|at| word(copy, 8 * at).unwrap_or(0))
            .collect();
        let sites = usize::try_from(words[growth::SITES]).ok()?;
        let sites = Some(sites).filter(|&sites| sites <= growth::MAX_SITES)?;
        let end = growth::HEAD_WORDS + sites * growth::SITE_WORDS;
        let is_valid = words[end] == check(words[..end].iter().copied());
        (words[growth::NUMBER] > 0 && is_valid).then(|| words[..end].to_vec())
    });
    let newest = copies.into_iter().flatten();
    let words = newest.max_by_key(|words| words[growth::NUMBER])?;
    let float = |word: u64| Some(f64::from_bits(word)).filter(|value| value.is_finite());
    let (head, sites) = words.split_at(growth::HEAD_WORDS);
    let by_name = Sites::from_names(names);
    let of_sites = sites.chunks_exact(growth::SITE_WORDS);
    let read: Vec<SiteGrowth> = of_sites
        .filter_map(|site| {
            Some(SiteGrowth {
                site: by_name.site(site[0])?,
                verdict: Verdict::from_word(site[1])?,
                bytes: site[2],
                bytes_per_second: float(site[3])?,
                error: float(site[4])?,
                window_ns: site[5],
                lifetime: float(site[6]),
            })
        })
        .collect();
    let is_whole = read.len() as u64 == head[growth::SITES];
    let growth = Growth {
        time_ns: start.saturating_add(head[growth::AT]),
        observed_ns: head[growth::OBSERVED],
        readings: head[growth::READINGS],
        readings_needed: head[growth::READINGS_NEEDED],
        bytes_per_second: float(head[growth::BYTES_PER_SECOND]).unwrap_or(0.0),
        seconds_to_limit: float(head[growth::SECONDS_TO_LIMIT]),
        total: head[growth::TOTAL],
        sites: read,
    };
    Some((growth, is_whole))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, put, read_part};
    use super::*;

    /// Adds a record of growth with that number, and sites of these words.
    fn put_growth(bytes: &mut [u8], number: u64, sites: &[[u64; growth::SITE_WORDS]]) {
        let rate = 2.5_f64.to_bits();
        let none = f64::NAN.to_bits();
        let head = [number, 60, 50, 64, 64, rate, none, 9, sites.len() as u64];
        let mut words: Vec<u64> = head
            .into_iter()
            .chain(sites.iter().flatten().copied())
            .collect();
        words.push(check(words.iter().copied()));
        let copy = GROWTH + (number % 2) as usize * growth::COPY_BYTES;
        for (at, word) in words.into_iter().enumerate() {
            put(bytes, copy + 8 * at, word);
        }
    }

    fn site(name: u64, verdict: u64, rate: f64, lifetime: f64) -> [u64; growth::SITE_WORDS] {
        [
            name,
            verdict,
            500,
            rate.to_bits(),
            0.5_f64.to_bits(),
            70,
            lifetime.to_bits(),
        ]
    }

    #[test]
    fn the_newest_valid_record_of_growth_is_read() {
        let mut bytes = part();
        assert!(read_part(&bytes).growth.is_none());
        put_growth(&mut bytes, 1, &[site(10, 0, 0.0, 3.0)]);
        put_growth(
            &mut bytes,
            2,
            &[site(20, 2, 2.5, f64::NAN), site(10, 1, -1.0, 3.0)],
        );
        let history = read_part(&bytes);
        let growth = history.growth.unwrap();
        assert!(!history.damaged);
        assert_eq!(
            (growth.time_ns, growth.observed_ns, growth.total),
            (1060, 50, 9)
        );
        assert_eq!(
            (growth.bytes_per_second, growth.seconds_to_limit),
            (2.5, None)
        );
        let sites = growth.sites.iter();
        let sites = sites.map(|site| {
            (
                site.site,
                site.verdict,
                site.bytes_per_second,
                site.lifetime,
            )
        });
        assert!(sites.eq([
            (1, Verdict::Leaking, 2.5, None),
            (0, Verdict::Unsteady, -1.0, Some(3.0))
        ]));
        // A record that was being written leaves the one before.
        put(&mut bytes, GROWTH + 8 * growth::READINGS, 65);
        let read = read_part(&bytes).growth.unwrap();
        assert_eq!(
            (read.sites.len(), read.sites[0].verdict),
            (1, Verdict::NotSignificant)
        );
    }

    #[test]
    fn invalid_sites_of_a_record_of_growth_are_left_out() {
        let valid = site(10, 2, 1.0, 1.0);
        for invalid in [
            site(11, 2, 1.0, 1.0),
            site(10, 3, 1.0, 1.0),
            site(10, 2, f64::INFINITY, 1.0),
        ] {
            let mut bytes = part();
            put_growth(&mut bytes, 1, &[invalid, valid]);
            let history = read_part(&bytes);
            assert!(history.damaged);
            assert_eq!(history.growth.unwrap().sites.len(), 1);
        }
        let mut bytes = part();
        put_growth(&mut bytes, 1, &[valid; growth::MAX_SITES]);
        assert_eq!(
            read_part(&bytes).growth.unwrap().sites.len(),
            growth::MAX_SITES
        );
        for count in [growth::MAX_SITES as u64 + 1, u64::MAX] {
            put(
                &mut bytes,
                GROWTH + growth::COPY_BYTES + 8 * growth::SITES,
                count,
            );
            assert!(read_part(&bytes).growth.is_none());
        }
    }
}
