//! Values with their units.

use criterion::Throughput;
use criterion::measurement::ValueFormatter;

/// The unit of values.
pub(crate) enum Format {
    Allocations,
    Bytes,
}

impl ValueFormatter for Format {
    fn scale_values(&self, typical_value: f64, values: &mut [f64]) -> &'static str {
        let Self::Bytes = self else { return "allocs" };
        let units = ["B", "KiB", "MiB", "GiB"];
        let exponent = units
            .iter()
            .zip(1..)
            .take_while(|(_, at)| typical_value >= 1024_f64.powi(*at));
        let exponent = exponent.count().min(units.len() - 1);
        let scale = 1024_f64.powi(exponent as i32);
        values.iter_mut().for_each(|value| *value /= scale);
        units[exponent]
    }

    /// Returns the value for each unit of the throughput: no time is known.
    fn scale_throughputs(
        &self,
        _typical_value: f64,
        throughput: &Throughput,
        values: &mut [f64],
    ) -> &'static str {
        let (amount, units) = match *throughput {
            Throughput::Bits(bits) => (bits, ["allocs/bit", "B/bit"]),
            Throughput::Bytes(bytes) | Throughput::BytesDecimal(bytes) => {
                (bytes, ["allocs/B", "B/B"])
            }
            Throughput::Elements(elements) | Throughput::ElementsAndBytes { elements, .. } => {
                (elements, ["allocs/element", "B/element"])
            }
        };
        // A throughput of nothing has no value for each of its units.
        let amount = amount.max(1) as f64;
        values.iter_mut().for_each(|value| *value /= amount);
        match self {
            Self::Allocations => units[0],
            Self::Bytes => units[1],
        }
    }

    fn scale_for_machines(&self, _values: &mut [f64]) -> &'static str {
        match self {
            Self::Allocations => "allocs",
            Self::Bytes => "B",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units() {
        for (value, bytes) in [
            (0.0, "0.0000 B"),
            (1023.0, "1023.0 B"),
            (1024.0, "1.0000 KiB"),
            (1536.0 * 1024.0, "1.5000 MiB"),
            (5.0 * 1024_f64.powi(4), "5120.0 GiB"),
        ] {
            assert_eq!(Format::Bytes.format_value(value).trim(), bytes);
        }
        assert_eq!(
            Format::Allocations.format_value(12.0).trim(),
            "12.000 allocs"
        );
    }

    #[test]
    fn throughputs_are_values_for_each_unit() {
        let per = |throughput| Format::Bytes.format_throughput(&throughput, 1000.0);
        assert_eq!(per(Throughput::Elements(10)).trim(), "100.00 B/element");
        assert_eq!(per(Throughput::Bytes(500)).trim(), "2.0000 B/B");
        assert_eq!(per(Throughput::Bytes(0)).trim(), "1000.0 B/B");
    }
}
