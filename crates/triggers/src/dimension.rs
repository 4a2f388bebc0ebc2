//! Dimensions of measures and their units.

const KIB: f64 = 1024.0;

/// What a measure is a quantity of. Each dimension has units of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dimension {
    /// A fraction; 1 is 100 %.
    Share,
    /// Bytes.
    Bytes,
    /// Seconds.
    Time,
    /// Occurrences per second.
    Rate,
    /// A count of things.
    Count,
    /// A number of an unknown dimension.
    Number,
}

/// A unit, as a multiple or a part of the base unit: 95 % are exactly the number that is next to 0.95.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    multiplier: f64,
    divisor: f64,
}

impl Unit {
    const fn multiple(name: &'static str, multiplier: f64) -> Self {
        Self { name, multiplier, divisor: 1.0 }
    }

    const fn part(name: &'static str, divisor: f64) -> Self {
        Self { name, multiplier: 1.0, divisor }
    }

    /// A number of this unit in the base unit.
    pub(crate) fn in_base_unit(self, number: f64) -> f64 {
        number * self.multiplier / self.divisor
    }
}

const SHARE_UNITS: [Unit; 1] = [Unit::part("%", 100.0)];

const BYTE_UNITS: [Unit; 9] = [
    Unit::multiple("B", 1.0),
    Unit::multiple("kB", 1e3),
    Unit::multiple("MB", 1e6),
    Unit::multiple("GB", 1e9),
    Unit::multiple("TB", 1e12),
    Unit::multiple("KiB", KIB),
    Unit::multiple("MiB", KIB * KIB),
    Unit::multiple("GiB", KIB * KIB * KIB),
    Unit::multiple("TiB", KIB * KIB * KIB * KIB),
];

const TIME_UNITS: [Unit; 6] = [
    Unit::part("ns", 1e9),
    Unit::part("us", 1e6),
    Unit::part("ms", 1e3),
    Unit::multiple("s", 1.0),
    Unit::multiple("m", 60.0),
    Unit::multiple("h", 3600.0),
];

const RATE_UNITS: [Unit; 3] = [Unit::multiple("/s", 1.0), Unit::part("/m", 60.0), Unit::part("/h", 3600.0)];

impl Dimension {
    /// The units.
    pub(crate) fn units(self) -> &'static [Unit] {
        match self {
            Self::Share => &SHARE_UNITS,
            Self::Bytes => &BYTE_UNITS,
            Self::Time => &TIME_UNITS,
            Self::Rate => &RATE_UNITS,
            Self::Count | Self::Number => &[],
        }
    }

    /// A quantity with a unit, for messages.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::Share => "20%",
            Self::Bytes => "500MiB",
            Self::Time => "200ms",
            Self::Rate => "50/s",
            Self::Count | Self::Number => "100",
        }
    }

    /// A value in the base unit as text with a unit.
    pub(crate) fn format(self, value: f64) -> String {
        match self {
            Self::Share => format!("{:.1} %", value * 100.0),
            Self::Bytes => {
                let units = [("TiB", KIB.powi(4)), ("GiB", KIB.powi(3)), ("MiB", KIB.powi(2)), ("KiB", KIB)];
                scaled(value, &units).unwrap_or_else(|| format!("{value:.0} B"))
            }
            Self::Time => {
                let units = [("s", 1.0), ("ms", 1e-3), ("us", 1e-6)];
                scaled(value, &units).unwrap_or_else(|| format!("{:.0} ns", value * 1e9))
            }
            Self::Rate => format!("{}/s", short(value)),
            Self::Count | Self::Number => short(value),
        }
    }
}

/// A value in the first of the units that is not larger.
fn scaled(value: f64, units: &[(&str, f64)]) -> Option<String> {
    let (unit, size) = units.iter().find(|(_, size)| value >= *size)?;
    Some(format!("{} {unit}", short(value / size)))
}

/// A number with at most two decimals.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_with_a_unit_of_their_size() {
        for (dimension, value, text) in [
            (Dimension::Share, 0.1234, "12.3 %"),
            (Dimension::Bytes, 0.0, "0 B"),
            (Dimension::Bytes, 1536.0, "1.5 KiB"),
            (Dimension::Bytes, 3.25 * 1024.0 * 1024.0 * 1024.0, "3.25 GiB"),
            (Dimension::Time, 0.2013, "201.3 ms"),
            (Dimension::Time, 90.0, "90 s"),
            (Dimension::Time, 0.0, "0 ns"),
            (Dimension::Rate, 40.0, "40/s"),
            (Dimension::Rate, 0.333_3, "0.33/s"),
            (Dimension::Count, 100.0, "100"),
            (Dimension::Number, -2.5, "-2.5"),
        ] {
            assert_eq!(dimension.format(value), text);
        }
    }

    #[test]
    fn every_example_has_a_unit_of_its_dimension() {
        for dimension in [Dimension::Share, Dimension::Bytes, Dimension::Time, Dimension::Rate] {
            let unit = dimension.example().trim_start_matches(|character: char| character.is_ascii_digit());
            assert!(dimension.units().iter().any(|known| known.name == unit), "{unit}");
        }
        assert_eq!(Dimension::Count.units(), Dimension::Number.units());
    }
}
