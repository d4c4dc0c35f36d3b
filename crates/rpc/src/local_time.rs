//! Timestamps of the protocol: ISO 8601 with microseconds; local time without a zone in results, UTC (`Z`) in events.

use agent::outside::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

pub(crate) fn format_local(timestamp: Timestamp, zone: &TimeZone) -> String {
    let instant = jiff::Timestamp::from_microsecond(timestamp.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{:.6}", zone.to_datetime(instant))
}

pub(crate) fn format_utc(timestamp: Timestamp) -> String {
    format!("{}Z", format_local(timestamp, &TimeZone::UTC))
}

/// Parses a time with a zone, or without one as local time.
pub(crate) fn parse_time(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let instant = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let local = text.parse::<DateTime>().ok()?;
        local.to_zoned(zone.clone()).ok().map(|zoned| zoned.timestamp())
    })?;
    Some(Timestamp(instant.as_microsecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_is_formatted_in_the_zone_with_six_digits() {
        let timestamp = Timestamp(1_705_314_600_000_000);
        assert_eq!(format_local(timestamp, &TimeZone::UTC), "2024-01-15T10:30:00.000000");
        let east = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(format_local(Timestamp(1_705_314_600_000_042), &east), "2024-01-15T12:30:00.000042");
        assert_eq!(format_utc(Timestamp(1_705_314_600_000_042)), "2024-01-15T10:30:00.000042Z");
    }

    #[test]
    fn time_round_trips_and_without_a_zone_is_local() {
        let east = TimeZone::fixed(jiff::tz::offset(2));
        let timestamp = Timestamp(1_705_314_600_000_042);
        assert_eq!(parse_time(&format_local(timestamp, &east), &east), Some(timestamp));
        assert_eq!(parse_time(&format_utc(timestamp), &east), Some(timestamp));
        assert_eq!(parse_time("2024-01-15T12:30:00.000042+02:00", &TimeZone::UTC), Some(timestamp));
        assert_eq!(parse_time("2024-01-15T10:30:00", &TimeZone::UTC), Some(Timestamp(1_705_314_600_000_000)));
        for bad in ["", "yesterday", "2024-01-15T25:00:00", "1705314600", "2024-13-01T00:00:00"] {
            assert_eq!(parse_time(bad, &TimeZone::UTC), None, "{bad:?}");
        }
    }
}
