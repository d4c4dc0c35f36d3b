//! Times as clients know them: local, ISO 8601, microseconds, no zone; in events UTC, which says so. And back.

use agent::outside::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

pub(crate) fn format_local(moment: Timestamp, zone: &TimeZone) -> String {
    let instant = jiff::Timestamp::from_microsecond(moment.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{:.6}", zone.to_datetime(instant))
}

pub(crate) fn format_utc(moment: Timestamp) -> String {
    format!("{}Z", format_local(moment, &TimeZone::UTC))
}

/// Reads a time that somebody else wrote: with a zone, or without one, as local time.
pub(crate) fn parse_time(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let instant = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let there = text.parse::<DateTime>().ok()?;
        there.to_zoned(zone.clone()).ok().map(|zoned| zoned.timestamp())
    })?;
    Some(Timestamp(instant.as_microsecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_in_the_zone_with_six_digits() {
        let moment = Timestamp(1_705_314_600_000_000);
        assert_eq!(format_local(moment, &TimeZone::UTC), "2024-01-15T10:30:00.000000");
        let east = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(format_local(Timestamp(1_705_314_600_000_042), &east), "2024-01-15T12:30:00.000042");
        assert_eq!(format_utc(Timestamp(1_705_314_600_000_042)), "2024-01-15T10:30:00.000042Z");
    }

    #[test]
    fn a_time_is_read_as_it_was_written_and_without_a_zone_as_local() {
        let east = TimeZone::fixed(jiff::tz::offset(2));
        let moment = Timestamp(1_705_314_600_000_042);
        assert_eq!(parse_time(&format_local(moment, &east), &east), Some(moment));
        assert_eq!(parse_time(&format_utc(moment), &east), Some(moment));
        assert_eq!(parse_time("2024-01-15T12:30:00.000042+02:00", &TimeZone::UTC), Some(moment));
        assert_eq!(parse_time("2024-01-15T10:30:00", &TimeZone::UTC), Some(Timestamp(1_705_314_600_000_000)));
        for bad in ["", "yesterday", "2024-01-15T25:00:00", "1705314600", "2024-13-01T00:00:00"] {
            assert_eq!(parse_time(bad, &TimeZone::UTC), None, "{bad:?}");
        }
    }
}
