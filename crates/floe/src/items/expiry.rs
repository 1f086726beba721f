//! Expiry times, in all forms of memcached's `exptime`.

/// An `exptime` up to this many seconds is relative; a larger one is an absolute time.
const RELATIVE_SECONDS_MAX: i64 = 30 * 24 * 3600;

/// When an item expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// The item never expires.
    #[default]
    Never,
    /// At this second since 1970.
    At(u32),
    /// The item has expired: no read finds it.
    Past,
}

impl Expiry {
    /// Parses memcached's `exptime`: 0 is never, up to 30 days are relative to
    /// `now_unix_s`, more is a second since 1970, and a negative number is
    /// past.
    pub fn from_exptime(exptime: i64, now_unix_s: u64) -> Self {
        let now = i64::try_from(now_unix_s).unwrap_or(i64::MAX);
        let at = match exptime {
            0 => return Expiry::Never,
            ..0 => return Expiry::Past,
            1..=RELATIVE_SECONDS_MAX => now.saturating_add(exptime),
            _ => exptime,
        };
        if at <= now {
            return Expiry::Past;
        }
        // A time beyond 2106 is clamped, not turned into `Never`.
        Expiry::At(u32::try_from(at).unwrap_or(u32::MAX))
    }

    /// The encoded expiry of an item that is alive at `now_unix_s`.
    pub(super) fn ahead_of(self, now_unix_s: u64) -> Option<u32> {
        match self {
            Expiry::Never => Some(0),
            Expiry::At(at) => (u64::from(at) > now_unix_s).then_some(at),
            Expiry::Past => None,
        }
    }

    /// Decodes a stored expiry: 0 is never.
    pub fn from_unix(expiry_unix_s: u32) -> Self {
        match expiry_unix_s {
            0 => Expiry::Never,
            at => Expiry::At(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let now = 1_700_000_000;
        for (exptime, expected) in [
            (0, Expiry::Never),
            (-1, Expiry::Past),
            (i64::MIN, Expiry::Past),
            (1, Expiry::At(1_700_000_001)),
            (2_592_000, Expiry::At(1_702_592_000)),
            (2_592_001, Expiry::Past),
            (1_700_000_000, Expiry::Past),
            (1_700_000_001, Expiry::At(1_700_000_001)),
            (i64::MAX, Expiry::At(u32::MAX)),
        ] {
            assert_eq!(Expiry::from_exptime(exptime, now), expected, "{exptime}");
        }
    }
}
