//! `floe serve`: serves a cache in front of an origin until a signal.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::ArgMatches;
use floe::config::Schema;
use floe::object::ObjectCache;
use floe::origin::{Origin, OriginKind};
use floe::store::StoreConfig;
use floe::tiny::TinyEngine;
use floe::{Cache, CacheBuilder, CacheConfig, OpenCacheError, Tiny};
use floe_core::ByteSize;
use floe_device::metered::Meters;
use floe_device::{Clock, Metered, SharedDevice};
use floe_server::{Address, Addresses, Drained, Server, StartError};
use serde::Serialize;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::format::{explain_open, explain_open_tiny};
use crate::args::ServeArgs;
use crate::device::{self, Part};
use crate::failure::Failure;
use crate::logging;
use crate::notify;
use crate::output;
use crate::reload::Reloader;
use crate::settings::{DEFAULT_SIZE, Plan, Request};
use crate::style::Style;

/// The object in the command that a first start prints.
const DEMO: (&str, &str, &str) = (
    "demo",
    "hello.txt",
    "Hello from Floe. Put files below this folder's parent and fetch them as /<bucket>/<key>.\n",
);

/// Serves until SIGINT or SIGTERM.
pub(crate) fn run(
    schema: &Schema,
    matches: &ArgMatches,
    args: &ServeArgs,
    json: bool,
) -> Result<ExitCode, Failure> {
    let request = Request::new(schema, matches)?;
    let effective = request.load(schema)?;
    let mut plan = Plan::new(&request, &effective)?;
    let logs = logging::start(&plan.log)?;
    let reloader = Reloader::new(schema, matches, logs, &effective);
    let demo = prepare(&request, &mut plan)?;
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .thread_name("floe")
        .build()
        .map_err(|error| Failure::environment("cannot start the runtime").because(error))?;
    runtime.block_on(serve(plan, demo, args.strict, json, &reloader))
}

/// Creates the default directories, and determines the size of a new cache
/// file. Returns whether the demo object exists.
fn prepare(request: &Request, plan: &mut Plan) -> Result<bool, Failure> {
    let data_dir = &request.places.data_dir;
    if plan.origin_is_ours || plan.path_is_ours {
        create_folder(data_dir)?;
    }
    let mut demo = false;
    if let Some(root) = plan.origin.root.as_ref().filter(|_| plan.origin_is_ours) {
        let (bucket, key, text) = DEMO;
        let object = root.join(bucket).join(key);
        if !root.exists() {
            create_folder(&root.join(bucket))?;
            fs::write(&object, text).map_err(|error| no_access(&object, error))?;
        }
        demo = object.exists();
    }
    if plan.size_is_ours
        && let Some(path) = device::path_of(&plan.device)
        && fs::metadata(&path).map_or(true, |found| found.is_file() && found.len() == 0)
    {
        plan.device.size = Some(new_size(plan, data_dir)?);
    }
    Ok(demo)
}

fn create_folder(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| no_access(path, error))
}

fn no_access(path: &Path, error: std::io::Error) -> Failure {
    Failure::environment(format!("cannot create `{}`", path.display()))
        .because(error)
        .cure(
            "choose another directory with --data-dir, or give this user permission to write there",
        )
}

/// The default size, or less if the disk lacks room.
fn new_size(plan: &Plan, data_dir: &Path) -> Result<ByteSize, Failure> {
    let free = device::free_space(data_dir)?.bytes();
    // A tenth stays free for other files.
    let room = free / 10 * 9;
    let zone = plan.device.zone_size_on(ByteSize(room)).bytes().max(1);
    let room = room / zone * zone;
    if room >= DEFAULT_SIZE.bytes() {
        return Ok(DEFAULT_SIZE);
    }
    let size = ByteSize(room);
    let fits = plan.device.geometry(size).ok();
    if fits.is_none_or(|geometry| plan.check_chunks(&geometry).is_err()) {
        return Err(Failure::environment(format!(
            "the disk below `{}` has only {} MiB free, too little for a cache",
            data_dir.display(),
            free >> 20,
        ))
        .cure("free some space, choose another disk with --data-dir, or smaller zones with --device-zone-size"));
    }
    eprintln!(
        "note: the disk has {} MiB free, so the cache uses {size} instead of {DEFAULT_SIZE}; \
         --device-size overrides this",
        free >> 20
    );
    Ok(size)
}

async fn serve(
    plan: Plan,
    demo: bool,
    strict: bool,
    json: bool,
    reloader: &Reloader<'_>,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen()?;
    let clock = Clock::real();
    let device = device::open_patiently(Part::Chunks, &plan.device, &clock).await?;
    plan.check_chunks(device.geometry())?;
    let description = device.describe();
    let device = Arc::new(Metered::new(device, clock.clone()));
    let meters = Arc::clone(device.meters());
    let config = CacheConfig {
        store: StoreConfig {
            chunk: plan.chunk.clone(),
            admission: plan.admission.clone(),
            ram: plan.ram.clone(),
            ..StoreConfig::default()
        },
        tiny: plan.tiny.clone(),
        ..CacheConfig::default()
    };
    let builder = Cache::builder(&config).device(device).clock(clock.clone());
    let cache = open_cache(&plan, builder, strict, &clock).await?;
    let recovery = cache.recovery();
    tracing::info!(?recovery, device = description, "the cache is open");
    let recovery = recovery.store;
    let started = start_faces(&plan, &cache, meters, &clock).await;
    let server = match started {
        Ok(server) => server,
        Err(failure) => {
            close(&cache).await;
            return Err(failure);
        }
    };
    let announcement = Announcement {
        plan: &plan,
        device: &description,
        tiny: cache.tiny().map(TinyPart::of),
        tiny_is_missing: cache.tiny_is_missing(),
        addresses: server.addresses(),
        demo,
        warm_records: recovery.records,
        formatted: recovery.formatted,
    };
    announcement.print(json)?;
    notify::ready();
    let reload = || reloader.reload(&server);
    let first = wait(&mut signals, &clock, reload).await;
    tracing::info!(
        signal = first.name(),
        "stopping; a second signal stops at once"
    );
    notify::stopping();
    let end = async {
        if server.shutdown().await == Drained::BrokenOff {
            tracing::warn!("requests were pending at the deadline and were aborted");
        }
        close(&cache).await;
    };
    tokio::select! {
        biased;
        () = end => Ok(ExitCode::SUCCESS),
        second = signals.stop() => {
            tracing::warn!(signal = second.name(), "stopped at once");
            Ok(ExitCode::from(second.exit_status()))
        }
    }
}

async fn start_faces(
    plan: &Plan,
    cache: &Cache,
    device: Arc<Meters>,
    clock: &Clock,
) -> Result<Server, Failure> {
    let origin = Origin::open(&plan.origin, clock.clone())
        .map_err(|error| Failure::environment("the origin cannot be opened").because(error))?;
    let objects = ObjectCache::new(
        cache.store().clone(),
        origin,
        clock.clone(),
        plan.object.clone(),
    )
    .map_err(|error| Failure::usage("the settings of objects are invalid").because(error))?;
    let frontends = plan.frontends(cache.store().value_bytes_max());
    Server::start(frontends, objects, cache.clone(), clock.clone(), Some(device))
        .await
        .map_err(|error| match error {
            StartError::Prepare { frontend, .. } | StartError::Thread { frontend, .. } => {
                Failure::environment(format!("the {frontend} frontend cannot be opened"))
                    .because(error)
                    .cure(format!("--{frontend}-listen off serves without it"))
            }
            StartError::Config(_) => Failure::usage("the frontends cannot be served").because(error),
            StartError::Bind(_) => Failure::environment("a frontend cannot be opened")
                .because(error)
                .cure("stop what uses the address, or choose another with --s3-listen, --memcached-listen, --admin-listen or --oxcache-path"),
        })
}

/// Opens the cache with its tiny engine, if configured. Unless `strict`, a tiny
/// engine that cannot be opened is left out: the chunk engine keeps its items
/// in a new era, so that no old item returns.
async fn open_cache(
    plan: &Plan,
    builder: CacheBuilder,
    strict: bool,
    clock: &Clock,
) -> Result<Cache, Failure> {
    let opened = match tiny_device(plan, clock).await {
        Ok(Some(device)) => open(plan, builder.clone().tiny_device(device)).await,
        Ok(None) => open(plan, builder.clone()).await,
        Err(failure) => Err((Part::Tiny, failure)),
    };
    match opened {
        Err((Part::Tiny, failure)) if !strict && !failure.is_usage() => {
            tracing::error!(
                %failure,
                "serving without the tiny engine: the chunk engine keeps memcached's items, \
                 and earlier items are lost; --strict fails instead"
            );
            open(plan, builder.without_tiny()).await
        }
        opened => opened,
    }
    .map_err(|(_, failure)| failure)
}

async fn open(plan: &Plan, builder: CacheBuilder) -> Result<Cache, (Part, Failure)> {
    builder.open().await.map_err(|error| match error {
        OpenCacheError::Tiny(error) => (Part::Tiny, explain_open_tiny(error)),
        OpenCacheError::Store(error) => (Part::Chunks, explain_open(error, &plan.device)),
        other => (
            Part::Chunks,
            Failure::environment("the cache cannot be opened").because(other),
        ),
    })
}

/// Opens the device of the tiny engine, if configured.
async fn tiny_device(plan: &Plan, clock: &Clock) -> Result<Option<SharedDevice>, Failure> {
    let Some(tier) = &plan.tiny else {
        return Ok(None);
    };
    if let Some(folder) = tier.device.path.as_deref().and_then(Path::parent) {
        create_folder(folder)?;
    }
    Ok(Some(
        device::open_patiently(Part::Tiny, &tier.device, clock).await?,
    ))
}

async fn close(cache: &Cache) {
    if let Err(error) = cache.close().await {
        // The next start recovers the cache, with every acknowledged write.
        tracing::warn!(%error, "the cache was not closed cleanly");
    }
}

/// Waits for a signal to stop. Meanwhile notifies systemd's watchdog, and reloads on SIGHUP.
async fn wait(signals: &mut Signals, clock: &Clock, reload: impl Fn()) -> Stop {
    let interval = notify::watchdog_interval();
    loop {
        let beat = async {
            match interval {
                Some(interval) => clock.sleep(interval).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = signals.event() => match event {
                Event::Stop(stop) => return stop,
                Event::Reload => reload(),
            },
            () = beat => notify::alive(),
        }
    }
}

/// The signal that stops the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Interrupt,
    Terminate,
}

impl Stop {
    fn name(self) -> &'static str {
        match self {
            Stop::Interrupt => "SIGINT",
            Stop::Terminate => "SIGTERM",
        }
    }

    /// The exit status that a shell reports for this signal.
    fn exit_status(self) -> u8 {
        match self {
            Stop::Interrupt => 130,
            Stop::Terminate => 143,
        }
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

/// The effect of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Stop(Stop),
    Reload,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::environment("cannot listen for signals").because(error))
        };
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            // Without a handler, SIGHUP would end the process.
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn event(&mut self) -> Event {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => Event::Stop(Stop::Interrupt),
            _ = self.terminate.recv() => Event::Stop(Stop::Terminate),
            _ = self.hangup.recv() => Event::Reload,
        }
    }

    /// Waits for a signal to stop, and ignores SIGHUP.
    async fn stop(&mut self) -> Stop {
        loop {
            if let Event::Stop(stop) = self.event().await {
                return stop;
            }
        }
    }
}

/// The report on standard output after the frontends have started.
struct Announcement<'a> {
    plan: &'a Plan,
    device: &'a str,
    tiny: Option<TinyPart>,
    tiny_is_missing: bool,
    addresses: &'a Addresses,
    demo: bool,
    warm_records: u64,
    formatted: bool,
}

/// The cache of tiny objects.
#[derive(Clone, Serialize)]
struct TinyPart {
    device: String,
    bytes: u64,
    engine: TinyEngine,
    formatted: bool,
    warm_objects: u64,
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
        }
    }

    fn text(&self) -> String {
        let state = match (self.formatted, self.warm_objects) {
            (true, _) => "new".to_owned(),
            (false, 0) => "empty".to_owned(),
            (false, objects) => format!("warm, {objects} objects"),
        };
        let TinyPart { device, engine, .. } = self;
        format!("{device}, {}, {engine} ({state})", ByteSize(self.bytes))
    }
}

#[derive(Serialize)]
struct Machine<'a> {
    version: &'a str,
    #[serde(flatten)]
    addresses: BTreeMap<String, Option<String>>,
    s3_anonymous: bool,
    device: &'a str,
    tiny: Option<TinyPart>,
    tiny_is_missing: bool,
    origin: String,
    formatted: bool,
    warm_records: u64,
    pid: u32,
}

impl Announcement<'_> {
    fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            let machine = Machine {
                version: crate::VERSION,
                addresses: self.keyed_addresses(),
                s3_anonymous: self.is_anonymous(),
                device: self.device,
                tiny: self.tiny.clone(),
                tiny_is_missing: self.tiny_is_missing,
                origin: self.origin(),
                formatted: self.formatted,
                warm_records: self.warm_records,
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
        let mut text = format!(
            "{}\n\n",
            style.bold(&format!("floe {} is serving", crate::VERSION))
        );
        let mut row = |name: &str, value: &str, hint: &str| {
            text.push_str(&format!("  {name:<9} {value}\n"));
            if !hint.is_empty() {
                text.push_str(&format!("  {:<9} {}\n", "", style.dim(hint)));
            }
        };
        for (frontend, address) in self.addresses.iter() {
            match (frontend, address) {
                ("s3", Address::Tcp(address)) => {
                    let mut value = format!("{}://{address}", self.s3_scheme());
                    if self.is_anonymous() {
                        value.push_str(
                            "  anonymous: everybody who reaches this address may read and write",
                        );
                    }
                    row("S3", &value, &self.try_s3(*address));
                }
                ("oxcache", address) => {
                    let hint = "length-prefixed bincode frames; point an OxCache client at it";
                    row("OxCache", &address.to_string(), hint);
                }
                ("memcached", Address::Tcp(address)) => {
                    let hint = self.try_memcached(*address);
                    row("memcached", &address.to_string(), &hint);
                }
                ("admin", Address::Tcp(address)) => {
                    let (value, url) = (format!("http://{address}"), reachable(*address));
                    row("metrics", &value, &format!("curl {url}/metrics"));
                    let value = format!("{value}/health");
                    row("health", &value, &format!("curl {url}/health"));
                }
                (name, address) => row(name, &address.to_string(), ""),
            }
        }
        let state = match (self.formatted, self.warm_records) {
            (true, _) => "new".to_owned(),
            (false, records) => format!("warm, {records} chunks"),
        };
        row("cache", &format!("{} ({state})", self.device), "");
        if let Some(tiny) = &self.tiny {
            row("tiny", &tiny.text(), "");
        }
        if self.tiny_is_missing {
            row("tiny", "cannot be opened; the log says why", "");
        }
        row("origin", &self.origin(), "");
        text.push_str("\nCtrl-C stops it.\n");
        text
    }

    /// Addresses by frontend. The key of a Unix socket beside TCP ends in `_path`.
    fn keyed_addresses(&self) -> BTreeMap<String, Option<String>> {
        let always = ["s3", "admin", "oxcache", "memcached", "memcached_path"];
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
        match s3.is_some_and(|s3| !s3.tls_certificate.as_os_str().is_empty()) {
            true => "https",
            false => "http",
        }
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
        format!("curl --aws-sigv4 aws:amz:{region}:s3 --user ACCESS:SECRET {url}/{object}")
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

/// The URL for a client on this machine.
fn reachable(address: SocketAddr) -> String {
    format!("http://{}", local(address))
}

fn local(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
