//! The address of an export, as text.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

/// Port of servers that listen on the default one.
const PORT: u16 = 10809;

/// Most bytes of an export's name, as in the protocol.
const NAME_BYTES_MAX: usize = 4096;

/// The address of an export: `nbd://HOST[:PORT]/EXPORT` or
/// `nbd+unix:///EXPORT?socket=PATH`. With `nbds` and `nbds+unix` the connection is
/// encrypted, and `tls-certificates=FOLDER` is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdAddress {
    text: String,
    pub(super) place: Place,
    pub(super) export: String,
    pub(super) tls: Option<TlsAddress>,
}

/// The place of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Certificates, and the name that the server's certificate must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsAddress {
    /// The folder of `ca-cert.pem`, and of `client-cert.pem` and `client-key.pem`.
    pub(super) folder: PathBuf,
    pub(super) host: String,
}

/// Why a text is no address of an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no address of an export: {cause}; write nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH"
)]
pub struct NbdAddressError {
    text: String,
    cause: &'static str,
}

impl NbdAddress {
    /// The name of the export; empty for the server's default one.
    pub fn export(&self) -> &str {
        &self.export
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("it has no scheme")?;
        let (is_unix, is_encrypted) = match scheme {
            "nbd" => (false, false),
            "nbds" => (false, true),
            "nbd+unix" => (true, false),
            "nbds+unix" => (true, true),
            _ => return Err("the scheme is none of nbd, nbds, nbd+unix and nbds+unix"),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decode(export)?;
        if export.len() > NAME_BYTES_MAX {
            return Err("the name of the export has more than 4096 bytes");
        }
        let (mut socket, mut folder, mut host) = (None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or("a parameter has no value")?;
            let value = Some(decode(value)?);
            match key {
                "socket" => socket = value,
                "tls-certificates" => folder = value,
                "tls-hostname" => host = value,
                _ => {
                    return Err("a parameter is none of socket, tls-certificates and tls-hostname");
                }
            }
        }
        let place = match (is_unix, socket) {
            (true, Some(socket)) if authority.is_empty() => Place::Unix(socket.into()),
            (true, _) => return Err("a Unix socket is named by socket=PATH alone"),
            (false, None) => tcp(authority)?,
            (false, Some(_)) => return Err("socket=PATH needs nbd+unix"),
        };
        let tls = match (is_encrypted, folder) {
            (false, None) => None,
            (false, Some(_)) => return Err("tls-certificates=FOLDER needs nbds"),
            (true, None) => return Err("nbds needs tls-certificates=FOLDER"),
            (true, Some(folder)) => Some(TlsAddress {
                folder: folder.into(),
                host: host.unwrap_or_else(|| place.host().to_owned()),
            }),
        };
        Ok(NbdAddress {
            text: text.to_owned(),
            place,
            export,
            tls,
        })
    }
}

impl Place {
    fn host(&self) -> &str {
        match self {
            Place::Tcp { host, .. } => host,
            Place::Unix(_) => "localhost",
        }
    }
}

fn tcp(authority: &str) -> Result<Place, &'static str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("a bracket is not closed")?;
            (host, port.strip_prefix(':'))
        }
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err("it names no host");
    }
    let port = port.map_or(Ok(PORT), str::parse);
    Ok(Place::Tcp {
        host: host.to_owned(),
        port: port.map_err(|_| "the port is no number up to 65535")?,
    })
}

fn decode(text: &str) -> Result<String, &'static str> {
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|_| "it is no text")?.into_owned())
}

impl FromStr for NbdAddress {
    type Err = NbdAddressError;

    fn from_str(text: &str) -> Result<Self, NbdAddressError> {
        NbdAddress::parse(text).map_err(|cause| NbdAddressError {
            text: text.to_owned(),
            cause,
        })
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> NbdAddress {
        text.parse().expect(text)
    }

    #[test]
    fn addresses_name_a_server_and_an_export() {
        let tcp = |host: &str, port| Place::Tcp {
            host: host.to_owned(),
            port,
        };
        let plain = address("nbd://disks.example/a%20disk");
        assert_eq!(plain.place, tcp("disks.example", PORT));
        assert_eq!((plain.export(), &plain.tls), ("a disk", &None));
        assert_eq!(address("nbd://[::1]:99/x").place, tcp("::1", 99));
        assert_eq!(address("nbd://127.0.0.1:1").export(), "");
        let unix = address("nbd+unix:///disk?socket=/run/nbd.sock");
        assert_eq!(unix.place, Place::Unix("/run/nbd.sock".into()));
        assert_eq!(unix.export(), "disk");
        let tls = address("nbds://h/x?tls-certificates=/etc/pki").tls;
        let expected = TlsAddress {
            folder: "/etc/pki".into(),
            host: "h".to_owned(),
        };
        assert_eq!(tls, Some(expected));
        assert_eq!(plain.to_string(), "nbd://disks.example/a%20disk");
    }

    #[test]
    fn other_texts_are_no_addresses() {
        for text in [
            "disk.img",
            "http://h/x",
            "nbd:///x",
            "nbd://h:70000/x",
            "nbd+unix:///x",
            "nbd+unix://h/x?socket=/s",
            "nbd://h/x?socket=/s",
            "nbds://h/x",
            "nbd://h/x?tls-certificates=/etc",
            "nbd://h/x?flush",
            "nbd://h/x?cache=1",
        ] {
            let error = text.parse::<NbdAddress>().expect_err(text);
            assert!(error.to_string().contains("nbd://HOST"), "{error}");
        }
    }
}
