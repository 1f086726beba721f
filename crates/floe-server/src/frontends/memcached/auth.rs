//! Authentication as with memcached's `-Y`: a file of names and passwords, and
//! a first `set` command whose value is a name and its password.

use std::fmt;
use std::path::Path;

use super::config::MemcachedConfig;
use crate::config::ServerConfigError;
use crate::reload::Reloadable;

/// The accepted names and passwords.
pub(super) struct Users(Reloadable<Vec<User>>);

struct User {
    name: Box<[u8]>,
    password: Box<[u8]>,
}

impl fmt::Debug for Users {
    /// Prints no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({})", self.0.get().len())
    }
}

impl Users {
    /// Reads the users of `config`; `None` if it names no file.
    pub(super) fn of(config: &MemcachedConfig) -> Result<Option<Self>, ServerConfigError> {
        match config.auth_file.as_os_str().is_empty() {
            true => Ok(None),
            false => Users::read(&config.auth_file).map(Some),
        }
    }

    /// Reads a file of lines `name:password`.
    pub(super) fn read(path: &Path) -> Result<Self, ServerConfigError> {
        let problem = |problem: String| ServerConfigError {
            setting: "memcached.auth_file".into(),
            problem,
            cure: "write lines of the form name:password into a file that this user may read"
                .into(),
        };
        let text = std::fs::read(path)
            .map_err(|error| problem(format!("`{}` cannot be read: {error}", path.display())))?;
        let mut users = Vec::new();
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            match line.iter().position(|&byte| byte == b':') {
                Some(colon) if colon > 0 && colon + 1 < line.len() => {
                    users.push(User {
                        name: line[..colon].into(),
                        password: line[colon + 1..].into(),
                    });
                }
                // The error must not quote the line, which may contain a password.
                _ => {
                    let line = number + 1;
                    return Err(problem(format!("line {line} is not name:password")));
                }
            }
        }
        match users.is_empty() {
            true => Err(problem("it has no users".into())),
            false => Ok(Users(Reloadable::new(users))),
        }
    }

    /// Replaces the users for later authentications.
    pub(super) fn replace_with(&self, other: &Self) {
        self.0.replace_with(&other.0);
    }

    /// True if a user has this name and password. The time does not depend on
    /// whether the password is right.
    pub(super) fn has(&self, name: &[u8], password: &[u8]) -> bool {
        let mut found = false;
        for user in self.0.get().iter() {
            found |= is_equal(&user.name, name) & is_equal(&user.password, password);
        }
        found
    }
}

fn is_equal(left: &[u8], right: &[u8]) -> bool {
    let differences = left.iter().zip(right).fold(0, |all, (l, r)| all | (l ^ r));
    left.len() == right.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_and_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        std::fs::write(&path, "ann:secret\r\n\nbob:a:b\n").unwrap();
        let users = Users::read(&path).unwrap();
        assert!(users.has(b"ann", b"secret") && users.has(b"bob", b"a:b"));
        assert!(!users.has(b"ann", b"a:b") && !users.has(b"ann", b"secre"));
        for (bad, word) in [
            ("", "no users"),
            ("ann\n", "line 1"),
            ("a:b\n:c\n", "line 2"),
        ] {
            std::fs::write(&path, bad).unwrap();
            let error = Users::read(&path).unwrap_err().to_string();
            assert!(
                error.contains(word) && error.contains("memcached.auth_file"),
                "{error}"
            );
        }
        assert!(Users::read(&folder.path().join("none")).is_err());
    }
}
