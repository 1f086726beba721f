//! The peers: how each is started, and the processor time that it took.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::AnyError;
use crate::load::CASES;

const START_PATIENCE: Duration = Duration::from_secs(30);

/// A cache in front of the origin.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// The peer that makes the same promise, which it is compared with.
    pub(crate) rival: &'static str,
    pub(crate) folder: PathBuf,
    pub(crate) address: SocketAddr,
    program: Program,
    /// The server that it fetches from. It must live as long as the peer.
    origin: Option<Rc<Program>>,
}

/// A program with its children, ended when dropped.
pub(crate) struct Program {
    child: Child,
    address: SocketAddr,
}

impl Program {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Processor time of it and its children so far.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, AnyError> {
        let ticks = ticks_of(self.pid())?;
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// nginx past the page cache.
const DIRECT: &str = "nginx, directio";

/// By this header an origin says that an object is old at once. nginx stores nothing for which its
/// own settings say so.
pub(crate) const OLD_AT_ONCE: &str = "X-Accel-Expires";

/// Caches of nginx: one that asks nothing, and one that validates each answer; and what they say
/// of an answer from the cache.
pub(crate) const NGINX_CACHES: [(&str, &str, &str); 2] = [
    ("nginx", "proxy_ignore_headers X-Accel-Expires;", "HIT"),
    (
        "nginx, revalidating",
        "proxy_cache_revalidate on;",
        "REVALIDATED",
    ),
];

/// Ours, by the mode of consistency, and further settings.
const FLOES: &[(&str, &str, &str, &[&str])] = &[
    ("floe, etag", "nginx, revalidating", "etag", &[]),
    ("floe, immutable", "nginx", "immutable", &[]),
    // The RAM tier has no object, only what is kept about them, as nginx keeps open files.
    (
        "floe, immutable, from flash",
        DIRECT,
        "immutable",
        &["--ram-size", "16MiB", "--ram-max-value-size", "2KiB"],
    ),
];

/// All that can be had; says loudly which cannot.
pub(crate) fn start_all(
    floe: &Path,
    folder: &Path,
    only: &[String],
) -> Result<Vec<Peer>, AnyError> {
    let wanted = |name: &str| only.is_empty() || only.iter().any(|only| name.contains(only));
    let mut peers = Vec::new();
    for (number, (name, rival, mode, more)) in FLOES.iter().enumerate() {
        if !wanted(name) {
            continue;
        }
        let address = free_address()?;
        let mut command = serving(floe, mode, address);
        command
            .args(*more)
            .arg("--data-dir")
            .arg(folder.join(format!("floe-{number}")))
            .arg("--origin-root")
            .arg(folder.join("origin"));
        let program = start(&mut command, address)?;
        peers.push(Peer {
            name,
            rival,
            folder: folder.to_owned(),
            address,
            program,
            origin: None,
        });
    }
    match nginx(folder) {
        Ok(found) => peers.extend(found.into_iter().filter(|peer| wanted(peer.name))),
        Err(error) => eprintln!("SKIPPED nginx: {error}"),
    }
    match wanted("varnish").then(|| varnish(folder, &peers)) {
        Some(Ok(peer)) => peers.push(peer),
        Some(Err(error)) => eprintln!("SKIPPED varnish: {error}"),
        None => {}
    }
    Ok(peers)
}

/// A command that serves S3 without signatures in a mode of consistency.
pub(crate) fn serving(floe: &Path, mode: &str, s3: SocketAddr) -> Command {
    let mut command = Command::new(floe);
    command
        .args(["serve", "--memcached-listen", "off"])
        .env("FLOE_ADMIN_LISTEN", "off")
        .args(["--log-level", "warn"])
        .args(["--device-size", "1GiB", "--tiny-enabled=false"])
        .args(["--object-consistency", mode, "--s3-anonymous=true"])
        .args(["--s3-listen", &s3.to_string()]);
    command
}

/// nginx with `proxy_cache`, from the page cache and revalidating each request. Its origin is
/// another nginx with the same files. `proxy_cache` ignores `directio`, so [`DIRECT`] is a server
/// of these files without a cache. Its buffers are no longer than the files: nginx reads a file
/// shorter than a buffer through the page cache.
fn nginx(folder: &Path) -> Result<Vec<Peer>, AnyError> {
    let origin = free_address()?;
    let files = format!(
        "server {{ listen {origin}; root {}/origin; add_header {OLD_AT_ONCE} @1; }}",
        folder.display()
    );
    let files = Rc::new(run_nginx(folder, "origin", &files, origin)?);
    let mut peers = Vec::new();
    for (name, rule, status) in NGINX_CACHES {
        let probe = (CASES[0].object(0), status);
        let (program, address) = nginx_cache(folder, (name, rule), origin, probe)?;
        peers.push(Peer {
            name,
            rival: "nginx",
            folder: folder.to_owned(),
            address,
            program,
            origin: Some(Rc::clone(&files)),
        });
    }
    let address = free_address()?;
    let direct = format!(
        "server {{ listen {address}; root {}/origin; open_file_cache max=1001 inactive=60s; \
         directio 512; aio threads; output_buffers 2 512k; \
         location /bucket/4KiB/ {{ output_buffers 2 4k; }} \
         location /bucket/64KiB/ {{ output_buffers 2 64k; }} }}",
        folder.display()
    );
    peers.push(Peer {
        name: DIRECT,
        rival: "nginx",
        folder: folder.to_owned(),
        address,
        program: run_nginx(folder, "nginx-directio", &direct, address)?,
        origin: None,
    });
    Ok(peers)
}

/// nginx with `proxy_cache` in front of a server. Its third answer for the object of `probe` must
/// have the status there.
pub(crate) fn nginx_cache(
    folder: &Path,
    (name, rule): (&str, &str),
    origin: SocketAddr,
    (object, status): (String, &str),
) -> Result<(Program, SocketAddr), AnyError> {
    let address = free_address()?;
    let name = name.replace(", ", "-");
    let serve = format!(
        "proxy_pass http://files; proxy_http_version 1.1; \
         proxy_set_header Connection \"\"; proxy_cache cache; proxy_cache_valid any 1d; \
         add_header X-Cache $upstream_cache_status; {rule}"
    );
    // Answers of 64 KiB and a head end in a short segment, which waits 40 ms under nopush.
    let cache = format!(
        "upstream files {{ server {origin}; keepalive 64; }} \
         proxy_cache_path {} keys_zone=cache:16m inactive=1d; \
         server {{ listen {address}; location / {{ {serve} }} \
         location /bucket/64KiB/ {{ tcp_nopush off; {serve} }} }}",
        folder.join(format!("{name}-cache")).display()
    );
    let program = run_nginx(folder, &name, &cache, address)?;
    let mut head = String::new();
    for _ in 0..3 {
        head = answer(address, &object)?.0;
    }
    match head.contains(&format!("X-Cache: {status}\r\n")) {
        true => Ok((program, address)),
        false => Err(format!("{name} does not cache as it should: {head}").into()),
    }
}

/// nginx at its best: a worker for each core, open files kept, no log of requests.
fn run_nginx(
    folder: &Path,
    name: &str,
    servers: &str,
    address: SocketAddr,
) -> Result<Program, AnyError> {
    let own = folder.join(name).display().to_string();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|kind| format!("{kind}_temp_path {own}-{kind}; "));
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get());
    let text = format!(
        "daemon off; user root; pid {own}.pid; error_log {own}.log; worker_processes {workers}; \
         events {{ worker_connections 2048; }} \
         http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; \
         open_file_cache max=1000 inactive=60s; {} {servers} }}",
        temporary.concat()
    );
    let path = folder.join(format!("{name}.conf"));
    fs::write(&path, text)?;
    start(Command::new("nginx").arg("-c").arg(&path), address)
}

/// Varnish in front of the origin of nginx.
fn varnish(folder: &Path, peers: &[Peer]) -> Result<Peer, AnyError> {
    let origin = peers.iter().find_map(|peer| peer.origin.clone());
    let origin = origin.ok_or("it needs the origin of nginx")?;
    let address = free_address()?;
    let mut command = Command::new("varnishd");
    command.args([
        "-F",
        "-T",
        "none",
        "-s",
        "malloc,256m",
        "-p",
        "default_ttl=86400",
    ]);
    command.args([
        "-a",
        &address.to_string(),
        "-b",
        &origin.address.to_string(),
    ]);
    command.arg("-n").arg(folder.join("varnish"));
    Ok(Peer {
        name: "varnish",
        rival: "nginx",
        folder: folder.to_owned(),
        address,
        program: start(&mut command, address)?,
        origin: Some(origin),
    })
}

pub(crate) fn free_address() -> Result<SocketAddr, AnyError> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Starts a program, and waits until it listens.
pub(crate) fn start(command: &mut Command, address: SocketAddr) -> Result<Program, AnyError> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.spawn();
    let child = child.map_err(|error| format!("{name} does not start: {error}"))?;
    let mut program = Program { child, address };
    let end = Instant::now() + START_PATIENCE;
    while TcpStream::connect(address).is_err() {
        if let Some(status) = program.child.try_wait()? {
            return Err(format!("{name} ended at once, {status}").into());
        }
        if Instant::now() > end {
            return Err(format!("{name} did not listen").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(program)
}

impl Peer {
    /// A peer that is compared with none.
    pub(crate) fn new(
        name: &'static str,
        folder: &Path,
        address: SocketAddr,
        program: Program,
    ) -> Self {
        Peer {
            name,
            rival: name,
            folder: folder.to_owned(),
            address,
            program,
            origin: None,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The body of an object.
    pub(crate) fn get(&self, object: &str) -> Result<Vec<u8>, AnyError> {
        Ok(answer(self.address, object)?.1)
    }

    /// True if it must read from storage what it sends.
    pub(crate) fn reads_past_page_cache(&self) -> bool {
        [self.name, self.rival].contains(&DIRECT)
    }

    /// Bytes that its processes have read from storage so far.
    pub(crate) fn stored_bytes(&self) -> Result<u64, AnyError> {
        let mut sum = 0;
        let parent = self.program.child.id();
        for process in children_of(parent)?.into_iter().chain([parent]) {
            let counts = fs::read_to_string(format!("/proc/{process}/io"))?;
            let count = counts.lines().find_map(|l| l.strip_prefix("read_bytes: "));
            sum += count.ok_or("no read_bytes")?.parse::<u64>()?;
        }
        Ok(sum)
    }

    /// Processor time of its processes so far.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, AnyError> {
        self.program.cpu_seconds()
    }
}

/// The head and the body of an answer.
fn answer(address: SocketAddr, object: &str) -> Result<(String, Vec<u8>), AnyError> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET /bucket/{object} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    let end = response.windows(4).position(|four| four == b"\r\n\r\n");
    let body = response.split_off(end.ok_or("no head")? + 4);
    let head = String::from_utf8_lossy(&response).into_owned();
    match head.starts_with("HTTP/1.1 200") {
        true => Ok((head, body)),
        false => Err(head.into()),
    }
}

/// Processor time of a process and its children.
fn ticks_of(process: u32) -> Result<u64, AnyError> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The second field is the name, in brackets.
    let fields = stat.rsplit_once(')').ok_or("no name")?.1;
    let fields = fields.split_whitespace().skip(11).take(2);
    let mut ticks = 0;
    for field in fields {
        ticks += field.parse::<u64>()?;
    }
    for child in children_of(process)? {
        ticks += ticks_of(child)?;
    }
    Ok(ticks)
}

fn children_of(process: u32) -> Result<Vec<u32>, AnyError> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
    let children = children.split_whitespace().map(str::parse);
    Ok(children.collect::<Result<_, _>>()?)
}
