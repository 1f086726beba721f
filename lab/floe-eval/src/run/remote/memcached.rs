//! memcached's text protocol: `get`, `set`, `delete`.

use floe::origin::ObjectKey;

use super::ask::Ask;
use super::pipe::{Broken, Input, Output, Wire, junk};
use crate::error::EvalError;
use crate::metrics::Served;
use crate::run::response::{Failure, Response, other, pieces, written};

/// Longest key of memcached.
const KEY_BYTES_MAX: usize = 250;

/// Environment variables with the name and the password.
const USER: &str = "MEMCACHED_USERNAME";
const PASSWORD: &str = "MEMCACHED_PASSWORD";

/// The protocol, with the credentials for new connections.
#[derive(Clone)]
pub(super) struct Memcached {
    credentials: Option<String>,
}

impl Memcached {
    /// Reads the credentials from the environment, if there are any.
    pub(super) fn from_environment() -> Result<Self, EvalError> {
        match (std::env::var(USER), std::env::var(PASSWORD)) {
            (Ok(user), Ok(password)) => Ok(Memcached {
                credentials: Some(format!("{user} {password}")),
            }),
            (Err(_), Err(_)) => Ok(Memcached { credentials: None }),
            _ => Err(EvalError::Option {
                option: "credentials",
                reason: format!("set both {USER} and {PASSWORD}, or none"),
            }),
        }
    }
}

impl Wire for Memcached {
    async fn encode(
        &self,
        output: &mut Output,
        name: &ObjectKey,
        ask: &Ask,
    ) -> Result<Result<(), Failure>, Broken> {
        let key = name.key();
        let is_plain = key.bytes().all(|byte| byte > b' ' && byte != 0x7f);
        if !is_plain || key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Ok(Err(Failure::Failed(format!(
                "{key:?} is not a key of memcached: a key has 1 to {KEY_BYTES_MAX} bytes, without spaces and control characters"
            ))));
        }
        match ask {
            Ask::Get { .. } => output.put(format!("get {key}\r\n").as_bytes()),
            Ask::Delete => output.put(format!("delete {key}\r\n").as_bytes()),
            Ask::Put { content, length } => {
                output.put(format!("set {key} 0 0 {length}\r\n").as_bytes());
                for piece in pieces(*content, *length) {
                    output.send(&piece).await?;
                }
                output.put(b"\r\n");
            }
        }
        Ok(Ok(()))
    }

    async fn decode(
        &self,
        input: &mut Input,
        name: &ObjectKey,
        ask: Ask,
    ) -> Result<Result<Response, Failure>, Broken> {
        let line = input.line().await?;
        let is_rejection = ["ERROR", "SERVER_ERROR", "CLIENT_ERROR"]
            .iter()
            .any(|word| line.starts_with(word));
        if is_rejection {
            return Ok(Err(Failure::Failed(format!(
                "the server responds {line:?}"
            ))));
        }
        match ask {
            Ask::Get { length, .. } if line == "END" => Ok(Ok(Response {
                served: Served::Absent,
                bytes: length,
            })),
            Ask::Get { mut check, .. } => {
                let (key, length) = value_head(&line)?;
                let checked = input.value(length, &mut check).await?;
                if input.exact().await? != *b"\r\n" || input.line().await? != "END" {
                    return Err(junk(format!("the value of {key} has no end")));
                }
                if key != name.key() {
                    let what = format!("the value of {key} came");
                    let key = name.to_string();
                    return Ok(Err(Failure::Lie(EvalError::ServerLied { key, what })));
                }
                Ok(checked.and_then(|()| check.finish(Served::Hit)))
            }
            Ask::Put { length, .. } if line == "STORED" => Ok(Ok(written(length))),
            Ask::Put { .. } => Ok(Err(Failure::Failed(format!(
                "the response to a set is {line:?}"
            )))),
            Ask::Delete if line == "DELETED" || line == "NOT_FOUND" => Ok(Ok(other(0))),
            Ask::Delete => Err(junk(format!("the response to a delete is {line:?}"))),
        }
    }

    async fn greet(&self, output: &mut Output, input: &mut Input) -> Result<(), Broken> {
        use std::io::{Error, ErrorKind};
        if let Some(credentials) = &self.credentials {
            let length = credentials.len();
            output.put(format!("set auth 0 0 {length}\r\n{credentials}\r\n").as_bytes());
            output.flush().await?;
            let line = input.line().await?;
            if line != "STORED" {
                let why = format!("it rejects {USER} and {PASSWORD}: {line}");
                return Err(Error::new(ErrorKind::PermissionDenied, why));
            }
        }
        output.put(b"version\r\n");
        output.flush().await?;
        let line = input.line().await?;
        match line.starts_with("VERSION") {
            true => Ok(()),
            false if line.contains("unauthenticated") => {
                let why = format!(
                    "it asks for a name and a password; set {USER} and {PASSWORD} ({line})"
                );
                Err(Error::new(ErrorKind::PermissionDenied, why))
            }
            false => Err(junk(format!(
                "{line:?} is not a response to `version`; is this a memcached server?"
            ))),
        }
    }
}

/// Key and length of `VALUE key flags length`.
fn value_head(line: &str) -> Result<(&str, u64), Broken> {
    let mut words = line.split(' ');
    let head = match (words.next(), words.next(), words.next(), words.next()) {
        (Some("VALUE"), Some(key), Some(_flags), Some(length)) => {
            length.parse().ok().map(|length| (key, length))
        }
        _ => None,
    };
    head.ok_or_else(|| junk(format!("the response to a get is {line:?}")))
}
