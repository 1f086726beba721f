//! The report of a started server on standard output.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use floe::object::Consistency;
use floe::origin::OriginKind;
use floe::tiny::{TinyEngine, TinySizes};
use floe::{Cache, Tiny};
use floe_core::ByteSize;
use floe_server::{Address, Addresses, S3Config, SignedBy};
use serde::Serialize;

use super::memory::Memory;
use crate::failure::Failure;
use crate::output;
use crate::settings::Plan;
use crate::style::Style;

/// The object in the command that a first start prints.
pub(super) const DEMO: (&str, &str, &str) = (
    "demo",
    "hello.txt",
    "Hello from Floe. Put files below this folder's parent and fetch them as /<bucket>/<key>.\n",
);

/// The report on standard output after the frontends have started.
pub(super) struct Announcement<'a> {
    pub(super) plan: &'a Plan,
    /// The description of the device of chunks.
    pub(super) device: &'a str,
    pub(super) cache: &'a Cache,
    pub(super) addresses: &'a Addresses,
    pub(super) memory: Memory,
    /// The demo object exists.
    pub(super) demo: bool,
}

/// The cache of tiny objects.
#[derive(Serialize)]
struct TinyPart {
    device: String,
    bytes: u64,
    engine: TinyEngine,
    formatted: bool,
    warm_objects: u64,
    /// Sizes of the engine `nemo`, and their costs.
    sizes: Option<TinySizes>,
}

impl TinyPart {
    fn of(tiny: &Tiny) -> Self {
        let (device, recovery) = (tiny.device(), tiny.recovery());
        TinyPart {
            device: device.describe(),
            bytes: device.geometry().total_capacity(),
            engine: tiny.engine(),
            formatted: recovery.formatted,
            warm_objects: recovery.objects,
            sizes: tiny.sizes().copied(),
        }
    }

    fn row(&self) -> Row {
        let state = match (self.formatted, self.warm_objects) {
            (true, _) => "new".to_owned(),
            (false, 0) => "empty".to_owned(),
            (false, objects) => format!("warm, {objects} objects"),
        };
        let TinyPart { device, engine, .. } = self;
        let size = ByteSize(self.bytes);
        let row = Row::new("tiny", format!("{device}, {size}, {engine} ({state})"));
        match &self.sizes {
            Some(sizes) => row.hint(sizes.to_string()),
            None => row,
        }
    }
}

/// A line of the report, with a command to try below it.
struct Row {
    name: &'static str,
    value: String,
    hint: String,
}

impl Row {
    fn new(name: &'static str, value: impl Into<String>) -> Self {
        Row {
            name,
            value: value.into(),
            hint: String::new(),
        }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        Row { hint, ..self }
    }

    fn text(&self, style: Style) -> String {
        let Row { name, value, hint } = self;
        let mut text = format!("  {name:<9} {value}\n");
        if !hint.is_empty() {
            text.push_str(&format!("  {:<9} {}\n", "", style.dim(hint)));
        }
        text
    }
}

/// The report for scripts.
#[derive(Serialize)]
struct Machine<'a> {
    version: &'a str,
    #[serde(flatten)]
    addresses: BTreeMap<String, Option<String>>,
    s3_anonymous: bool,
    device: &'a str,
    tiny: Option<TinyPart>,
    tiny_is_missing: bool,
    memory: &'a Memory,
    origin: String,
    consistency: Consistency,
    formatted: bool,
    warm_records: u64,
    pid: u32,
}

impl Announcement<'_> {
    /// Prints the report, as text or as a line of JSON.
    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            let recovery = self.cache.recovery().store;
            let machine = Machine {
                version: crate::VERSION,
                addresses: self.keyed_addresses(),
                s3_anonymous: self.is_anonymous(),
                device: self.device,
                tiny: self.cache.tiny().map(TinyPart::of),
                tiny_is_missing: self.cache.tiny_is_missing(),
                memory: &self.memory,
                origin: self.origin(),
                consistency: self.plan.consistency(),
                formatted: recovery.formatted,
                warm_records: recovery.records,
                pid: std::process::id(),
            };
            let line = serde_json::to_string(&machine)
                .map_err(|error| Failure::bug("the result has no JSON form").because(error))?;
            return output::print(&format!("{line}\n"));
        }
        output::print(&self.text())
    }

    fn text(&self) -> String {
        let style = Style::stdout();
        let title = style.bold(&format!("floe {} is serving", crate::VERSION));
        let rows: String = self.rows().iter().map(|row| row.text(style)).collect();
        format!("{title}\n\n{rows}\nCtrl-C stops it.\n")
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self
            .addresses
            .iter()
            .flat_map(|(frontend, address)| self.frontend(frontend, address))
            .collect();
        rows.push(Row::new("cache", self.chunks()));
        if let Some(tiny) = self.cache.tiny() {
            rows.push(TinyPart::of(tiny).row());
        }
        if self.cache.tiny_is_missing() {
            rows.push(Row::new("tiny", "cannot be opened; the log says why"));
        }
        rows.extend(self.node());
        rows.push(Row::new("memory", self.memory.text()));
        rows.push(Row::new("origin", self.origin()).hint(self.price_of_a_hit()));
        rows
    }

    /// The rows of a frontend at one of its addresses.
    fn frontend(&self, frontend: &'static str, address: &Address) -> Vec<Row> {
        let row = match (frontend, address) {
            ("s3", Address::Tcp(address)) => {
                let s3 = self.plan.server.s3.as_ref();
                let warning = match s3.is_some_and(S3Config::restricts_anonymous) {
                    true => "  anonymous: all clients of this address may do what s3.policies says",
                    false if self.is_anonymous() => {
                        "  anonymous: all clients of this address may read and write"
                    }
                    false => "",
                };
                let value = format!("{}://{address}{warning}", self.s3_scheme());
                Row::new("S3", value).hint(self.try_s3(*address))
            }
            ("oxcache", address) => Row::new("OxCache", address.to_string())
                .hint("length-prefixed bincode frames; point an OxCache client at it"),
            ("memcached", Address::Tcp(tcp)) => {
                Row::new("memcached", address.to_string()).hint(self.try_memcached(*tcp))
            }
            ("nbd", address) => {
                let uri = match address {
                    Address::Tcp(address) => format!("nbd://{}", local(*address)),
                    Address::Unix(path) => format!("nbd+unix:///?socket={}", path.display()),
                };
                let hint = format!("nbdinfo --list '{uri}'");
                Row::new("NBD", uri).hint(hint)
            }
            ("admin", Address::Tcp(address)) => {
                let admin = self.plan.server.admin.as_ref();
                let scheme = scheme(admin.map(|admin| admin.tls_certificate.as_path()));
                let local = local(*address);
                return vec![
                    Row::new("metrics", format!("{scheme}://{address}"))
                        .hint(format!("curl {scheme}://{local}/metrics")),
                    Row::new("health", format!("{scheme}://{address}/health"))
                        .hint(format!("curl {scheme}://{local}/health")),
                ];
            }
            (name, address) => Row::new(name, address.to_string()),
        };
        vec![row]
    }

    /// The place of this server among several.
    fn node(&self) -> Option<Row> {
        let has_peers = self.plan.server.peers.is_some();
        let place = self
            .plan
            .server
            .node
            .as_ref()
            .and_then(|node| node.summary());
        let row = Row::new("node", place.or(has_peers.then(|| "with peers".into()))?);
        Some(match self.plan.consistency() {
            Consistency::Ttl => row.hint(
                "object.consistency = \"ttl\" is not coherent over several nodes; \"etag\" is",
            ),
            _ => row.hint("floe status --nodes ADDRESS,… shows all of them"),
        })
    }

    fn chunks(&self) -> String {
        let recovery = self.cache.recovery().store;
        let state = match recovery.formatted {
            true => "new".to_owned(),
            false => format!("warm, {} chunks", recovery.records),
        };
        format!("{} ({state})", self.device)
    }

    /// Addresses by frontend. The key of a Unix socket beside TCP ends in `_path`.
    fn keyed_addresses(&self) -> BTreeMap<String, Option<String>> {
        let always = [
            "s3",
            "admin",
            "oxcache",
            "memcached",
            "memcached_path",
            "nbd",
            "nbd_path",
        ];
        let mut keyed: BTreeMap<_, _> = always.map(|key| (key.to_owned(), None)).into();
        for (frontend, address) in self.addresses.iter() {
            let key = match address {
                Address::Unix(_) if frontend != "oxcache" => format!("{frontend}_path"),
                _ => frontend.to_owned(),
            };
            keyed.insert(key, Some(address.to_string()));
        }
        keyed
    }

    fn is_anonymous(&self) -> bool {
        self.plan
            .server
            .s3
            .as_ref()
            .is_some_and(|s3| s3.anonymous.is_served())
    }

    fn s3_scheme(&self) -> &'static str {
        let s3 = self.plan.server.s3.as_ref();
        scheme(s3.map(|s3| s3.tls_certificate.as_path()))
    }

    fn try_s3(&self, address: SocketAddr) -> String {
        let url = format!("{}://{}", self.s3_scheme(), local(address));
        let object = match self.demo {
            true => format!("{}/{}", DEMO.0, DEMO.1),
            false => "BUCKET/KEY".to_owned(),
        };
        if self.is_anonymous() {
            return format!("curl {url}/{object}");
        }
        let region = self
            .plan
            .server
            .s3
            .as_ref()
            .map_or("us-east-1", |s3| &s3.region);
        let (at, url) = match self.has_clients_credentials() {
            // The signature names the origin's host.
            true => {
                let endpoint = self.plan.origin.endpoint.as_deref().unwrap_or_default();
                let host = endpoint.split_once("//").map_or(endpoint, |(_, host)| host);
                let to = format!("--connect-to ::{} ", local(address));
                (to, format!("{}://{host}", self.s3_scheme()))
            }
            false => (String::new(), url),
        };
        format!("curl {at}--aws-sigv4 aws:amz:{region}:s3 --user ACCESS:SECRET {url}/{object}")
    }

    fn has_clients_credentials(&self) -> bool {
        let s3 = self.plan.server.s3.as_ref();
        s3.is_some_and(|s3| s3.credentials == SignedBy::Client)
    }

    fn try_memcached(&self, address: SocketAddr) -> String {
        let local = local(address);
        let config = self.plan.server.memcached.as_ref();
        if config.is_some_and(|config| !config.tls_certificate.as_os_str().is_empty()) {
            return format!("openssl s_client -connect {local}");
        }
        let (host, port) = (local.ip(), local.port());
        format!(
            "printf 'set hello 0 0 5\\r\\nworld\\r\\nget hello\\r\\nquit\\r\\n' | nc {host} {port}"
        )
    }

    /// The cost of a hit at the origin, and the setting that lowers it.
    fn price_of_a_hit(&self) -> String {
        let (each, others) = match (self.plan.consistency(), self.plan.origin.kind) {
            _ if self.has_clients_credentials() => {
                return "the origin judges each read by its client's own signature".into();
            }
            (Consistency::Ttl | Consistency::Immutable, _) => return String::new(),
            (Consistency::Events, _) => {
                return "each hit asks the origin until notifications arrive".into();
            }
            (Consistency::Etag, OriginKind::Directory) => {
                ("looks at the file", "\"ttl\" or \"immutable\" look")
            }
            (Consistency::Etag, _) => (
                "asks the origin",
                "\"events\", \"ttl\" or \"immutable\" ask",
            ),
        };
        format!("each hit {each} once; object.consistency = {others} less often")
    }

    fn origin(&self) -> String {
        let origin = &self.plan.origin;
        match (origin.kind, &origin.root, &origin.endpoint) {
            (OriginKind::Directory, Some(root), _) => {
                format!("{}/<bucket>/<key>", root.display())
            }
            (kind, _, Some(endpoint)) => format!("{kind:?} at {endpoint}").to_lowercase(),
            (kind, _, None) => format!("{kind:?}").to_lowercase(),
        }
    }
}

/// The scheme of a frontend with this certificate.
fn scheme(certificate: Option<&Path>) -> &'static str {
    match certificate.is_some_and(|path| !path.as_os_str().is_empty()) {
        true => "https",
        false => "http",
    }
}

fn local(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
