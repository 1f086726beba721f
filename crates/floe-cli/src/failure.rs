//! How a command fails: an exit code for scripts, a cause and a cure for people.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::process::ExitCode;

use crate::style::Style;

/// The meaning of the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The machine is in the way: device, port, permission, origin.
    Environment = 3,
    /// A check found damage.
    Damage = 4,
    /// A judged figure differs and is not listed as known to, or is listed and holds.
    Verdict = 5,
    /// Floe is wrong.
    Bug = 70,
}

impl Exit {
    /// The status of the process.
    pub fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    what: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
    cure: Option<String>,
}

impl Failure {
    /// A wrong command line or configuration.
    pub fn usage(what: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, what)
    }

    /// Something about the machine.
    pub fn environment(what: impl Into<String>) -> Self {
        Failure::new(Exit::Environment, what)
    }

    /// Damage that a check found.
    pub fn damage(what: impl Into<String>) -> Self {
        Failure::new(Exit::Damage, what)
    }

    /// Figures that were judged otherwise than expected.
    pub fn verdict(what: impl Into<String>) -> Self {
        Failure::new(Exit::Verdict, what)
    }

    /// A broken promise of Floe's own.
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

    /// Adds what lies below.
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Says where it happened, before what happened.
    pub fn within(mut self, place: impl fmt::Display) -> Self {
        self.what = format!("{place}: {}", self.what);
        self
    }

    /// Adds what to do.
    pub fn cure(mut self, cure: impl Into<String>) -> Self {
        self.cure = Some(cure.into());
        self
    }

    /// Whether the command line or the configuration is wrong.
    pub fn is_usage(&self) -> bool {
        self.exit == Exit::Usage
    }

    /// Prints the failure and answers with its exit code.
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
        let mut said = self.what.clone();
        let mut next: Option<&dyn Error> = self.cause.as_deref().map(|cause| cause as &dyn Error);
        while let Some(cause) = next {
            let text = cause.to_string();
            // Many errors repeat their source in their own text.
            if !said.contains(&text) {
                write!(f, "\n  because {text}")?;
                let _ = write!(said, "{text}");
            }
            next = cause.source();
        }
        Ok(())
    }
}

impl From<floe::config::ConfigError> for Failure {
    fn from(error: floe::config::ConfigError) -> Self {
        Failure::usage("the configuration cannot be used").because(error)
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
