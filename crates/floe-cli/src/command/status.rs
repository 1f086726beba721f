//! `floe status`: reads the state of several nodes, and finds what is wrong between them.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use floe::config::Schema;
use floe_server::NodeStatus;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde::Serialize;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::args::StatusArgs;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::settings::{Plan, Request};
use crate::style::Style;

/// The time that a node may take for each step of an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

pub(crate) fn run(
    schema: &Schema,
    matches: &ArgMatches,
    args: &StatusArgs,
    json: bool,
) -> Result<ExitCode, Failure> {
    let addresses = match args.nodes.as_slice() {
        [] => vec![own_address(schema, matches)?],
        nodes => nodes.to_vec(),
    };
    let authorities = args.ca.as_deref().map(authorities).transpose()?;
    let authorities = authorities.as_ref();
    let asked: Vec<_> = std::thread::scope(|scope| {
        let addresses = addresses.iter();
        let asking: Vec<_> = addresses
            .map(|address| scope.spawn(move || Node::ask(address, authorities)))
            .collect();
        let answered = asking.into_iter().map(std::thread::ScopedJoinHandle::join);
        answered.filter_map(Result::ok).collect()
    });
    let fleet = Fleet::new(asked);
    match json {
        true => output::print_json(&fleet)?,
        false => output::print(&fleet.text(Style::stdout()))?,
    }
    Ok(match fleet.ok {
        true => ExitCode::SUCCESS,
        false => Exit::Wrong.code(),
    })
}

/// The address of the server with the settings of the command.
fn own_address(schema: &Schema, matches: &ArgMatches) -> Result<String, Failure> {
    let request = Request::new(schema, matches)?;
    let plan = Plan::new(&request, &request.load(schema)?)?;
    match plan.server.admin {
        None => Err(
            Failure::usage("admin.listen is off, so that no server can be asked")
                .cure("name nodes with --nodes"),
        ),
        Some(admin) if !admin.tls_certificate.as_os_str().is_empty() => {
            Err(
                Failure::usage("admin.listen speaks TLS, and its certificate is for a name").cure(
                    format!("--nodes https://NAME:{} --ca FILE", admin.listen.port()),
                ),
            )
        }
        Some(admin) => Ok(admin.listen.to_string()),
    }
}

/// Trusts the certificates in a file.
fn authorities(path: &Path) -> Result<Arc<ClientConfig>, Failure> {
    let read = || -> Result<Arc<ClientConfig>, Box<dyn Error>> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(path)? {
            roots.add(certificate?)?;
        }
        if roots.is_empty() {
            return Err("it has no certificate".into());
        }
        let config = ClientConfig::builder().with_root_certificates(roots);
        Ok(Arc::new(config.with_no_client_auth()))
    };
    read().map_err(|error| Failure::usage(format!("--ca {}: {error}", path.display())))
}

/// A node, or why it did not answer.
#[derive(Debug, Serialize)]
struct Node {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<NodeStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Node {
    fn ask(address: &str, authorities: Option<&Arc<ClientConfig>>) -> Self {
        let (status, error) = match ask(address, authorities) {
            Ok(status) => (Some(status), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Node {
            address: address.to_owned(),
            status,
            error,
        }
    }
}

fn ask(address: &str, authorities: Option<&Arc<ClientConfig>>) -> io::Result<NodeStatus> {
    let (is_tls, address) = match address.strip_prefix("https://") {
        Some(rest) => (true, rest),
        None => (false, address.strip_prefix("http://").unwrap_or(address)),
    };
    let address = address.trim_end_matches('/');
    let mut addresses = address.to_socket_addrs()?;
    let first = addresses.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let stream = TcpStream::connect_timeout(&first, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if !is_tls {
        return asked(stream);
    }
    let missing = || io::Error::other("--ca names no authorities to trust");
    let authorities = authorities.ok_or_else(missing)?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
    let name = name.map_err(io::Error::other)?;
    let session = ClientConnection::new(Arc::clone(authorities), name);
    asked(StreamOwned::new(session.map_err(io::Error::other)?, stream))
}

fn asked(mut stream: impl Read + Write) -> io::Result<NodeStatus> {
    let request = "GET /v1/node HTTP/1.1\r\nHost: floe\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    let unexpected = || io::Error::other("the answer is not that of Floe's admin frontend");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(unexpected)?;
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(unexpected());
    }
    serde_json::from_str(body).map_err(|_| unexpected())
}

/// All nodes, and what is wrong.
#[derive(Debug, Serialize)]
struct Fleet {
    ok: bool,
    nodes: Vec<Node>,
    problems: Vec<String>,
}

impl Fleet {
    fn new(nodes: Vec<Node>) -> Self {
        let mut problems = Vec::new();
        for node in &nodes {
            problems.extend(problem_of(node));
        }
        problems.extend(shared_names(&nodes));
        problems.extend(disagreement(&nodes));
        Fleet {
            ok: problems.is_empty(),
            nodes,
            problems,
        }
    }

    fn text(&self, style: Style) -> String {
        let heading = format!(
            "{:<22} {:<16} {:<10} {:<8} {:>5} {:>5} {:>12} {:>12}\n",
            "address", "name", "state", "rejoin", "ring", "eras", "reads ref.", "writes ref."
        );
        let mut text = style.bold(&heading);
        for node in &self.nodes {
            text.push_str(&line(node));
        }
        for problem in &self.problems {
            text.push_str(&format!("{} {problem}\n", style.red("wrong:")));
        }
        text
    }
}

fn line(node: &Node) -> String {
    let address = &node.address;
    let Some(status) = &node.status else {
        return format!("{address:<22} {:<16} no answer\n", "?");
    };
    let state = match (status.confirmed, status.settled) {
        (false, _) => "waiting",
        (true, false) => "settling",
        (true, true) => "confirmed",
    };
    let rejoin = serde_json::to_value(status.rejoin).unwrap_or_default();
    format!(
        "{address:<22} {:<16} {state:<10} {:<8} {:>5} {:>5} {:>12} {:>12}\n",
        status.name,
        rejoin.as_str().unwrap_or_default(),
        status.ring_nodes,
        status.eras,
        status.reads_refused,
        status.writes_refused
    )
}

fn problem_of(node: &Node) -> Option<String> {
    let address = &node.address;
    match (&node.status, &node.error) {
        (None, error) => {
            let error = error.as_deref().unwrap_or("no answer");
            Some(format!("{address} does not answer: {error}"))
        }
        (Some(status), _) if !status.confirmed => Some(format!(
            "{} ({address}) is not confirmed, and answers with misses: it waits for etcd, for a \
             lease, or for POST /v1/node/confirm or /v1/node/join",
            status.name
        )),
        (Some(status), _) if !status.settled => Some(format!(
            "{} ({address}) waits for other nodes to take part in a change of the ring",
            status.name
        )),
        _ => None,
    }
}

/// Nodes with one name: each would take itself for the owner of the same keys.
fn shared_names(nodes: &[Node]) -> Vec<String> {
    let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        let status = node.status.iter().filter(|status| status.ring_nodes > 0);
        for status in status {
            let named = by_name.entry(&status.name).or_default();
            named.push(&node.address);
        }
    }
    let shared = by_name.into_iter().filter(|(_, named)| named.len() > 1);
    let shared = shared.map(|(name, named)| {
        format!(
            "{} have the name `{name}`: both own the same keys; set node.name",
            named.join(" and ")
        )
    });
    shared.collect()
}

/// Nodes that have settled on different rings.
fn disagreement(nodes: &[Node]) -> Option<String> {
    let settled = nodes.iter().filter_map(|node| node.status.as_ref());
    let settled = settled.filter(|status| status.confirmed && status.settled);
    let mut rings: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for status in settled {
        rings.entry(&status.ring).or_default().push(&status.name);
    }
    let sides: Vec<String> = rings.values().map(|names| names.join(", ")).collect();
    (sides.len() > 1).then(|| {
        format!(
            "the nodes disagree about the ring: {}; give all of them the same node.ring, \
             node.ring_hash and node.hash_tag",
            sides.join(" against ")
        )
    })
}

#[cfg(test)]
mod tests {
    use floe_server::Rejoin;

    use super::*;

    fn node(name: &str, ring: &str, confirmed: bool) -> Node {
        Node {
            address: format!("{name}:9091"),
            status: Some(NodeStatus {
                name: name.to_owned(),
                version: String::new(),
                rejoin: Rejoin::Warm,
                confirmed,
                confirmed_for_ms: None,
                settled: true,
                ring_nodes: 3,
                ring: ring.to_owned(),
                eras: 0,
                reads_refused: 0,
                writes_refused: 0,
            }),
            error: None,
        }
    }

    #[test]
    fn problems_of_a_fleet_are_named() {
        let silent = Node {
            address: "n9:9091".to_owned(),
            status: None,
            error: Some("refused".to_owned()),
        };
        let good = || vec![node("n1", "a", true), node("n2", "a", true)];
        assert!(Fleet::new(good()).ok);
        for (another, problem) in [
            (silent, "n9:9091 does not answer: refused"),
            (node("n3", "a", false), "n3 (n3:9091) is not confirmed"),
            (node("n3", "b", true), "n1, n2 against n3"),
            (node("n1", "a", true), "have the name `n1`"),
        ] {
            let mut nodes = good();
            nodes.push(another);
            let fleet = Fleet::new(nodes);
            assert!(!fleet.ok);
            let text = fleet.text(Style::plain());
            assert!(text.contains(problem), "{text}");
        }
    }
}
