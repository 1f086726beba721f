//! The address of a server of NATS, and the subject there.

use http::Uri;

/// The port of NATS.
const PORT: u16 = 4222;

const FORM: &str = "the URL of NATS is nats://HOST:PORT, or tls://HOST:PORT";

/// Most bytes of a subject, of those that a line of NATS can have.
const SUBJECT_BYTES_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::frontends::events) struct NatsAddress {
    /// A name or an IP address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The server must encrypt the connection.
    pub(in crate::frontends::events) needs_tls: bool,
}

impl NatsAddress {
    /// Reads a URL.
    ///
    /// # Errors
    /// The text is no URL of NATS. The error does not repeat it, as it may hold a password.
    pub(in crate::frontends::events) fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| FORM.to_owned())?;
        let needs_tls = match uri.scheme_str() {
            Some("nats") => false,
            Some("tls") => true,
            _ => return Err(FORM.into()),
        };
        let authority = uri.authority().ok_or(FORM)?;
        if authority.as_str().contains('@') {
            return Err(format!(
                "{FORM}, without a user: set events.nats_user and events.nats_password"
            ));
        }
        let host = authority.host();
        let port = match authority.as_str().strip_prefix(host) {
            Some("") => PORT,
            Some(rest) => {
                let port = rest.strip_prefix(':').and_then(|port| port.parse().ok());
                port.ok_or(FORM)?
            }
            // Unreachable: an authority without a user begins with its host.
            None => return Err(FORM.into()),
        };
        let host = host.trim_matches(['[', ']']);
        let has_more = !matches!(uri.path(), "" | "/") || uri.query().is_some();
        if host.is_empty() || has_more {
            return Err(FORM.into());
        }
        Ok(NatsAddress {
            host: host.to_owned(),
            port,
            needs_tls,
        })
    }
}

/// Checks a subject to which the server publishes too, so that it can have no wildcards.
///
/// # Errors
/// The text is no such subject.
pub(in crate::frontends::events) fn check_subject(subject: &str) -> Result<(), String> {
    let is_token = |token: &str| {
        let is_printable = !token.contains(|one: char| one.is_whitespace() || one.is_control());
        !token.is_empty() && token != "*" && token != ">" && is_printable
    };
    if subject.len() > SUBJECT_BYTES_MAX {
        return Err(format!("it has more than {SUBJECT_BYTES_MAX} bytes"));
    }
    if !subject.split('.').all(is_token) {
        return Err(format!(
            "{subject:?} is no subject without wildcards, such as `floe.bucket`"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_server() {
        for (url, host, port, needs_tls) in [
            ("nats://10.0.0.7:4222", "10.0.0.7", 4222, false),
            ("nats://nats.example.org", "nats.example.org", 4222, false),
            ("tls://[::1]:4443/", "::1", 4443, true),
        ] {
            let host = host.to_owned();
            let expected = NatsAddress {
                host,
                port,
                needs_tls,
            };
            assert_eq!(NatsAddress::parse(url), Ok(expected));
        }
        for (wrong, cause) in [
            ("10.0.0.7:4222", "nats://"),
            ("http://10.0.0.7", "nats://"),
            ("nats://", "nats://"),
            ("nats://host/path", "nats://"),
            ("nats://host:42222222", "nats://"),
            ("nats://host:4x22", "nats://"),
            ("nats://host:", "nats://"),
            ("nats://me:word@host", "events.nats_user"),
        ] {
            let refused = NatsAddress::parse(wrong).unwrap_err();
            assert!(
                refused.contains(cause) && !refused.contains("word@"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_subject_has_no_wildcards() {
        assert_eq!(check_subject("floe.bucket"), Ok(()));
        for wrong in ["", "a..b", "a.*", ">", "a b", "a\r\nPUB b", ".a"] {
            assert!(check_subject(wrong).is_err(), "{wrong:?}");
        }
        assert!(check_subject(&"x".repeat(257)).is_err());
    }
}
