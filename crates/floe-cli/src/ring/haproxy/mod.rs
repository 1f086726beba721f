//! HAProxy 2.6: backends of Floe nodes, for S3 in mode `http` and for memcached in mode `tcp`.

mod sections;
mod words;

use super::finding::{Finding, Place, Severity};
use super::nodes::{Consistency, Nodes};
use super::nutcracker::Pool;
pub(crate) use sections::{Backend, Sections, parse, recognizes};
use sections::{Parameters, Server};

/// The port that tells a backend of memcached from other backends in mode `tcp`.
const MEMCACHED_PORT: u16 = 11211;

/// The path that says if a node serves.
const READY_PATH: &str = "/ready";

/// The protocol of the nodes of a backend.
enum Protocol {
    S3,
    Memcached,
    Unknown,
}

/// The part of a request that selects its node in mode `http`.
#[derive(PartialEq, Eq)]
enum Key<'a> {
    /// The whole path, in one form.
    Path,
    /// The path, or scheme, host and path if the client sends them.
    PathOrUri,
    /// The query too.
    Query,
    /// Only the start of the path.
    Prefix,
    /// An expression that may or may not be the path.
    Expression(&'a str),
    /// Not the object.
    Other,
}

/// The findings in one configuration.
pub(crate) fn findings(sections: &Sections, file: &str, nodes: &Nodes) -> Vec<Finding> {
    let mut found = Vec::new();
    for backend in sections.backends.iter().filter(|one| one.servers.len() > 1) {
        match backend.protocol(sections) {
            Protocol::S3 => found.extend(s3(backend, file, nodes)),
            Protocol::Memcached => found.extend(memcached(backend, file, nodes)),
            Protocol::Unknown => found.push(unknown(backend, file)),
        }
    }
    found.extend(conditions(sections, file));
    found
}

impl Backend {
    fn protocol(&self, sections: &Sections) -> Protocol {
        if self.settings.http {
            return Protocol::S3;
        }
        let routed = |names: &[String]| names.contains(&self.name);
        let ports = sections
            .frontends
            .iter()
            .filter(|one| routed(&one.backends));
        let ports = ports.flat_map(|one| &one.ports).chain(&self.ports).copied();
        let mut ports = ports.chain(self.servers.iter().filter_map(|one| one.port));
        match ports.any(|port| port == MEMCACHED_PORT) {
            true => Protocol::Memcached,
            false => Protocol::Unknown,
        }
    }

    fn place<'a>(&'a self, file: &'a str, setting: &str) -> Place<'a> {
        Place {
            file,
            line: *self.settings.lines.get(setting).unwrap_or(&self.line),
            kind: self.kind,
            name: &self.name,
        }
    }

    /// The servers that get requests while they are up.
    fn active(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(|one| !one.parameters.backup)
    }

    fn is_spread(&self) -> bool {
        self.active().nth(1).is_some()
    }

    fn has_backup(&self) -> bool {
        self.servers.iter().any(|one| one.parameters.backup)
    }

    /// True if a server can be marked down.
    fn is_checked(&self) -> bool {
        self.active().any(|one| one.parameters.checked)
    }

    fn balance(&self) -> &str {
        self.settings
            .balance
            .first()
            .map_or("roundrobin", String::as_str)
    }

    fn key(&self) -> Key<'_> {
        let arguments = self.settings.balance.get(1..).unwrap_or_default();
        let has = |word: &str| arguments.iter().any(|argument| argument == word);
        match self.balance() {
            "uri" if has("whole") => Key::Query,
            "uri" if has("len") || has("depth") => Key::Prefix,
            "uri" if has("path-only") => Key::Path,
            "uri" => Key::PathOrUri,
            "hash" => arguments.first().map_or(Key::Other, |one| expression(one)),
            _ => Key::Other,
        }
    }

    fn is_consistent(&self) -> bool {
        self.settings
            .hash_type
            .first()
            .is_some_and(|method| method == "consistent")
    }

    fn spills_hot(&self) -> bool {
        self.settings.balance_factor > 0 && self.is_consistent()
    }
}

/// The key of `balance hash`.
fn expression(text: &str) -> Key<'_> {
    let fetch = text.split(['(', ',']).next().unwrap_or_default();
    match fetch {
        "path" | "base" if text == fetch => Key::Path,
        "pathq" | "url" | "capture.req.uri" => Key::Query,
        "src" | "rand" | "url_param" | "urlp" => Key::Other,
        _ => Key::Expression(text),
    }
}

/// The findings in a backend of S3 nodes.
fn s3(backend: &Backend, file: &str, nodes: &Nodes) -> Vec<Finding> {
    let mut found = Vec::new();
    if backend.is_spread() {
        found.extend(key(backend, file));
        found.extend(hash_type(backend, file));
        found.extend(persistence(backend, file));
        found.extend(hot_objects(backend, file));
        found.extend(retries(backend, file));
    }
    found.extend(health(backend, file));
    found.extend(consistency(backend, file, nodes));
    found
}

fn key(backend: &Backend, file: &str) -> Option<Finding> {
    let place = backend.place(file, "balance");
    let cure = "set `balance uri path-only`";
    match backend.key() {
        Key::Path => None,
        Key::Other => Some(place.risk(
            format!(
                "`balance {}` does not go by path: every node keeps a copy of an object, so hits are fewer and space is lost",
                backend.balance()
            ),
            cure,
        )),
        Key::PathOrUri => Some(place.risk(
            "`balance uri` without `path-only` hashes scheme and host too if a client sends them, as HTTP/2 does: one \
             object has two nodes",
            cure,
        )),
        Key::Query => Some(place.risk(
            format!(
                "`balance {}` hashes the query too: each presigned URL, part number and version has its own node",
                backend.settings.balance.join(" ")
            ),
            cure,
        )),
        Key::Prefix => Some(place.risk(
            "`len` and `depth` hash the start of the path: all objects of a folder share one node",
            cure,
        )),
        Key::Expression(text) => Some(place.note(
            format!("`balance hash {text}` was not examined"),
            "check that it is the same for all requests of an object, and differs between objects",
        )),
    }
}

/// HAProxy's default, `map-based`, selects a node by its position in an array of live nodes.
fn hash_type(backend: &Backend, file: &str) -> Option<Finding> {
    if backend.key() == Key::Other || backend.is_consistent() {
        return None;
    }
    let method = match backend.settings.hash_type.first() {
        Some(method) => format!("`hash-type {method}`"),
        None => "`hash-type` is not set: its default, `map-based`,".to_owned(),
    };
    Some(backend.place(file, "hash-type").risk(
        format!("{method} moves nearly all objects when a node dies or returns"),
        "set `hash-type consistent`",
    ))
}

fn persistence(backend: &Backend, file: &str) -> Option<Finding> {
    let setting = backend.settings.persistence?;
    Some(backend.place(file, "persistence").risk(
        format!("`{setting}` keeps a client at its first node, before `balance`: every node keeps a copy of an object"),
        format!("leave out `{setting}`"),
    ))
}

fn hot_objects(backend: &Backend, file: &str) -> Option<Finding> {
    let factor = backend.settings.balance_factor;
    backend.spills_hot().then(|| {
        backend.place(file, "hash-balance-factor").note(
            format!(
                "`hash-balance-factor {factor}` sends requests of a node above {factor}% of the mean load to others: \
                 they keep copies of its objects"
            ),
            "none is needed in modes `etag` and `immutable`",
        )
    })
}

/// The fate of a request whose node does not answer.
fn retries(backend: &Backend, file: &str) -> Option<Finding> {
    let settings = &backend.settings;
    let place = backend.place(file, "redispatch");
    if settings.redispatch && settings.retries != Some(0) {
        return None;
    }
    let retried = match settings.retries {
        Some(0) => "is not retried (`retries 0`)",
        _ => "is retried at the same node, because `option redispatch` is not set",
    };
    Some(place.note(
        format!("until a dead node is marked down, a failed connection to it {retried}"),
        "set `option redispatch`, unless `object.consistency` is `ttl`",
    ))
}

fn health(backend: &Backend, file: &str) -> Option<Finding> {
    let place = backend.place(file, "httpchk");
    let checked = |one: &Server| one.parameters.checked;
    if let Some(server) = backend.active().find(|one| !checked(one)) {
        return Some(place.risk(
            format!(
                "server `{}` has no `check`: failed requests alone find its death",
                server.name
            ),
            format!("set `default-server check`, and `option httpchk GET {READY_PATH}`"),
        ));
    }
    if !backend.settings.http_check {
        return Some(place.risk(
            "without `option httpchk`, a check is a connection: failed requests alone find a node that accepts but cannot \
             serve",
            format!("set `option httpchk GET {READY_PATH}`"),
        ));
    }
    let ready = |uri: &String| uri.split('?').next() == Some(READY_PATH);
    (!backend.settings.check_uris.iter().any(ready)).then(|| {
        place.note(
            format!(
                "the check does not ask for {READY_PATH}, so it misses nodes that start or drain"
            ),
            format!("set `option httpchk GET {READY_PATH}`"),
        )
    })
}

/// In mode `ttl` a node serves its copy after a write through another node.
fn consistency(backend: &Backend, file: &str, nodes: &Nodes) -> Option<Finding> {
    let place = backend.place(file, "balance");
    let ways = ways_to_other_nodes(backend);
    let several = ways.join(", ");
    match nodes.consistency {
        Some(Consistency::Etag | Consistency::Immutable) => None,
        Some(Consistency::Ttl) if ways.is_empty() => marked_down(backend, file),
        Some(Consistency::Ttl) => Some(place.lies(
            format!(
                "with `object.consistency = \"ttl\"` a node serves its copy for `object.ttl_seconds` after a write \
                 through another node; what sends an object to other nodes: {several}"
            ),
            "set `object.consistency = \"etag\"`, or `immutable` for objects that never change",
        )),
        Some(Consistency::Events) => (backend.is_spread() || backend.has_backup()).then(|| {
            place.risk(
                "with `object.consistency = \"events\"` a node serves its copy until the notification of a write through \
                 another node arrives",
                "send all notifications to every node, or set `object.consistency = \"etag\"`",
            )
        }),
        None => (!ways.is_empty() || backend.is_checked()).then(|| {
            place.note(
                "objects can have copies at several nodes: right in modes `etag` and `immutable`, stale for \
                 `object.ttl_seconds` in mode `ttl`",
                "name the mode of the nodes: --consistency",
            )
        }),
    }
}

/// The settings that send requests of one object to several nodes that are up.
fn ways_to_other_nodes(backend: &Backend) -> Vec<&str> {
    let settings = &backend.settings;
    let spread = backend.is_spread();
    let several = spread || backend.has_backup();
    let ways = [
        (
            "`balance`",
            spread && !matches!(backend.key(), Key::Path | Key::Prefix),
        ),
        ("`hash-balance-factor`", spread && backend.spills_hot()),
        (
            "`option redispatch`",
            several && settings.redispatch && settings.retries != Some(0),
        ),
    ];
    let ways = ways
        .into_iter()
        .filter_map(|(way, used)| used.then_some(way));
    ways.chain(settings.persistence.filter(|_| spread))
        .collect()
}

/// In mode `ttl`, checks mark a node down, and its objects go to the others or to a backup.
fn marked_down(backend: &Backend, file: &str) -> Option<Finding> {
    let what = match backend.has_backup() {
        true => "a `backup` server takes the place of servers that are marked down",
        false => "requests of a server that is marked down go to other servers",
    };
    backend.is_checked().then(|| {
        backend.place(file, "backup").lies(
            format!(
                "{what}. Writes go elsewhere meanwhile, and with `object.consistency = \"ttl\"` the server returns with \
                 its old copies"
            ),
            "set `object.consistency = \"etag\"`, or `immutable` for objects that never change",
        )
    })
}

/// The findings in a backend of memcached nodes.
fn memcached(backend: &Backend, file: &str, nodes: &Nodes) -> Vec<Finding> {
    let mut found = Vec::new();
    if backend.is_spread() {
        found.push(spread(backend, file, nodes));
    }
    if backend.has_backup() {
        found.push(backup(backend, file, nodes));
    }
    found
}

fn spread(backend: &Backend, file: &str, nodes: &Nodes) -> Finding {
    let active = backend.active().count();
    let (severity, harm) = match nodes.know_ring() {
        true => (
            Severity::Risk,
            format!(
                "nodes refuse keys that they do not own, so about {} of {active} requests miss or fail",
                active - 1
            ),
        ),
        false => (Severity::Lies, format!("a key has up to {active} owners")),
    };
    backend.place(file, "balance").finding(
        severity,
        format!(
            "`balance {}` selects a server for each connection, because HAProxy does not read memcached's keys: {harm}",
            backend.balance()
        ),
        "let clients or nutcracker hash keys, and give each node a backend with one server. If these servers are \
         nutcracker proxies with the same ring, all is well",
    )
}

fn backup(backend: &Backend, file: &str, nodes: &Nodes) -> Finding {
    let place = backend.place(file, "backup");
    let what = "a `backup` server takes the place of servers that are marked down";
    if !backend.is_checked() {
        return place.note(
            "no server has `check`, so none is marked down, and the `backup` servers are not used",
            "leave out the `backup` servers",
        );
    }
    match nodes.know_ring() {
        true => place.note(
            format!(
                "{what}, but refuses keys that it does not own: reads miss and writes fail until the servers are back. \
                 With `node.etcd` other nodes take the keys over once the leases have ended"
            ),
            "none is needed, because no read is stale",
        ),
        false => place.lies(
            format!(
                "{what}. They return with their old values, and the backup keeps what it took until they fail again"
            ),
            "leave out the `backup` servers, or let the nodes know the ring: `node.ring_hash` with `node.ring` or \
             `node.etcd`",
        ),
    }
}

fn unknown(backend: &Backend, file: &str) -> Finding {
    backend.place(file, "balance").note(
        format!(
            "in mode `tcp` HAProxy reads neither paths nor keys; with servers and `bind` lines on other ports than \
             {MEMCACHED_PORT}, this backend was not examined"
        ),
        "for Floe's S3, set `mode http`; for its memcached, give the backend one server",
    )
}

fn conditions(sections: &Sections, file: &str) -> Option<Finding> {
    let line = sections.condition_line?;
    Some(Finding {
        severity: Severity::Note,
        place: format!("{file}:{line}"),
        problem: "all branches of `.if` were read, as if each were true".to_owned(),
        cure: "examine a configuration without conditions".to_owned(),
    })
}

/// The settings that determine the node of an object.
#[derive(PartialEq, Eq)]
struct Ring<'a> {
    balance: &'a [String],
    hash_type: &'a [String],
    /// The identifier, the address and the weight of each server.
    servers: Vec<(u64, &'a str, u64)>,
}

impl Backend {
    fn ring(&self) -> Ring<'_> {
        let active = |(_, one): &(u64, &Server)| !one.parameters.backup;
        // Without `id`, the position of a server is its identifier.
        let servers = (1..)
            .zip(&self.servers)
            .filter(active)
            .map(|(position, one)| {
                let Parameters { id, weight, .. } = one.parameters;
                (
                    id.unwrap_or(position),
                    one.address.as_str(),
                    weight.unwrap_or(1),
                )
            });
        Ring {
            balance: &self.settings.balance,
            hash_type: &self.settings.hash_type,
            servers: servers.collect(),
        }
    }

    /// True if the owner of an object is determined by its name.
    fn is_ring(&self) -> bool {
        self.settings.http && self.is_spread() && self.key() != Key::Other
    }
}

/// The findings between backends of S3: one server in two different rings. Each backend has
/// at most one.
pub(crate) fn conflicts(backends: &[(&str, &Backend)], nodes: &Nodes) -> Vec<Finding> {
    let rings: Vec<_> = backends.iter().filter(|(_, one)| one.is_ring()).collect();
    let mut found = Vec::new();
    for (index, (file, backend)) in rings.iter().enumerate() {
        let mut earlier = rings[..index].iter();
        found.extend(earlier.find_map(|(file_before, before)| {
            let shared = backend.active().find(|one| before.has(&one.address))?;
            let other = || before.place(file_before, "balance").to_string();
            (backend.ring() != before.ring())
                .then(|| conflict(&backend.place(file, "balance"), shared, &other(), nodes))
        }));
    }
    found
}

fn conflict(place: &Place<'_>, shared: &Server, other: &str, nodes: &Nodes) -> Finding {
    let severity = match nodes.consistency {
        Some(Consistency::Ttl) => Severity::Lies,
        _ => Severity::Risk,
    };
    place.finding(
        severity,
        format!(
            "server {} is in another ring too ({other}): an object has two nodes",
            shared.address
        ),
        "give both the same `balance` and `hash-type`, and the same servers with the same order, `id` and `weight`",
    )
}

impl Backend {
    fn has(&self, address: &str) -> bool {
        self.active().any(|one| one.address == address)
    }
}

/// The findings between HAProxy and nutcracker: a way to a node past its ring. Each backend
/// has at most one.
pub(crate) fn detours(backends: &[(&str, &Backend)], pools: &[(&str, &Pool)]) -> Vec<Finding> {
    let tcp = backends.iter().filter(|(_, one)| !one.settings.http);
    tcp.filter_map(|(file, backend)| {
        let mut rings = pools.iter().filter(|(_, pool)| pool.is_ring());
        rings.find_map(|(file_of_pool, pool)| {
            let shared = backend.servers.iter().find(|one| pool.has(&one.address))?;
            let pool = format!("`{}` ({file_of_pool})", pool.name());
            Some(detour(&backend.place(file, "server"), shared, &pool))
        })
    })
    .collect()
}

fn detour(place: &Place<'_>, shared: &Server, pool: &str) -> Finding {
    place.lies(
        format!(
            "server {} is a node of nutcracker's pool {pool}: what is written here passes the ring, so a key has two \
             owners",
            shared.address
        ),
        "send the requests of this backend to nutcracker",
    )
}

#[cfg(test)]
mod tests;
