//! Fields of a text line: found and parsed, with errors that name the field.

use std::time::Duration;

use super::request::BlockOp;

/// The nanoseconds of one second.
pub(crate) const NS_PER_S: u64 = 1_000_000_000;
/// The nanoseconds of one millisecond.
pub(super) const NS_PER_MS: u64 = 1_000_000;
/// The nanoseconds of one microsecond.
pub(crate) const NS_PER_US: u64 = 1_000;

/// A line as text.
pub(super) fn text(line: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(line).map_err(|_| "the line is not UTF-8 text".to_owned())
}

/// Parses a whole number. The error names the field.
pub(super) fn number<T: std::str::FromStr>(name: &str, field: &str) -> Result<T, String> {
    field.trim().parse().map_err(|_| {
        format!(
            "{name} `{}` is not a whole number that fits",
            excerpt(field)
        )
    })
}

/// A hexadecimal number, with or without `0x`.
pub(super) fn hexadecimal(name: &str, field: &str) -> Result<u64, String> {
    let digits = field.trim();
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    u64::from_str_radix(digits, 16).map_err(|_| {
        format!(
            "{name} `{}` is not a hexadecimal number that fits",
            excerpt(field)
        )
    })
}

/// A whole number of `unit`s, in the parts that a unit has.
pub(super) fn scaled(name: &str, field: &str, unit: u64) -> Result<u64, String> {
    number::<u64>(name, field)?
        .checked_mul(unit)
        .ok_or_else(|| format!("{name} `{}` is too large", excerpt(field)))
}

/// A whole number of seconds in nanoseconds.
pub(super) fn whole_seconds_ns(name: &str, field: &str) -> Result<u64, String> {
    scaled(name, field, NS_PER_S)
}

/// Decimal seconds (`123.000456`) in nanoseconds, exactly; digits beyond the
/// ninth are dropped.
pub(super) fn decimal_seconds_ns(name: &str, field: &str) -> Result<u64, String> {
    decimal_ns(name, field, NS_PER_S)
}

/// A decimal multiple of `unit_ns`, which is at most a second, in nanoseconds.
/// Digits beyond the ninth and parts of nanoseconds are dropped.
pub(super) fn decimal_ns(name: &str, field: &str, unit_ns: u64) -> Result<u64, String> {
    let fail = || {
        format!(
            "{name} `{}` is not a decimal number that fits",
            excerpt(field)
        )
    };
    let (whole, fraction) = field.trim().split_once('.').unwrap_or((field.trim(), ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(fail());
    }
    let whole: u64 = whole.parse().map_err(|_| fail())?;
    let billionths = fraction
        .bytes()
        .chain(std::iter::repeat(b'0'))
        .take(9)
        .fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    whole
        .checked_mul(unit_ns)
        .and_then(|ns| ns.checked_add(billionths * unit_ns / NS_PER_S))
        .ok_or_else(fail)
}

/// One of two operations.
pub(super) fn read_or_write(field: &str) -> Result<BlockOp, String> {
    match field.trim() {
        "r" | "R" | "Read" => Ok(BlockOp::Read),
        "w" | "W" | "Write" => Ok(BlockOp::Write),
        other => Err(format!(
            "operation `{}` is neither r (read) nor w (write)",
            excerpt(other)
        )),
    }
}

/// The fields of a line of CSV without a header, whose columns `names` lists; an
/// empty line has none.
pub(super) fn columns<'a, const N: usize>(
    line: &'a [u8],
    names: &str,
) -> Result<Option<[&'a str; N]>, String> {
    let line = text(line)?;
    if line.trim().is_empty() {
        return Ok(None);
    }
    exactly(line.split(','))
        .map(Some)
        .ok_or_else(|| format!("the line has not the {N} fields {names}"))
}

/// The words of a line of text; an empty line has none.
pub(super) fn words<const N: usize>(line: &[u8]) -> Result<Option<[&str; N]>, String> {
    let line = text(line)?;
    if line.trim().is_empty() {
        return Ok(None);
    }
    exactly(line.split_ascii_whitespace())
        .map(Some)
        .ok_or_else(|| format!("the line has not {N} fields"))
}

fn exactly<'a, const N: usize>(mut given: impl Iterator<Item = &'a str>) -> Option<[&'a str; N]> {
    let mut fields = [""; N];
    for field in &mut fields {
        *field = given.next()?;
    }
    given.next().is_none().then_some(fields)
}

/// A time to live in whole seconds. Zero and negative numbers mean none.
pub(super) fn ttl(field: &str) -> Result<Option<Duration>, String> {
    let seconds: i64 = number("the TTL", field)?;
    Ok(u64::try_from(seconds)
        .ok()
        .filter(|&seconds| seconds > 0)
        .map(Duration::from_secs))
}

/// The beginning of a field, for messages.
pub(super) fn excerpt(field: &str) -> String {
    const CHARS_MAX: usize = 40;
    if field.chars().count() <= CHARS_MAX {
        return field.to_owned();
    }
    let mut short: String = field.chars().take(CHARS_MAX).collect();
    short.push('…');
    short
}

/// Reads a CSV file, whose first line names the columns.
#[derive(Debug)]
pub(super) struct Table<const N: usize> {
    names: [&'static str; N],
    required: &'static [&'static str],
    columns: Option<Columns<N>>,
}

impl<const N: usize> Table<N> {
    /// A table with columns of these `names`. Those in `required` must exist.
    pub(super) fn new(names: [&'static str; N], required: &'static [&'static str]) -> Self {
        Table {
            names,
            required,
            columns: None,
        }
    }

    /// The fields of a row; the header and empty lines have none.
    pub(super) fn row<'a>(&mut self, line: &'a [u8]) -> Result<Option<[&'a str; N]>, String> {
        let line = text(line)?;
        if line.trim().is_empty() {
            return Ok(None);
        }
        let Some(columns) = &self.columns else {
            self.columns = Some(Columns::find(line, self.names, self.required)?);
            return Ok(None);
        };
        columns.fields(line).map(Some)
    }
}

/// The positions of columns in a CSV file with a header.
#[derive(Debug)]
struct Columns<const N: usize>([Option<usize>; N]);

impl<const N: usize> Columns<N> {
    /// Finds `names` in a header. Those in `required` must exist.
    fn find(
        header: &str,
        names: [&'static str; N],
        required: &[&'static str],
    ) -> Result<Self, String> {
        let found: Vec<&str> = header.split(',').map(str::trim).collect();
        let places = names.map(|name| {
            found
                .iter()
                .position(|given| given.eq_ignore_ascii_case(name))
        });
        for (name, place) in names.iter().zip(&places) {
            if place.is_none() && required.contains(name) {
                return Err(format!(
                    "the header `{}` has no column `{name}`",
                    excerpt(header)
                ));
            }
        }
        Ok(Columns(places))
    }

    /// The fields of a line in the order of the names; absent columns are empty.
    fn fields<'a>(&self, line: &'a str) -> Result<[&'a str; N], String> {
        let given: Vec<&str> = line.split(',').collect();
        let mut fields = [""; N];
        for (field, place) in fields.iter_mut().zip(&self.0) {
            if let Some(place) = place {
                *field = given.get(*place).copied().ok_or_else(|| {
                    format!(
                        "the line has {} fields; column {} is missing",
                        given.len(),
                        place + 1
                    )
                })?;
            }
        }
        Ok(fields)
    }
}
