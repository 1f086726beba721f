//! Text and JSON on standard output.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::failure::Failure;

/// Writes `text` to standard output. A closed pipe, as with `head`, is no failure.
///
/// # Errors
/// Standard output is not writable.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::environment("cannot write to standard output").because(error))
        }
        _ => Ok(()),
    }
}

/// Writes `value` to standard output as indented JSON.
///
/// # Errors
/// As [`print`](print()).
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::bug("the result has no JSON form").because(error))?;
    print(&format!("{text}\n"))
}

/// A size for people: exact in the largest unit that divides it, otherwise rounded.
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ];
    for (name, unit) in UNITS {
        if bytes >= unit {
            return match bytes.is_multiple_of(unit) {
                true => format!("{}{name}", bytes / unit),
                false => format!("{:.1}{name}", bytes as f64 / unit as f64),
            };
        }
    }
    format!("{bytes}B")
}
