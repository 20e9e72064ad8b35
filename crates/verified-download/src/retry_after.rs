//! `Retry-After`: seconds or a date.

use std::time::Duration;

/// The wait that a `Retry-After` value asks for at `now`: a number of seconds, or an HTTP date (one in the past is no
/// wait). `None` where it is neither.
pub fn parse_retry_after(value: &str, now: jiff::Timestamp) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit mean longer than anybody waits.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::from(u32::MAX))));
    }
    let until = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    let seconds = until.as_second().saturating_sub(now.as_second());
    Some(Duration::from_secs(seconds.max(0).unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates() {
        let now = "1994-11-06T08:49:00Z".parse().unwrap();
        let seconds = |value: &str| parse_retry_after(value, now).map(|wait| wait.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds(" 0 "), Some(0));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(37));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!(seconds("99999999999999999999999"), Some(u64::from(u32::MAX)));
        assert_eq!(seconds("soon"), None);
        assert_eq!(seconds("-1"), None);
        assert_eq!(seconds(""), None);
    }
}
