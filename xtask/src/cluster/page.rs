//! The commands of `docs/scale-out.md`, as a new user types them.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::blackbox::http::Connection;
use crate::project;

pub(super) const NAME: &str = "page";

/// The comment before the commands.
const MARK: &str = "<!-- tested: local -->\n```sh\n";

/// Runs the commands in `folder`, then stops the node that answered.
pub(super) fn run(binary: &Path, folder: &Path) -> Result<()> {
    let page = fs::read_to_string(project::root().join("docs/scale-out.md"))?;
    let commands = page
        .split_once(MARK)
        .and_then(|(_, rest)| rest.split_once("```"));
    let (commands, _) = commands.context("the page has no tested commands")?;
    fs::create_dir(folder.join("bin"))?;
    symlink(binary, folder.join("bin/floe"))?;
    symlink(project::root().join("packaging"), folder.join("packaging"))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}:/usr/sbin", folder.join("bin").display());
    let mut shell = Command::new("timeout");
    shell
        .args(["60", "bash", "-euc", commands])
        .current_dir(folder)
        .env("PATH", path);
    // The servers that it starts keep its output open, as they would a pipe.
    let printed = folder.join("printed");
    shell
        .stdout(File::create(&printed)?)
        .stderr(File::create(folder.join("errors"))?);
    project::run(&mut shell)?;
    let answer = fs::read_to_string(printed)?.replace('\r', "");
    ensure!(
        answer.contains("x-floe-node: n"),
        "no node answered: {answer}"
    );
    ensure!(answer.ends_with("hello\n"), "{answer}");
    leave_in_order(folder)?;
    // Perhaps that node has left.
    let mut connection = Connection::open("127.0.0.1:9000".parse()?)?;
    let answer = connection.request("GET", "/demo/hello.txt", &[], b"")?;
    let node = answer.header("x-floe-node").context("no node answered")?;
    let stopped = stop(node)?;
    // HAProxy needs a moment to see it.
    let began = Instant::now();
    while !answers_elsewhere(node).unwrap_or(false) {
        ensure!(
            began.elapsed() < PATIENCE,
            "{stopped}: no other node answers"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    project::run(Command::new("pkill").args(["-x", "floe"]))?;
    project::run(Command::new("pkill").args(["-x", "haproxy"]))
}

/// Bytes of an object whose transfer takes some seconds at [`RATE`].
const LARGE: usize = 24 << 20;

const RATE: &str = "4M";

/// Stops the node that sends a large object, in order: the object arrives whole, no request beside
/// it fails, and the node is gone in the end.
fn leave_in_order(folder: &Path) -> Result<()> {
    fs::write(folder.join("objects/demo/large"), vec![b'x'; LARGE])?;
    let url = "http://127.0.0.1:9000/demo/large";
    let head = project::output(Command::new("curl").args(["-sfI", url]))?;
    let node = head
        .lines()
        .find_map(|line| line.strip_prefix("x-floe-node: "));
    let node = node
        .with_context(|| format!("no node answered: {head}"))?
        .trim();
    let mut transfer = Command::new("curl")
        .args([
            "-sf",
            "--limit-rate",
            RATE,
            "-o",
            "large",
            "-w",
            "%{http_code}",
            url,
        ])
        .current_dir(folder)
        .stdout(File::create(folder.join("status"))?)
        .spawn()?;
    std::thread::sleep(Duration::from_secs(1));
    stop(node)?;
    let (mut requests, mut others) = (0, 0);
    let ended = loop {
        if let Some(ended) = transfer.try_wait()? {
            break ended;
        }
        for path in ["/demo/hello.txt", "/demo/large"] {
            let mut connection = Connection::open("127.0.0.1:9000".parse()?)?;
            let answer = connection.request("HEAD", path, &[], b"");
            let answer = answer.with_context(|| format!("{path}, after {requests} requests"))?;
            ensure!(answer.status == 200, "{path}: {}", answer.status);
            requests += 1;
            others += u32::from(
                answer
                    .header("x-floe-node")
                    .is_some_and(|other| other != node),
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let arrived = fs::read(folder.join("large"))?;
    ensure!(
        ended.success() && arrived.len() == LARGE,
        "the transfer ended with {ended} after {} bytes",
        arrived.len()
    );
    ensure!(others > 0, "the node that stopped answered to the end");
    println!("cluster: {node} left: its transfer went on, and none of {requests} requests failed");
    Ok(())
}

/// The time for another node to answer.
const PATIENCE: Duration = Duration::from_secs(20);

fn answers_elsewhere(node: &str) -> Result<bool> {
    let mut connection = Connection::open("127.0.0.1:9000".parse()?)?;
    let again = connection.request("GET", "/demo/hello.txt", &[], b"")?;
    let is_other = again
        .header("x-floe-node")
        .is_some_and(|other| other != node);
    Ok(is_other && again.status == 200 && again.body == b"hello\n")
}

/// Stops a node of the page by its name: `n1` has the data directory `node1`.
fn stop(node: &str) -> Result<String> {
    let data = format!("--data-dir node{}", node.trim_start_matches('n'));
    project::run(Command::new("pkill").args(["-f", "--", &data]))?;
    Ok(data)
}
