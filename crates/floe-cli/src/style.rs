//! Colours on a terminal, none in a file.

use std::io::{self, IsTerminal as _};

/// The style of output for people.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// The style of standard output.
    pub fn stdout() -> Self {
        Style::of(io::stdout().is_terminal())
    }

    /// The style of standard error.
    pub fn stderr() -> Self {
        Style::of(io::stderr().is_terminal())
    }

    /// A style without colours.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Style::of(false)
    }

    fn of(terminal: bool) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Style {
            colour: terminal && !no_color,
        }
    }

    /// Returns whether this style colours text.
    pub fn colour(self) -> bool {
        self.colour
    }

    /// `text` in bold, if coloured.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// `text` in red, if coloured.
    pub fn red(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    /// `text` in green, if coloured.
    pub fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// `text` dimmed, if coloured.
    pub fn dim(self, text: &str) -> String {
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
