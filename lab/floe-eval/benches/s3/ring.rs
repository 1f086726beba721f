//! Three nodes behind HAProxy beside three servers that do nothing: what the nodes leave of the
//! proxy's own limit.
//!
//! HAProxy runs in one thread on a processor of its own, with the shipped configuration; the
//! servers and the load share the others. So HAProxy is what limits both, which its processor
//! time shows.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::AnyError;
use crate::load::{CASES, Case, Slice};
use crate::peer::{Peer, Program, free_address, serving, start};

const NODES: usize = 3;

const CONNECTIONS: u32 = 64;

/// The objects that fit one answer of a server that does nothing.
const LONGEST: usize = 64 << 10;

/// The name of the servers that do nothing, with which the others are compared.
const NULL: &str = "three null servers";

const FLOES: [(&str, &str); 2] = [
    ("three nodes, immutable", "immutable"),
    ("three nodes, etag", "etag"),
];

/// Servers behind a proxy of their own.
struct Cluster {
    proxy: Peer,
    servers: Vec<Program>,
}

/// Measures, and passes each row to `show`.
///
/// # Errors
/// A program is missing, or an answer was wrong.
pub(crate) fn run(
    floe: &Path,
    folder: &Path,
    quick: bool,
    show: &dyn Fn(Value),
) -> Result<(), AnyError> {
    let processors = std::thread::available_parallelism()?.get();
    if processors < 2 {
        return Err("HAProxy needs a processor of its own, and there is one only".into());
    }
    // Those of the servers and of the load.
    let others = format!("1-{}", processors - 1);
    let cases = || CASES.iter().filter(|case| case.bytes <= LONGEST);
    for case in cases() {
        fs::create_dir_all(
            folder
                .join("origin/bucket")
                .join(case.object(0))
                .with_file_name(""),
        )?;
        for number in 0..case.objects {
            let path = folder.join("origin/bucket").join(case.object(number));
            fs::write(path, case.content(number))?;
        }
    }
    let (rounds, seconds) = if quick { (1, 1) } else { (5, 2) };
    for case in cases() {
        let mut clusters = vec![Cluster::of_nothing(folder, case, &others)?];
        for (name, mode) in FLOES {
            clusters.push(Cluster::of_floe(floe, folder, (name, mode), &others)?);
        }
        for cluster in &clusters {
            crate::load::verify(&cluster.proxy, &cluster.known(case), 2)?;
        }
        let mut sums = vec![Slice::default(); clusters.len()];
        let mut used = vec![0.0; clusters.len()];
        for _ in 0..rounds {
            for ((cluster, sum), used) in clusters.iter().zip(&mut sums).zip(&mut used) {
                let before = cluster.servers_cpu_seconds()?;
                sum.add(cluster.slice(case, seconds, &others)?);
                *used += cluster.servers_cpu_seconds()? - before;
            }
        }
        let rate = |sum: &Slice| sum.requests as f64 / sum.seconds;
        for ((cluster, sum), used) in clusters.iter().zip(&sums).zip(&used) {
            let each = used / sum.requests as f64;
            // The rate of this proxy with a processor of its own that is always busy.
            let limit = sum.per_cpu_second();
            let rounded = |figure: f64| (figure * 100.0).round() / 100.0;
            show(json!({
                "figure": format!("{}, {CONNECTIONS} connections", case.name),
                "peer": cluster.proxy.name,
                "requests_per_second": rate(sum).round(),
                "proxy_busy": rounded(sum.cpu_seconds / sum.seconds),
                "p50_us": sum.p50_and_p999()[0].median,
                "servers_us_each": rounded(each * 1e6),
                "processors_of_servers_at_limit": rounded(each * limit),
                "of": NULL,
                "ratio": rounded(rate(sum) / rate(&sums[0])),
            }));
        }
    }
    Ok(())
}

impl Cluster {
    /// Servers that send the first object of a case, whatever is asked.
    fn of_nothing(folder: &Path, case: &Case, others: &str) -> Result<Self, AnyError> {
        let name = format!("null-{}", case.bytes);
        let mut addresses = Vec::new();
        let object = folder.join("origin/bucket").join(case.object(0));
        let mut text = format!(
            "global\n nbthread 1\n tune.bufsize {}\ndefaults\n mode http\n timeout client 60s\n \
             timeout server 60s\n timeout connect 1s\n",
            LONGEST + (16 << 10)
        );
        for number in 0..NODES {
            let address = free_address()?;
            text += &format!(
                "frontend n{number}\n bind {address}\n http-request return status 200 \
                 content-type application/octet-stream file {}\n",
                object.display()
            );
            addresses.push((address, address));
        }
        let config = folder.join(format!("{name}.cfg"));
        fs::write(&config, text)?;
        let program = start(haproxy(others).arg(&config), addresses[0].0)?;
        Cluster::behind(NULL, folder, &name, &addresses, vec![program])
    }

    fn of_floe(
        floe: &Path,
        folder: &Path,
        (name, mode): (&'static str, &str),
        others: &str,
    ) -> Result<Self, AnyError> {
        let (mut addresses, mut programs) = (Vec::new(), Vec::new());
        for number in 0..NODES {
            let (s3, admin) = (free_address()?, free_address()?);
            let served = serving(floe, mode, s3);
            let mut command = pinned(others);
            command.arg(floe).args(served.get_args());
            command
                .env("FLOE_ADMIN_LISTEN", admin.to_string())
                .args(["--s3-threads", "1"])
                .arg("--data-dir")
                .arg(folder.join(format!("{mode}-{number}-{}", s3.port())))
                .arg("--origin-root")
                .arg(folder.join("origin"));
            programs.push(start(&mut command, s3)?);
            addresses.push((s3, admin));
        }
        Cluster::behind(name, folder, mode, &addresses, programs)
    }

    /// The shipped HAProxy in front of servers, by the addresses of S3 and of `/ready`.
    fn behind(
        name: &'static str,
        folder: &Path,
        file: &str,
        addresses: &[(SocketAddr, SocketAddr)],
        servers: Vec<Program>,
    ) -> Result<Self, AnyError> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let shipped = fs::read_to_string(root.join("packaging/ring/haproxy-s3.cfg"))?;
        let address = free_address()?;
        let mut text = shipped
            .replace("bind :9000", &format!("bind {address}"))
            .replace("    maxconn 4000\n", "    maxconn 4000\n    nbthread 1\n")
            .replace("http-check connect port 9091", "http-check connect");
        for (number, (s3, ready)) in (1..).zip(addresses) {
            text = text.replace(
                &format!("server n{number} 10.77.0.1{number}:9000"),
                &format!("server n{number} {s3} port {}", ready.port()),
            );
        }
        if text.contains("10.77.0.") {
            return Err("packaging/ring/haproxy-s3.cfg has other servers than this bench".into());
        }
        let config = folder.join(format!("proxy-{file}-{}.cfg", address.port()));
        fs::write(&config, text)?;
        let program = start(haproxy("0").arg(&config), address)?;
        let proxy = Peer::new(name, folder, address, program);
        Ok(Cluster { proxy, servers })
    }

    /// Processor time of the servers so far.
    fn servers_cpu_seconds(&self) -> Result<f64, AnyError> {
        let servers = self.servers.iter().map(Program::cpu_seconds);
        servers.sum()
    }

    /// Asks for some seconds.
    fn slice(&self, case: &Case, seconds: u32, others: &str) -> Result<Slice, AnyError> {
        crate::load::slice_by(pinned(others), &self.proxy, case, CONNECTIONS, seconds)
    }

    /// The objects whose bytes the servers know: one, if they do nothing.
    fn known(&self, case: &Case) -> Case {
        match self.proxy.name {
            NULL => Case {
                objects: 1,
                ..*case
            },
            _ => *case,
        }
    }
}

/// A command that runs another one on some processors.
fn pinned(processors: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", processors]);
    command
}

fn haproxy(processors: &str) -> Command {
    let mut command = pinned(processors);
    // In the foreground, as one process.
    command.args(["haproxy", "-db", "-f"]);
    command
}
