//! Times as clients know them: local, ISO 8601, microseconds, no zone.

use agent::outside::Moment;
use jiff::Timestamp;
use jiff::tz::TimeZone;

pub(crate) fn local(moment: Moment, zone: &TimeZone) -> String {
    let instant = Timestamp::from_microsecond(moment.0).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{:.6}", zone.to_datetime(instant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_in_the_zone_with_six_digits() {
        let moment = Moment(1_705_314_600_000_000);
        assert_eq!(local(moment, &TimeZone::UTC), "2024-01-15T10:30:00.000000");
        let east = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(local(Moment(1_705_314_600_000_042), &east), "2024-01-15T12:30:00.000042");
    }
}
