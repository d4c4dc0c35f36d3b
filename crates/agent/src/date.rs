//! Formats timestamps for prompts: to the minute, in a time zone given as its offset from UTC in minutes.

use crate::outside::Timestamp;

const MINUTE_MICROS: i64 = 60_000_000;
const DAY_MINUTES: i64 = 24 * 60;

/// Formats a timestamp, such as `2026-11-16 05:40 UTC` or `2026-11-16 07:40 UTC+02:00`.
#[must_use]
pub fn format_minute(at: Timestamp, offset_minutes: i32) -> String {
    let minutes = at.0.div_euclid(MINUTE_MICROS) + i64::from(offset_minutes);
    let (year, month, day) = civil_from_days(minutes.div_euclid(DAY_MINUTES));
    let minute_of_day = minutes.rem_euclid(DAY_MINUTES);
    let zone = match offset_minutes {
        0 => String::new(),
        offset => {
            let sign = if offset < 0 { '-' } else { '+' };
            let offset = offset.unsigned_abs();
            format!("{sign}{:02}:{:02}", offset / 60, offset % 60)
        }
    };
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC{zone}", minute_of_day / 60, minute_of_day % 60)
}

/// Converts days since 1970-01-01 to year, month and day. Years start in March, so that the leap day is their last day.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_is_formatted_to_the_minute_in_its_zone() {
        let half_past_ten = Timestamp(1_705_314_600_000_000);
        assert_eq!(format_minute(half_past_ten, 0), "2024-01-15 10:30 UTC");
        assert_eq!(format_minute(half_past_ten, 120), "2024-01-15 12:30 UTC+02:00");
        assert_eq!(format_minute(half_past_ten, -660), "2024-01-14 23:30 UTC-11:00");
        assert_eq!(format_minute(Timestamp(0), 0), "1970-01-01 00:00 UTC");
        assert_eq!(format_minute(Timestamp(-1), 0), "1969-12-31 23:59 UTC");
        assert_eq!(format_minute(Timestamp(1_709_164_800_000_000), 0), "2024-02-29 00:00 UTC");
        assert_eq!(
            format_minute(Timestamp(4_107_542_400_000_000), 0),
            "2100-03-01 00:00 UTC",
            "no leap year"
        );
    }
}
