//! Reads the history of the watched program, so that its graphs begin before watching did.

use std::time::Duration;

use serde::Deserialize;

use super::readings::Point;

/// The path of the page.
pub const PATH: &str = "/debug/plimsoll/history";

/// The part of the page that is shown.
#[derive(Deserialize)]
struct Page {
    series: Vec<String>,
    steps: Vec<Step>,
}

/// The readings at one interval: each a time in seconds since 1970, and the values of all series.
#[derive(Deserialize)]
struct Step {
    seconds: f64,
    points: Vec<Vec<Option<f64>>>,
}

/// Returns the readings of the finest step about one `interval` apart, oldest first. `None` if the page
/// is not a history.
pub fn points(page: &[u8], interval: Duration) -> Option<Vec<Point>> {
    let page: Page = serde_json::from_slice(page).ok()?;
    let column = |name: &str| Some(1 + page.series.iter().position(|series| series == name)?);
    let (heap, allocated) = (column("heap_bytes")?, column("allocated_bytes")?);
    let step = page.steps.first()?;
    let stride = (interval.as_secs_f64() / step.seconds.max(1e-3)).round();
    let value = |point: &[Option<f64>], at: usize| point.get(at).copied().flatten();
    let mut points: Vec<&Vec<Option<f64>>> = step.points.iter().rev().collect();
    points = points
        .into_iter()
        .step_by((stride as usize).max(1))
        .collect();
    points.reverse();
    let rates = points.iter().skip(1).zip(&points);
    let read = rates.filter_map(|(point, before)| {
        let seconds = value(point, 0)? - value(before, 0)?;
        let risen = value(point, allocated)? - value(before, allocated)?;
        Some(Point {
            at: Duration::ZERO,
            heap: value(point, heap)?,
            rate: if seconds > 0.0 {
                risen.max(0.0) / seconds
            } else {
                0.0
            },
        })
    });
    Some(read.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &[u8] = br#"{"version":1,"series":["heap_bytes","x","allocated_bytes"],"steps":[
        {"seconds":1,"points":[[10,1,0,100],[11,2,0,300],[12,3,null,600],[13,4,0,1000],[14,null,0,1000]]},
        {"seconds":10,"points":[[0,9,9,9]]}],"maxima":[]}"#;

    #[test]
    fn readings_have_the_heap_and_the_rate_since_the_one_before() {
        let shown = |interval| {
            let points = points(PAGE, Duration::from_secs_f64(interval)).unwrap();
            let shown = points.iter().map(|point| (point.heap, point.rate));
            shown.collect::<Vec<_>>()
        };
        assert_eq!(shown(1.0), [(2.0, 200.0), (3.0, 300.0), (4.0, 400.0)]);
        assert_eq!(shown(0.1), shown(1.0));
        assert_eq!(shown(2.0), [(3.0, 250.0)]);
        assert_eq!(shown(3600.0), []);
    }

    #[test]
    fn other_pages_are_no_history() {
        for page in [
            &b""[..],
            b"404 page not found",
            b"{}",
            br#"{"series":[],"steps":[]}"#,
        ] {
            assert!(points(page, Duration::from_secs(1)).is_none());
        }
    }
}
