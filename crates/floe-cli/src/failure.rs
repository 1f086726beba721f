//! Failures of commands: an exit code for scripts, a cause and a remedy for people.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::process::ExitCode;

use crate::style::Style;

/// The meanings of exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A ring, or a node of it, is wrong.
    Wrong = 1,
    /// The command line or the configuration is invalid.
    Usage = 2,
    /// The environment is at fault: device, port, permission, origin.
    Environment = 3,
    /// A check found damage.
    Damage = 4,
    /// A verdict on a figure differs from its expected verdict.
    Verdict = 5,
    /// Floe has a bug.
    Bug = 70,
}

impl Exit {
    /// The status of the process.
    pub fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

/// The failure of a command.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    what: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
    cure: Option<String>,
}

impl Failure {
    /// An invalid command line or configuration.
    pub fn usage(what: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, what)
    }

    /// A fault of the environment.
    pub fn environment(what: impl Into<String>) -> Self {
        Failure::new(Exit::Environment, what)
    }

    /// Damage found by a check.
    pub fn damage(what: impl Into<String>) -> Self {
        Failure::new(Exit::Damage, what)
    }

    /// Verdicts other than expected.
    pub fn verdict(what: impl Into<String>) -> Self {
        Failure::new(Exit::Verdict, what)
    }

    /// A bug in Floe.
    pub fn bug(what: impl Into<String>) -> Self {
        Failure::new(Exit::Bug, what)
    }

    fn new(exit: Exit, what: impl Into<String>) -> Self {
        Failure {
            exit,
            what: what.into(),
            cause: None,
            cure: None,
        }
    }

    /// Adds the cause.
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Puts the place of the failure before its description.
    pub fn within(mut self, place: impl fmt::Display) -> Self {
        self.what = format!("{place}: {}", self.what);
        self
    }

    /// Adds the remedy.
    pub fn cure(mut self, cure: impl Into<String>) -> Self {
        self.cure = Some(cure.into());
        self
    }

    /// True if the command line or the configuration is invalid.
    pub fn is_usage(&self) -> bool {
        self.exit == Exit::Usage
    }

    /// Prints the failure and returns its exit code.
    pub fn report(&self) -> ExitCode {
        let style = Style::stderr();
        eprintln!("{} {self}", style.red("error:"));
        if let Some(cure) = &self.cure {
            eprintln!("{} {cure}", style.bold("try:"));
        }
        self.exit.code()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let mut shown = self.what.clone();
        let mut next: Option<&dyn Error> = self.cause.as_deref().map(|cause| cause as &dyn Error);
        while let Some(cause) = next {
            let text = cause.to_string();
            // Many errors contain the text of their source.
            if !shown.contains(&text) {
                write!(f, "\n  because {text}")?;
                let _ = write!(shown, "{text}");
            }
            next = cause.source();
        }
        Ok(())
    }
}

impl From<floe::config::ConfigError> for Failure {
    fn from(error: floe::config::ConfigError) -> Self {
        Failure::usage("the configuration is invalid").because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::{Exit, Failure};

    #[test]
    fn each_kind_of_failure_has_its_status() {
        for (failure, status) in [
            (Failure::usage("x"), 2),
            (Failure::environment("x"), 3),
            (Failure::damage("x"), 4),
            (Failure::verdict("x"), 5),
            (Failure::bug("x"), 70),
        ] {
            assert_eq!(failure.exit as u8, status);
        }
        assert_ne!(Exit::Bug.code(), Exit::Usage.code());
    }
}
