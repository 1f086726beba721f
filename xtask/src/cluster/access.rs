//! Nodes whose etcd wants certificates and passwords.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::network::{ETCD, NODES};
use super::programs::{self, Node, shipped};
use crate::project;

pub(super) const NAME: &str = "etcd-access";

const USER: &str = "floe";
const PASSWORD: &str = "a password of a trial";

/// The time in which a node must not be confirmed, and in which it must stay so.
const WATCHED: Duration = Duration::from_secs(4);

/// Runs the trial: nodes find their ring, keep it when etcd forgets its tokens, and one with a
/// wrong password gets no place.
///
/// # Errors
/// A node was not confirmed, or was without a right to be.
pub(super) fn run(binary: &Path, folder: &Path) -> Result<()> {
    println!("cluster: {NAME}: etcd with certificates and users");
    certificates(folder)?;
    let file = |name: &str| folder.join(name).display().to_string();
    let (ca, certificate, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
    let tls = [
        "--client-cert-auth",
        "--trusted-ca-file",
        &ca,
        "--cert-file",
        &certificate,
        "--key-file",
        &key,
    ];
    let etcd = programs::etcd(folder, &tls)?;
    users(folder)?;
    let node = |index: usize, password: &str| {
        let options = [
            ("etcd", format!("https://{}:2379", ETCD.address())),
            ("etcd-user", USER.to_owned()),
            ("etcd-password", password.to_owned()),
            ("etcd-ca", file("ca.pem")),
            ("etcd-certificate", file("client.pem")),
            ("etcd-key", file("client.key")),
        ];
        let options = options.map(|(name, value)| format!("--node-{name}={value}"));
        Node {
            machine: NODES[index],
            binary: binary.to_owned(),
            folder: folder.to_owned(),
            config: Some(shipped("node-leases.toml")),
            s3_keys: None,
            more: options.to_vec(),
            minutes_off: 0,
        }
    };
    let nodes: Vec<Node> = (0..NODES.len())
        .map(|index| node(index, PASSWORD))
        .collect();
    let mut running = nodes.iter().map(Node::start).collect::<Result<Vec<_>>>()?;
    programs::wait_for_ring(&nodes)?;

    // Its tokens are in its memory.
    etcd.end("TERM")?;
    let _etcd = programs::etcd(folder, &tls)?;
    // Longer than a lease.
    std::thread::sleep(WATCHED);
    programs::wait_for_ring(&nodes).context("after a restart of etcd")?;
    for program in &running {
        let log = program.log()?;
        ensure!(
            !log.contains("lost its place"),
            "a node lost its place:\n{log}"
        );
    }

    let last = NODES.len() - 1;
    running.remove(last).end("TERM")?;
    let stranger = node(last, "a guess");
    let program = stranger.start()?;
    std::thread::sleep(WATCHED);
    let status = stranger.status()?;
    ensure!(
        status["confirmed"] == false,
        "a wrong password gave a place: {status}"
    );
    let log = program.log_tail();
    ensure!(
        log.contains("authentication failed"),
        "the log does not say why:\n{log}"
    );
    Ok(())
}

/// An authority, a certificate for etcd, and one for nodes.
fn certificates(folder: &Path) -> Result<()> {
    let openssl = |arguments: &[&str]| {
        let mut command = Command::new("openssl");
        project::output(command.args(arguments).current_dir(folder)).map(drop)
    };
    openssl(&[
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/O=trial",
        "-keyout", "ca.key", "-out", "ca.pem",
    ])?;
    // etcd's JSON interface works with no name in its own certificate.
    for (name, subject) in [("server", "/O=etcd"), ("client", "/O=node")] {
        let [key, request, certificate, extensions] =
            ["key", "csr", "pem", "ext"].map(|ending| format!("{name}.{ending}"));
        let address = ETCD.address();
        let text = format!(
            "basicConstraints=CA:FALSE\nsubjectAltName=IP:{address},IP:127.0.0.1\n\
             extendedKeyUsage=serverAuth,clientAuth\n"
        );
        fs::write(folder.join(&extensions), text)?;
        openssl(&[
            "req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-keyout", &key,
            "-out", &request,
        ])?;
        openssl(&[
            "x509",
            "-req",
            "-days",
            "2",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-in",
            &request,
            "-extfile",
            &extensions,
            "-out",
            &certificate,
        ])?;
    }
    Ok(())
}

/// Gives the nodes' user its rights, and refuses all others.
fn users(folder: &Path) -> Result<()> {
    let endpoint = format!("--endpoints=https://{}:2379", ETCD.address());
    let files = ["--cacert=ca.pem", "--cert=client.pem", "--key=client.key"];
    let etcdctl = |arguments: &[&str]| {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").current_dir(folder);
        project::output(command.arg(&endpoint).args(files).args(arguments)).map(drop)
    };
    etcdctl(&["user", "add", "root:of a trial"])?;
    etcdctl(&["user", "grant-role", "root", "root"])?;
    etcdctl(&["user", "add", &format!("{USER}:{PASSWORD}")])?;
    etcdctl(&["role", "add", USER])?;
    etcdctl(&[
        "role",
        "grant-permission",
        USER,
        "--prefix=true",
        "readwrite",
        "/floe/",
    ])?;
    etcdctl(&["user", "grant-role", USER, USER])?;
    etcdctl(&["auth", "enable"])
}
