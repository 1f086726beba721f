//! etcd, through the JSON interface of its version 3: a registry of nodes, and single keys.
//!
//! The crate `etcd-client` compiles protocol buffers when it is built, which needs a program
//! beside the Rust toolchain; the JSON interface has the same operations.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use floe::membership::{Entry, LeaseError, Registered, Registry, RingHash};
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::NodeConfig;

/// etcd's shortest lease by its defaults, in seconds.
const LEASE_SECONDS_MIN: u64 = 2;

/// Most bytes of an answer: a few thousand entries.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// etcd, at several addresses.
pub(super) struct Etcd {
    client: reqwest::Client,
    login: Option<Login>,
    addresses: Vec<String>,
    /// The one that answered last.
    answering: AtomicUsize,
    /// Of all keys, without a slash at the end.
    prefix: String,
}

/// A kind of keys, below the prefix.
#[derive(Clone, Copy)]
pub(super) enum Folder {
    Members,
    Volumes,
}

/// The value of a key.
pub(super) struct FoundValue {
    pub(super) bytes: Vec<u8>,
    /// The revision of its last change.
    pub(super) modification: u64,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

/// A user of etcd, whose name and password give a token for a while.
struct Login {
    /// The question for a token.
    question: Value,
    token: Mutex<Option<String>>,
}

/// An answer of etcd, and the path to which it belongs.
type Answer<'a> = (&'a str, reqwest::Response);

const AUTHENTICATE: &str = "auth/authenticate";

/// A number, which etcd writes as a text, and leaves out if it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
        number
            .map(Number)
            .ok_or_else(|| serde::de::Error::custom("not a number"))
    }
}

#[derive(Default, Deserialize)]
struct Token {
    token: String,
}

#[derive(Deserialize)]
struct Granted {
    #[serde(rename = "ID")]
    id: Number,
}

#[derive(Deserialize)]
struct Renewed {
    result: RenewedResult,
}

#[derive(Deserialize)]
struct RenewedResult {
    #[serde(rename = "TTL", default)]
    seconds: Number,
}

#[derive(Deserialize)]
struct Found {
    header: Header,
    #[serde(default)]
    kvs: Vec<FoundKey>,
}

#[derive(Deserialize)]
struct FoundKey {
    key: String,
    #[serde(default)]
    value: String,
    create_revision: Number,
    mod_revision: Number,
    #[serde(default)]
    lease: Number,
}

#[derive(Deserialize)]
struct Done {
    #[serde(default)]
    succeeded: bool,
    header: Header,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct Response {
    response_range: Option<FoundNow>,
}

#[derive(Deserialize)]
struct FoundNow {
    #[serde(default)]
    kvs: Vec<FoundKey>,
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    revision: Number,
}

#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    message: String,
}

/// An answer of etcd other than a success.
#[derive(Debug, thiserror::Error)]
enum EtcdError {
    #[error("no address of node.etcd answers as etcd: {0}")]
    Unreachable(String),
    #[error("etcd refused {path}: {message}")]
    Refused { path: String, message: String },
    #[error("etcd answered {path} with something unexpected: {message}")]
    Unexpected { path: String, message: String },
}

impl Etcd {
    /// Asks each address of the settings for at most its share of `time`.
    ///
    /// # Errors
    /// A file of the settings cannot be read, or is not what it should be.
    pub(super) fn new(config: &NodeConfig, time: Duration) -> Result<Self, LeaseError> {
        let addresses = &config.etcd;
        // Addresses are few.
        let share = time / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
        let mut client = reqwest::Client::builder()
            .user_agent(concat!("floe/", env!("CARGO_PKG_VERSION")))
            .timeout(share)
            // Its connections are closed when a call is given up.
            .http1_only()
            // A proxy between would delay renewals.
            .no_proxy();
        if is_set(&config.etcd_ca) {
            let setting = "node.etcd_ca";
            let pem = read_file(setting, &config.etcd_ca)?;
            let found = reqwest::Certificate::from_pem_bundle(&pem);
            let found = found.map_err(|error| wrong_file(setting, &config.etcd_ca, &error))?;
            client = client.tls_certs_only(found);
        }
        if is_set(&config.etcd_certificate) {
            let setting = "node.etcd_certificate";
            let mut pem = read_file(setting, &config.etcd_certificate)?;
            // The file may end without a line break.
            pem.push(b'\n');
            pem.extend_from_slice(&read_file("node.etcd_key", &config.etcd_key)?);
            let identity = reqwest::Identity::from_pem(&pem);
            let path = &config.etcd_certificate;
            let identity = identity.map_err(|error| wrong_file(setting, path, &error))?;
            client = client.identity(identity);
        }
        let login = (!config.etcd_user.is_empty()).then(|| Login {
            question: json!({ "name": config.etcd_user, "password": config.etcd_password }),
            token: Mutex::default(),
        });
        Ok(Etcd {
            client: client.build()?,
            login,
            addresses: addresses
                .iter()
                .map(|address| address.trim_end_matches('/').to_owned())
                .collect(),
            answering: AtomicUsize::new(0),
            prefix: config.etcd_prefix.trim_end_matches('/').to_owned(),
        })
    }

    /// Sends a request to one address, with a token where one is needed.
    async fn post<'a>(
        &self,
        address: &str,
        path: &'a str,
        body: &[u8],
    ) -> reqwest::Result<Answer<'a>> {
        let send = async |token: Option<String>| {
            let url = format!("{address}/v3/{path}");
            let mut request = self.client.post(url).body(body.to_vec());
            if let Some(token) = token {
                request = request.header(AUTHORIZATION, token);
            }
            reqwest::Result::Ok((path, request.send().await?))
        };
        let Some(login) = &self.login else {
            return send(None).await;
        };
        let known = login.token.lock().clone();
        if known.is_some() {
            let (path, answer) = send(known).await?;
            // etcd forgets tokens after a while, and when it starts. It rejects those from before
            // a change of its users, as any bad request, before it does anything.
            if !answer.status().is_client_error() {
                return Ok((path, answer));
            }
        }
        match self.log_in(address, login).await? {
            Ok(token) => send(Some(token)).await,
            Err(refusal) => Ok((AUTHENTICATE, refusal)),
        }
    }

    /// Gets a token, or etcd's refusal.
    async fn log_in(
        &self,
        address: &str,
        login: &Login,
    ) -> reqwest::Result<Result<String, reqwest::Response>> {
        let url = format!("{address}/v3/{AUTHENTICATE}");
        let question = login.question.to_string();
        let answer = self.client.post(url).body(question).send().await?;
        if !answer.status().is_success() {
            return Ok(Err(answer));
        }
        // Without a token the next call is refused, and tells why.
        let token: Token = serde_json::from_slice(&answer.bytes().await?).unwrap_or_default();
        *login.token.lock() = Some(token.token.clone());
        Ok(Ok(token.token))
    }

    /// Asks the addresses in turn until one answers, from the one that answered last.
    async fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        path: &str,
        request: &Value,
    ) -> Result<T, LeaseError> {
        let body = serde_json::to_vec(request)?;
        let mut problem = String::new();
        let (first, count) = (self.answering.load(Relaxed), self.addresses.len());
        for index in (first..first + count).map(|index| index % count) {
            let address = &self.addresses[index];
            match self.post(address, path, &body).await {
                // Another member of etcd may have a leader.
                Ok((_, answer)) if answer.status().is_server_error() => {
                    problem = format!("{address}: {}", answer.status());
                }
                Ok((path, answer)) => {
                    self.answering.store(index, Relaxed);
                    return read(path, answer).await;
                }
                Err(error) => problem = format!("{address}: {}", chain(&error)),
            }
        }
        Err(EtcdError::Unreachable(problem).into())
    }

    /// The beginning of all keys of a folder.
    fn path(&self, folder: Folder) -> String {
        let name = match folder {
            Folder::Members => "members",
            Folder::Volumes => "volumes",
        };
        format!("{}/{name}/", self.prefix)
    }

    fn key(&self, folder: Folder, name: &str) -> String {
        STANDARD.encode(format!("{}{name}", self.path(folder)))
    }

    /// Puts a value if its key was modified last by that revision, 0 if there is no such key, with
    /// a lease, 0 for none. Returns the revision of the change, or what is there.
    async fn put_if(
        &self,
        (folder, name): (Folder, &str),
        modification: u64,
        value: &[u8],
        lease: u64,
    ) -> Result<Result<u64, Option<FoundKey>>, LeaseError> {
        let key = self.key(folder, name);
        let value = STANDARD.encode(value);
        let request = json!({
            "compare": [{
                "key": key,
                "target": "MOD",
                "result": "EQUAL",
                "mod_revision": modification.to_string(),
            }],
            "success": [{
                "request_put": { "key": key, "value": value, "lease": lease.to_string() },
            }],
            "failure": [{ "request_range": { "key": key } }],
        });
        let done: Done = self.ask("kv/txn", &request).await?;
        let found = done.responses.into_iter().next();
        let found = found.and_then(|response| response.response_range?.kvs.pop());
        Ok(match done.succeeded {
            true => Ok(done.header.revision.0),
            false => Err(found),
        })
    }

    /// The value of a key, if there is one.
    pub(super) async fn get(
        &self,
        folder: Folder,
        name: &str,
    ) -> Result<Option<FoundValue>, LeaseError> {
        let request = json!({ "key": self.key(folder, name) });
        let mut found: Found = self.ask("kv/range", &request).await?;
        let Some(one) = found.kvs.pop() else {
            return Ok(None);
        };
        Ok(Some(FoundValue {
            bytes: STANDARD.decode(one.value)?,
            modification: one.mod_revision.0,
        }))
    }

    /// Puts a value without a lease, if the key was modified last by that revision, 0 if there is
    /// no such key. False if it was not.
    pub(super) async fn set_if(
        &self,
        place: (Folder, &str),
        modification: u64,
        value: &[u8],
    ) -> Result<bool, LeaseError> {
        let put = self.put_if(place, modification, value, 0);
        Ok(put.await?.is_ok())
    }
}

fn is_set(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

fn read_file(setting: &'static str, path: &Path) -> Result<Vec<u8>, LeaseError> {
    fs::read(path).map_err(|error| wrong_file(setting, path, &error))
}

fn wrong_file(setting: &'static str, path: &Path, error: &dyn std::error::Error) -> LeaseError {
    let path = path.display();
    format!("{setting}: {path} is no PEM file that can be used: {error}").into()
}

/// The errors behind an error, without its address again.
fn chain(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    match text.is_empty() {
        true => error.to_string(),
        false => text,
    }
}

async fn read<T: for<'de> Deserialize<'de>>(
    path: &str,
    mut answer: reqwest::Response,
) -> Result<T, LeaseError> {
    let status = answer.status();
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        if body.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err(EtcdError::Unexpected {
                path: path.to_owned(),
                message: "the answer has more than 16 MiB".to_owned(),
            }
            .into());
        }
        body.extend_from_slice(&piece);
    }
    if !status.is_success() {
        let problem: Option<Problem> = serde_json::from_slice(&body).ok();
        let message = problem.map_or_else(|| status.to_string(), |problem| problem.message);
        return Err(EtcdError::Refused {
            path: path.to_owned(),
            message,
        }
        .into());
    }
    serde_json::from_slice(&body).map_err(|error| {
        EtcdError::Unexpected {
            path: path.to_owned(),
            message: error.to_string(),
        }
        .into()
    })
}

/// The entry of a node that says nothing which this one understands.
fn unknown() -> Entry {
    Entry {
        weight: 1,
        hash: RingHash::Off,
        tag: String::new(),
        announced: 0,
    }
}

/// The end of the range of keys that begin with `prefix`.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // It ends in a slash, so the next byte is a greater one.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

impl Registry for Etcd {
    async fn grant(&self, time: Duration) -> Result<u64, LeaseError> {
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        let seconds = seconds.max(LEASE_SECONDS_MIN);
        let request = json!({ "TTL": seconds.to_string() });
        let granted: Granted = self.ask("lease/grant", &request).await?;
        Ok(granted.id.0)
    }

    async fn renew(&self, lease: u64) -> Result<bool, LeaseError> {
        let request = json!({ "ID": lease.to_string() });
        let renewed: Renewed = self.ask("lease/keepalive", &request).await?;
        Ok(renewed.result.seconds.0 > 0)
    }

    async fn revoke(&self, lease: u64) -> Result<(), LeaseError> {
        let request = json!({ "ID": lease.to_string() });
        self.ask::<Value>("lease/revoke", &request).await?;
        Ok(())
    }

    async fn register(
        &self,
        name: &str,
        entry: &Entry,
        lease: u64,
    ) -> Result<Option<u64>, LeaseError> {
        let value = serde_json::to_vec(entry)?;
        let put = self.put_if((Folder::Members, name), 0, &value, lease);
        Ok(match put.await? {
            Ok(revision) => Some(revision),
            // An earlier call of this one has happened without an answer.
            Err(found) => found
                .filter(|found| found.lease.0 == lease)
                .map(|found| found.create_revision.0),
        })
    }

    async fn replace(&self, entry: &Registered, lease: u64) -> Result<bool, LeaseError> {
        let value = serde_json::to_vec(&entry.entry)?;
        let place = (Folder::Members, entry.name.as_str());
        let put = self.put_if(place, entry.modification, &value, lease);
        Ok(put.await?.is_ok())
    }

    async fn members(&self) -> Result<(u64, Vec<Registered>), LeaseError> {
        let path = self.path(Folder::Members);
        let request = json!({
            "key": STANDARD.encode(&path),
            "range_end": STANDARD.encode(end_of(&path)),
        });
        let found: Found = self.ask("kv/range", &request).await?;
        let mut members = Vec::with_capacity(found.kvs.len());
        for one in found.kvs {
            let key = String::from_utf8(STANDARD.decode(one.key)?)?;
            let name = key.strip_prefix(&path).unwrap_or(&key).to_owned();
            let value = STANDARD.decode(one.value)?;
            members.push(Registered {
                name,
                // One of another version of Floe agrees with none.
                entry: serde_json::from_slice(&value).unwrap_or_else(|_| unknown()),
                revision: one.create_revision.0,
                modification: one.mod_revision.0,
            });
        }
        Ok((found.header.revision.0, members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_etcd_are_read() {
        // As etcd 3.4 writes them.
        let granted: Granted = serde_json::from_str(
            r#"{"header":{"cluster_id":"1","revision":"1"},"ID":"7587898","TTL":"6"}"#,
        )
        .unwrap();
        assert_eq!(granted.id, Number(7_587_898));
        let renewed: Renewed =
            serde_json::from_str(r#"{"result":{"header":{},"ID":"7587898","TTL":"6"}}"#).unwrap();
        assert_eq!(renewed.result.seconds, Number(6));
        let ended: Renewed =
            serde_json::from_str(r#"{"result":{"header":{},"ID":"7587898"}}"#).unwrap();
        assert_eq!(ended.result.seconds, Number(0));
        let refused: Done =
            serde_json::from_str(r#"{"header":{"revision":"4"},"responses":[{}]}"#).unwrap();
        assert!(!refused.succeeded);
        assert!(refused.responses[0].response_range.is_none());
        let found: Found = serde_json::from_str(r#"{"header":{"revision":"7"}}"#).unwrap();
        assert_eq!((found.kvs.len(), found.header.revision), (0, Number(7)));
        let taken: Done = serde_json::from_str(
            r#"{"header":{"revision":"4"},"responses":[{"response_range":{"header":{},"kvs":[
            {"key":"eA==","create_revision":"3","mod_revision":"3","version":"1","lease":"42"}],
            "count":"1"}}]}"#,
        )
        .unwrap();
        let found = taken.responses[0].response_range.as_ref().unwrap();
        assert_eq!(found.kvs[0].lease, Number(42));
    }

    #[test]
    fn a_prefix_ends_before_its_neighbour() {
        assert_eq!(end_of("/floe/members/"), b"/floe/members0");
    }
}
