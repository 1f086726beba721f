//! What goes to the terminal: colours only where there is one.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Whether to colour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    colour: bool,
}

impl Style {
    pub(crate) fn stdout() -> Self {
        Style::of(io::stdout().is_terminal())
    }

    pub(crate) fn stderr() -> Self {
        Style::of(io::stderr().is_terminal())
    }

    fn of(terminal: bool) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Style {
            colour: terminal && !refused,
        }
    }

    pub(crate) fn colour(self) -> bool {
        self.colour
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Writes `text` to standard output. A reader that went away, as `head` does,
/// is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::environment("cannot write to standard output").because(error))
        }
        _ => Ok(()),
    }
}

/// Writes `value` to standard output as indented JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::bug("an answer has no JSON form").because(error))?;
    print(&format!("{text}\n"))
}

/// Bytes as people read them: exact where a unit fits, otherwise rounded.
pub(crate) fn size(bytes: u64) -> String {
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
