//! `floe serve`: serves a cache in front of an origin until a signal.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use floe::config::Schema;
use floe::object::ObjectCache;
use floe::origin::Origin;
use floe::store::StoreConfig;
use floe::volume::VolumeCache;
use floe::{Cache, CacheBuilder, CacheConfig, OpenCacheError};
use floe_core::ByteSize;
use floe_device::metered::Meters;
use floe_device::upkeep::HealthWatch;
use floe_device::{Clock, Device as _, Metered, SharedDevice};
use floe_server::{Drained, OpenBacking, Server, StartError, VolumeLocks};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::announcement::{Announcement, DEMO};
use super::format::{explain_open, explain_open_tiny};
use super::memory::Memory;
use crate::args::ServeArgs;
use crate::device::{self, Part};
use crate::failure::Failure;
use crate::logging;
use crate::notify;
use crate::reload::Reloader;
use crate::settings::{DEFAULT_SIZE, Plan, Request};
use crate::volumes;

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
    let served = runtime.block_on(serve(plan, demo, args.strict, json, &reloader));
    // Only lookups of names may still run, which can take the resolver's time.
    runtime.shutdown_timeout(LOOKUP_PATIENCE);
    served
}

/// The time for lookups of names that are under way at the end.
const LOOKUP_PATIENCE: Duration = Duration::from_secs(1);

/// Creates the default directories, and determines the size of a new cache
/// file. Returns whether the demo object exists.
fn prepare(request: &Request, plan: &mut Plan) -> Result<bool, Failure> {
    let data_dir = &request.places.data_dir;
    let nbd = plan.server.nbd.as_ref();
    let has_socket = nbd.is_some_and(|nbd| nbd.path.starts_with(data_dir));
    let has_volumes = plan.volumes.path.is_some();
    if plan.origin_is_default || plan.path_is_default || has_socket || has_volumes {
        create_folder(data_dir)?;
    }
    let mut demo = false;
    if let Some(root) = plan.origin.root.as_ref().filter(|_| plan.origin_is_default) {
        let (bucket, key, text) = DEMO;
        let object = root.join(bucket).join(key);
        if !root.exists() {
            create_folder(&root.join(bucket))?;
            fs::write(&object, text).map_err(|error| no_access(&object, error))?;
        }
        demo = object.exists();
    }
    if plan.size_is_default
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
    let program_bytes = floe_server::resident_bytes().unwrap_or(0);
    let device = open_device(&plan, &clock).await?;
    let cache = open_cache(&plan, &device, strict, &clock).await?;
    let (volumes, locks) = open_volumes(&plan, &cache, &clock).await?;
    let caches = Caches {
        cache,
        volumes,
        locks,
    };
    let server = start_frontends(&plan, &caches, device.meters(), &clock).await?;
    let announcement = Announcement {
        plan: &plan,
        device: &device.describe(),
        cache: &caches.cache,
        addresses: server.addresses(),
        memory: Memory::of(&plan, &caches.cache, program_bytes),
        demo,
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
    Ok(stop(server, &caches, first, signals, &clock).await)
}

/// The caches that are open.
struct Caches {
    cache: Cache,
    volumes: Option<VolumeCache>,
    locks: Option<Arc<VolumeLocks>>,
}

/// Opens the volumes, with the locks of their devices; if one cannot be opened, closes the cache.
async fn open_volumes(
    plan: &Plan,
    cache: &Cache,
    clock: &Clock,
) -> Result<(Option<VolumeCache>, Option<Arc<VolumeLocks>>), Failure> {
    let open = async || {
        let locks = volumes::locks(plan.server.node.as_ref(), clock)?.map(Arc::new);
        let volumes = volumes::open(&plan.volumes, locks.as_deref(), clock).await?;
        Ok((volumes, locks))
    };
    let opened = open().await;
    if opened.is_err() {
        close(cache).await;
    }
    opened
}

/// Opens the device of chunks, and measures it.
async fn open_device(plan: &Plan, clock: &Clock) -> Result<Arc<Metered>, Failure> {
    let device = device::open_patiently(Part::Chunks, &plan.device, clock).await?;
    plan.check_chunks(device.geometry())?;
    Ok(Arc::new(Metered::new(device, clock.clone())))
}

/// Time in which the same signal counts as the first one once more: `timeout`, for one, sends it
/// to the process and then to the group of processes.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Finishes running requests and closes the cache, or stops at once on a second
/// signal.
async fn stop(
    server: Server,
    caches: &Caches,
    first: Stop,
    mut signals: Signals,
    clock: &Clock,
) -> ExitCode {
    let (clock, first_at) = (clock.clone(), clock.now());
    // A task of its own sees each signal when it comes, even if closing takes this thread.
    let second = tokio::spawn(async move {
        loop {
            let signal = signals.stop().await;
            if signal != first || clock.now().since(first_at) >= SAME_SIGNAL {
                return signal;
            }
        }
    });
    let end = async {
        if server.shutdown().await == Drained::BrokenOff {
            tracing::warn!("requests were pending at the deadline and were aborted");
        }
        caches.close().await;
    };
    tokio::select! {
        biased;
        () = end => ExitCode::SUCCESS,
        Ok(second) = second => {
            tracing::warn!(signal = second.name(), "stopped at once");
            ExitCode::from(second.exit_status())
        }
    }
}

/// Starts the frontends; if one cannot start, closes the caches.
async fn start_frontends(
    plan: &Plan,
    caches: &Caches,
    meters: &Arc<Meters>,
    clock: &Clock,
) -> Result<Server, Failure> {
    let started = start_server(plan, caches, Arc::clone(meters), clock).await;
    if started.is_err() {
        caches.close().await;
    }
    started
}

async fn start_server(
    plan: &Plan,
    caches: &Caches,
    meters: Arc<Meters>,
    clock: &Clock,
) -> Result<Server, Failure> {
    let cache = &caches.cache;
    let origin = Origin::open(&plan.origin, clock.clone())
        .map_err(|error| Failure::environment("the origin cannot be opened").because(error))?;
    let object = plan.objects(cache.store().value_bytes_max());
    if !object.cache_only.is_empty()
        && let Some(folder) = object.names.parent()
    {
        create_folder(folder)?;
    }
    let objects = ObjectCache::new(cache.store().clone(), origin, clock.clone(), object)
        .map_err(|error| Failure::usage("the settings of objects are invalid").because(error))?;
    let frontends = plan.frontends(cache.store().value_bytes_max());
    let served = floe_server::Caches {
        objects,
        items: cache.clone(),
        volumes: caches.volumes.clone(),
        health: Some(HealthWatch::new(plan.drives())),
        open_backing: Some(OpenBacking::new({
            let clock = clock.clone();
            let locks = caches.locks.clone();
            move |volume| {
                let (clock, locks) = (clock.clone(), locks.clone());
                Box::pin(async move {
                    let opened = volumes::open_backing(&volume, locks.as_deref(), &clock).await;
                    opened.map_err(|failure| failure.to_string().into())
                })
            }
        })),
    };
    Server::start(frontends, served, clock.clone(), Some(meters))
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
                .cure("stop what uses the address, or choose another with --s3-listen, --memcached-listen, --nbd-listen, --nbd-path, --control-path, --admin-listen or --oxcache-path"),
        })
}

/// Opens the cache with its tiny engine, if configured. Unless `strict`, a tiny
/// engine that cannot be opened is left out: the chunk engine keeps its items
/// in a new era, so that no old item returns.
async fn open_cache(
    plan: &Plan,
    device: &Arc<Metered>,
    strict: bool,
    clock: &Clock,
) -> Result<Cache, Failure> {
    let config = cache_config(plan);
    let builder = Cache::builder(&config)
        .device(Arc::clone(device) as SharedDevice)
        .clock(clock.clone());
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
    .inspect(|cache| {
        let recovery = cache.recovery();
        tracing::info!(?recovery, device = device.describe(), "the cache is open");
    })
}

fn cache_config(plan: &Plan) -> CacheConfig {
    CacheConfig {
        store: StoreConfig {
            chunk: plan.chunk.clone(),
            admission: plan.admission.clone(),
            ram: plan.ram.clone(),
            ..StoreConfig::default()
        },
        tiny: plan.tiny.clone(),
        ..CacheConfig::default()
    }
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

impl Caches {
    async fn close(&self) {
        if let Some(volumes) = &self.volumes
            && let Err(error) = volumes.close().await
        {
            // The next start recovers every acknowledged write that a device kept.
            tracing::error!(%error, "the volumes were not closed cleanly");
        }
        close(&self.cache).await;
    }
}

async fn close(cache: &Cache) {
    if let Err(error) = cache.close().await {
        // The next start recovers the cache, or has forgotten what it cannot trust.
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
