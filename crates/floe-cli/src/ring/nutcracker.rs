//! nutcracker (twemproxy 0.5): a YAML map of pools.
//!
//! All scalars are text, as nutcracker reads them: `yes` is no boolean. Events are read
//! one after the other, to a fixed depth, so that nested input cannot exhaust the stack.

use std::collections::{BTreeMap, BTreeSet};

use floe::membership::Member;
use saphyr_parser::{Event, Parser, Span, StrInput};

use super::finding::{BadLine, Finding, Place, Severity};
use super::nodes::{Nodes, RingHash};
use super::shares::PoolShares;

/// The port that nutcracker leaves out of the labels of ketama.
const PORT_WITHOUT_LABEL: &str = "11211";

/// The default of `hash`, and the only hash that nodes know.
const HASH: &str = "fnv1a_64";

/// The settings of a pool in version 0.5.
const SETTINGS: [&str; 18] = [
    "auto_eject_hosts",
    "backlog",
    "client_connections",
    "distribution",
    "hash",
    "hash_tag",
    "listen",
    "preconnect",
    "redis",
    "redis_auth",
    "redis_db",
    "reuseport",
    "server_connections",
    "server_failure_limit",
    "server_retry_timeout",
    "servers",
    "tcpkeepalive",
    "timeout",
];

/// How a pool maps hashes to servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Distribution {
    #[default]
    Ketama,
    Modula,
    Random,
}

/// A pool, with nutcracker's defaults for what is not set.
#[derive(Debug)]
pub(super) struct Pool {
    name: String,
    line: usize,
    /// The lines of the settings.
    lines: BTreeMap<String, usize>,
    distribution: Distribution,
    hash: String,
    hash_tag: String,
    /// `None`: waits for ever.
    timeout_ms: Option<u64>,
    ejects: bool,
    failure_limit: u64,
    retry_ms: u64,
    connections: u64,
    redis: bool,
    servers: Vec<Server>,
}

/// A line of `servers`.
#[derive(Debug)]
struct Server {
    /// The text that ketama hashes: the name, or else host and port.
    label: String,
    /// Host and port, or the path of a socket.
    address: String,
    weight: u64,
    named: bool,
}

impl Server {
    fn seat(&self, labelled: bool) -> Seat<'_> {
        Seat {
            label: if labelled { &self.label } else { "" },
            address: &self.address,
            weight: self.weight,
        }
    }
}

/// The settings that determine the owner of a key.
#[derive(PartialEq, Eq)]
struct Ring<'a> {
    distribution: Distribution,
    hash: &'a str,
    hash_tag: &'a str,
    servers: Vec<Seat<'a>>,
}

/// A server's part in a ring.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Seat<'a> {
    /// Empty if the distribution does not hash it.
    label: &'a str,
    address: &'a str,
    weight: u64,
}

impl Pool {
    fn new(name: String, line: usize) -> Self {
        Pool {
            name,
            line,
            lines: BTreeMap::new(),
            distribution: Distribution::default(),
            hash: HASH.to_owned(),
            hash_tag: String::new(),
            timeout_ms: None,
            ejects: false,
            failure_limit: 2,
            retry_ms: 30_000,
            connections: 1,
            redis: false,
            servers: Vec::new(),
        }
    }

    /// True if a server of the pool has this address.
    pub(super) fn has(&self, address: &str) -> bool {
        self.servers.iter().any(|server| server.address == address)
    }

    /// True if keys have several possible owners.
    pub(super) fn is_ring(&self) -> bool {
        self.servers.len() > 1
    }

    /// True if nodes with this hash can compute the owners that the pool computes.
    fn is_known(&self, ring_hash: RingHash) -> bool {
        ring_hash == RingHash::Nutcracker
            && self.distribution == Distribution::Ketama
            && self.hash == HASH
    }

    /// The shares of the servers, if they are spread by ketama.
    pub(super) fn shares(&self) -> Option<PoolShares> {
        let member = |server: &Server| Member {
            name: server.label.clone(),
            // nutcracker's own are no larger.
            weight: u32::try_from(server.weight).unwrap_or(u32::MAX),
        };
        let members: Vec<Member> = self.servers.iter().map(member).collect();
        let is_ketama = self.distribution == Distribution::Ketama;
        is_ketama.then(|| PoolShares::new(&self.name, &members))
    }

    /// The name of the pool.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn place<'a>(&'a self, file: &'a str, setting: &str) -> Place<'a> {
        Place {
            file,
            line: self.lines.get(setting).copied().unwrap_or(self.line),
            kind: "pool",
            name: &self.name,
        }
    }

    fn ring(&self) -> Ring<'_> {
        let ketama = self.distribution == Distribution::Ketama;
        let mut servers: Vec<_> = self.servers.iter().map(|one| one.seat(ketama)).collect();
        // The order of the list matters to modula alone.
        if ketama {
            servers.sort();
        }
        Ring {
            distribution: self.distribution,
            hash: &self.hash,
            hash_tag: &self.hash_tag,
            servers,
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "distribution" => self.distribution = distribution(value)?,
            "hash" => value.clone_into(&mut self.hash),
            "hash_tag" => value.clone_into(&mut self.hash_tag),
            // The proxy arms no timer for 0.
            "timeout" => self.timeout_ms = Some(number(value)?).filter(|ms| *ms > 0),
            "auto_eject_hosts" => self.ejects = boolean(value)?,
            "server_failure_limit" => self.failure_limit = number(value)?,
            "server_retry_timeout" => self.retry_ms = number(value)?,
            "server_connections" => self.connections = number(value)?,
            "redis" => self.redis = boolean(value)?,
            "servers" => return Err("`servers` is not a list".to_owned()),
            _ => {}
        }
        Ok(())
    }
}

fn distribution(value: &str) -> Result<Distribution, String> {
    match value {
        "ketama" => Ok(Distribution::Ketama),
        "modula" => Ok(Distribution::Modula),
        "random" => Ok(Distribution::Random),
        _ => Err(format!(
            "`distribution` is `{value}`: expected `ketama`, `modula` or `random`"
        )),
    }
}

fn boolean(value: &str) -> Result<bool, String> {
    value
        .parse()
        .map_err(|_| format!("`{value}` is neither `true` nor `false`"))
}

fn number(value: &str) -> Result<u64, String> {
    value
        .parse()
        .map_err(|_| format!("`{value}` is not a number"))
}

/// Reads `host:port:weight [name]` or `/socket:weight [name]` from its end.
fn server(text: &str) -> Option<Server> {
    let (address, name) = match text.rsplit_once(' ') {
        Some((address, name)) => (address, Some(name)),
        None => (text, None),
    };
    let (address, weight) = address.rsplit_once(':')?;
    let weight = weight.parse().ok().filter(|weight| *weight > 0)?;
    let address = address.to_ascii_lowercase();
    let label = match (address.rsplit_once(':'), name) {
        (_, Some(name)) => name,
        _ if address.starts_with('/') => &address,
        (Some((host, PORT_WITHOUT_LABEL)), None) => host,
        (Some(_), None) => &address,
        (None, None) => return None,
    };
    Some(Server {
        label: label.to_owned(),
        weight,
        named: name.is_some(),
        address,
    })
}

/// True if the text looks like a YAML map: its first statement is a key.
pub(super) fn recognizes(text: &str) -> bool {
    let mut events = Events::new(text);
    for _ in 0..3 {
        match events.next() {
            Ok((Event::MappingStart(..), _)) => return true,
            Ok((Event::StreamStart | Event::DocumentStart(_), _)) => {}
            // A map whose start is not valid YAML is still a map to its author.
            Err(_) => return text.lines().any(|line| line.trim_end().ends_with(':')),
            Ok(_) => return false,
        }
    }
    false
}

/// Reads the pools.
pub(super) fn parse(text: &str) -> Result<Vec<Pool>, BadLine> {
    let mut events = Events::new(text);
    let mut pools: Vec<Pool> = Vec::new();
    loop {
        match events.next()? {
            (Event::StreamStart | Event::DocumentStart(_) | Event::MappingStart(..), _) => {}
            (Event::Scalar(name, ..), line) => {
                if pools.iter().any(|pool| pool.name == name) {
                    return Err(BadLine::new(line, format!("a second pool `{name}`")));
                }
                pools.push(pool(&mut events, name.into_owned(), line)?);
            }
            (Event::MappingEnd, _) => break,
            (_, line) => return Err(BadLine::new(line, "expected the name of a pool")),
        }
    }
    match events.next()? {
        (Event::DocumentEnd, _) => {}
        (_, line) => return Err(BadLine::new(line, "expected one map of pools")),
    }
    match events.next()? {
        (Event::StreamEnd, _) => Ok(pools),
        (_, line) => Err(BadLine::new(line, "a second document")),
    }
}

fn pool(events: &mut Events<'_>, name: String, line: usize) -> Result<Pool, BadLine> {
    let mut pool = Pool::new(name, line);
    let (Event::MappingStart(..), _) = events.next()? else {
        let problem = format!("pool `{}` is not a map of settings", pool.name);
        return Err(BadLine::new(line, problem));
    };
    loop {
        let (key, line) = match events.next()? {
            (Event::Scalar(key, ..), line) => (key, line),
            (Event::MappingEnd, _) => return Ok(pool),
            (_, line) => return Err(BadLine::new(line, "expected the name of a setting")),
        };
        if pool.lines.insert(key.to_string(), line).is_some() {
            return Err(BadLine::new(line, format!("`{key}` is set twice")));
        }
        match events.next()? {
            (Event::Scalar(value, ..), _) => pool.set(&key, &value),
            (Event::SequenceStart(..), _) if key == "servers" => {
                pool.servers = servers(events)?;
                Ok(())
            }
            _ => Err(format!("`{key}` has another form than nutcracker reads")),
        }
        .map_err(|problem| BadLine::new(line, problem))?;
    }
}

fn servers(events: &mut Events<'_>) -> Result<Vec<Server>, BadLine> {
    let mut servers = Vec::new();
    loop {
        match events.next()? {
            (Event::SequenceEnd, _) => return Ok(servers),
            (Event::Scalar(text, ..), line) => match server(&text) {
                Some(server) => servers.push(server),
                None => {
                    let expected = "expected `host:port:weight name` or `/socket:weight name`";
                    return Err(BadLine::new(
                        line,
                        format!("server `{text}`: {expected}, and a weight above 0"),
                    ));
                }
            },
            (_, line) => return Err(BadLine::new(line, "expected a server")),
        }
    }
}

/// The events of a YAML text, each with its line.
struct Events<'a>(Parser<'a, StrInput<'a>>);

impl<'a> Events<'a> {
    fn new(text: &'a str) -> Self {
        Events(Parser::new_from_str(text))
    }

    fn next(&mut self) -> Result<(Event<'a>, usize), BadLine> {
        match self.0.next_event() {
            Some(Ok((event, Span { start, .. }))) => Ok((event, start.line())),
            Some(Err(error)) => Err(BadLine::new(
                error.marker().line(),
                format!("invalid YAML: {}", error.info()),
            )),
            None => Err(BadLine::new(0, "the text ends early")),
        }
    }
}

/// The findings in one pool.
pub(super) fn findings(pool: &Pool, file: &str, nodes: &Nodes) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(ejection(pool, file, nodes));
    found.extend(owners(pool, file, nodes));
    found.extend(patience(pool, file));
    found.extend(connections(pool, file));
    found.push(protocol(pool, file));
    found.extend(labels(pool, file));
    found.extend(unknown(pool, file));
    found
}

/// Keys of an ejected server go to the others of the pool.
fn ejection(pool: &Pool, file: &str, nodes: &Nodes) -> Option<Finding> {
    if !pool.ejects || !pool.is_ring() {
        return None;
    }
    let at_once = "refused and closed connections count at once";
    let slow = match pool.timeout_ms {
        Some(ms) => format!("{at_once}, unanswered requests after {ms} ms"),
        None => at_once.to_owned(),
    };
    let what = format!(
        "`auto_eject_hosts` sends a server's keys to other servers for {} ms after {} failures in a row ({slow})",
        pool.retry_ms, pool.failure_limit
    );
    let place = pool.place(file, "auto_eject_hosts");
    Some(match nodes.know_ring() {
        true => place.note(
            format!(
                "{what}. The others refuse these keys: reads miss and writes fail until the server is back. With \
                 `node.etcd` they take the keys over once the server's lease has ended"
            ),
            "none is needed if the nodes know the names, weights and `hash_tag` of this pool",
        ),
        false => place.lies(
            format!(
                "{what}. The server returns with its old values, and the others keep what they took until the next \
                 ejection"
            ),
            format!(
                "set `auto_eject_hosts: false`, or let the nodes know the ring: `node.ring_hash = \"nutcracker\"` with \
                 `node.ring` or `node.etcd`, and in this pool `distribution: ketama` and `hash: {HASH}`"
            ),
        ),
    })
}

/// The owners of keys, as the pool computes them.
fn owners(pool: &Pool, file: &str, nodes: &Nodes) -> Option<Finding> {
    if !pool.is_ring() {
        return None;
    }
    match nodes.know_ring() {
        true => other_owners(pool, file, nodes.ring_hash),
        false => distributed(pool, file),
    }
}

/// The nodes compute other owners than the pool.
fn other_owners(pool: &Pool, file: &str, ring_hash: RingHash) -> Option<Finding> {
    if pool.is_known(ring_hash) {
        return None;
    }
    let ketama = format!("`distribution: ketama` and `hash: {HASH}`");
    let client = match ring_hash {
        RingHash::Emcache => "emcache",
        _ => "pymemcache",
    };
    let (expected, cure) = match ring_hash {
        RingHash::Pymemcache | RingHash::Emcache => (
            format!("`node.ring_hash = \"{client}\"` expects the owners that {client} computes"),
            format!("set `node.ring_hash = \"nutcracker\"`, and in this pool {ketama}"),
        ),
        _ => (
            format!("`node.ring_hash = \"nutcracker\"` expects {ketama}"),
            format!("set {ketama}"),
        ),
    };
    let setting = match pool.distribution {
        Distribution::Ketama => "hash",
        _ => "distribution",
    };
    Some(pool.place(file, setting).risk(
        format!(
            "{expected}: each node refuses a share of the keys that this pool sends to it, so reads miss and writes fail"
        ),
        cure,
    ))
}

fn distributed(pool: &Pool, file: &str) -> Option<Finding> {
    let place = pool.place(file, "distribution");
    match pool.distribution {
        Distribution::Ketama => None,
        Distribution::Random => Some(place.lies(
            "`distribution: random` sends each request to any server: a key has no owner",
            "set `distribution: ketama`",
        )),
        Distribution::Modula => Some(place.risk(
            "`distribution: modula` moves nearly all keys if the list of servers changes, and old values return \
             if it changes back",
            "set `distribution: ketama`, with the nodes empty or in a new era",
        )),
    }
}

fn patience(pool: &Pool, file: &str) -> Option<Finding> {
    pool.timeout_ms.is_none().then(|| {
        pool.place(file, "timeout").risk(
            "`timeout` is not set: a request to a stopped node waits for ever, and its client too",
            "set `timeout`, in ms, to a value above the slowest answer",
        )
    })
}

fn connections(pool: &Pool, file: &str) -> Option<Finding> {
    (pool.connections > 1).then(|| {
        pool.place(file, "server_connections").risk(
            format!(
                "`server_connections: {}`: of requests that a client sends without waiting, a get can overtake \
                 the set before it",
                pool.connections
            ),
            "set `server_connections: 1`, or let clients wait for each answer",
        )
    })
}

fn protocol(pool: &Pool, file: &str) -> Finding {
    if pool.redis {
        return pool.place(file, "redis").risk(
            "`redis: true`: Floe does not speak Redis' protocol",
            "leave out `redis`",
        );
    }
    pool.place(file, "listen").note(
        "nutcracker closes the connection of a client that sends mg, ms, md, ma, mn, me, gat, gats, stats, verbosity or \
         flush_all",
        "limit clients to get, gets, set, add, replace, append, prepend, cas, delete, incr, decr, touch and version; \
         send the others to a node directly",
    )
}

fn labels(pool: &Pool, file: &str) -> Option<Finding> {
    let unnamed = pool.servers.iter().filter(|server| !server.named).count();
    if unnamed == 0 || !pool.is_ring() || pool.distribution != Distribution::Ketama {
        return None;
    }
    Some(pool.place(file, "servers").risk(
        format!(
            "{unnamed} of {} servers have no name: ketama hashes their addresses, so a new address moves keys",
            pool.servers.len()
        ),
        "name each server: `host:port:weight name`",
    ))
}

fn unknown(pool: &Pool, file: &str) -> Vec<Finding> {
    let unknown = pool
        .lines
        .keys()
        .filter(|key| !SETTINGS.contains(&key.as_str()));
    unknown
        .map(|key| {
            pool.place(file, key).note(
                format!("`{key}` is no setting of nutcracker 0.5, and was not examined"),
                "check what it means for the owner of a key",
            )
        })
        .collect()
}

/// The findings between pools: one server in two different rings. Each pool has at most one.
pub(super) fn conflicts(pools: &[(&str, &Pool)], nodes: &Nodes) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, (file, pool)) in pools.iter().enumerate() {
        let place = pool.place(file, "servers");
        let mut earlier = pools[..index].iter();
        found.extend(earlier.find_map(|(file_before, before)| {
            let other = || before.place(file_before, "servers").to_string();
            conflict([before, pool], &place, other, nodes)
        }));
    }
    found
}

fn conflict(
    [before, pool]: [&Pool; 2],
    place: &Place<'_>,
    other: impl Fn() -> String,
    nodes: &Nodes,
) -> Option<Finding> {
    // A key has no owner in these, which is a finding of its own.
    let random = [before, pool].map(|pool| pool.distribution == Distribution::Random);
    let shared = before.servers.iter().find(|one| pool.has(&one.address))?;
    let differences = differences(&before.ring(), &pool.ring());
    if random.contains(&true) || differences.is_empty() {
        return None;
    }
    let (severity, harm) = match nodes.know_ring() {
        true => (
            Severity::Risk,
            "the server refuses keys that one of the rings sends to it",
        ),
        false => (Severity::Lies, "a key of both has two owners"),
    };
    Some(place.finding(
        severity,
        format!(
            "server {} is in another ring too ({}), with another {}: {harm}",
            shared.address,
            other(),
            differences.join(", ")
        ),
        "give both pools the same servers, names, weights, `distribution`, `hash` and `hash_tag`",
    ))
}

fn differences(a: &Ring<'_>, b: &Ring<'_>) -> Vec<&'static str> {
    let mut differences = Vec::new();
    if a.servers.len() == 1 && b.servers.len() == 1 {
        // One server owns all keys, however they are hashed.
        return differences;
    }
    if a.distribution != b.distribution {
        differences.push("`distribution`");
    }
    if a.hash != b.hash {
        differences.push("`hash`");
    }
    if a.hash_tag != b.hash_tag {
        differences.push("`hash_tag`");
    }
    if a.servers != b.servers {
        differences.extend(what_differs(a, b));
    }
    differences
}

/// The difference between two lists of servers.
fn what_differs(a: &Ring<'_>, b: &Ring<'_>) -> Option<&'static str> {
    fn addresses<'a>(ring: &Ring<'a>) -> BTreeSet<&'a str> {
        ring.servers.iter().map(|seat| seat.address).collect()
    }
    if addresses(a) != addresses(b) {
        return Some("list of servers");
    }
    // Different distributions do not use the same parts of a server.
    (a.distribution == b.distribution).then_some("names, weights or order of servers")
}

#[cfg(test)]
mod tests;
