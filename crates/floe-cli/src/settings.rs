//! The settings of the command: the sections of the library and the frontends
//! in one schema, with their flags.

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use floe::cache::TinyTierConfig;
use floe::config::{AdmissionSettings, ChunkSettings, TinySettings, VolumesSettings};
use floe::config::{Effective, Key, Kind, Overlay, Schema, Section, Source, Sources};
use floe::object::{Consistency, ObjectConfig};
use floe::origin::{OriginConfig, OriginKind};
use floe::store::RamConfig;
use floe_core::chunk::{self, ChunkConfig};
use floe_core::layout::ZoneLayout;
use floe_core::policy::admission::AdmissionConfig;
use floe_core::{ByteSize, Geometry};
use floe_device::config::DeviceKind;
use floe_device::{DeviceConfig, nvme};
use floe_server::ServerConfig;

use crate::failure::Failure;
use crate::frontends;
use crate::logging::{self, LogConfig};
use crate::volumes;

/// Variables that start with `FLOE_` but are no settings.
const OTHER_VARIABLES: [&str; 3] = ["FLOE_CONFIG", "FLOE_DATA_DIR", "FLOE_TRACES"];

const CONFIG: &str = "config-file";
const DATA_DIR: &str = "data-dir";
const SET: &str = "set";

/// Every section.
///
/// # Errors
/// A bug: a section's struct and its documentation disagree.
pub fn schema() -> Result<Schema, Failure> {
    let sections = || -> Result<Vec<Section>, String> {
        let mut sections = floe::config::library_sections()?;
        sections.extend(frontends::sections()?);
        sections.push(LogConfig::section());
        Ok(sections)
    };
    sections()
        .map(Schema::new)
        .map_err(|why| Failure::bug("the table of settings is incomplete").because(why))
}

/// The data directory and the configuration file.
#[derive(Clone, Debug)]
pub struct Places {
    /// The directory of files without a configured path.
    pub data_dir: PathBuf,
    /// The configuration file, if one was given.
    pub file: Option<PathBuf>,
}

/// The settings on the command line and in the environment.
#[derive(Clone, Debug)]
pub struct Request {
    /// The data directory and the file.
    pub places: Places,
    sources: Sources,
}

impl Request {
    /// Reads a subcommand's flags for settings.
    ///
    /// # Errors
    /// A flag is malformed.
    pub fn new(schema: &Schema, matches: &ArgMatches) -> Result<Self, Failure> {
        let places = Places {
            data_dir: one(matches, DATA_DIR).unwrap_or_else(|| PathBuf::from("floe-data")),
            file: one(matches, CONFIG),
        };
        let environment: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("FLOE_"))
            .collect();
        for (name, nearest) in schema.unknown_variables(&environment, &OTHER_VARIABLES) {
            let hint = nearest.map_or_else(String::new, |n| format!("; the nearest one is {n}"));
            eprintln!("note: the variable {name} names no setting and is ignored{hint}");
        }
        let sources = Sources {
            file: places.file.clone(),
            environment,
            flags: flags(schema, matches)?,
            ..Sources::default()
        };
        Ok(Request { places, sources })
    }

    /// The effective settings.
    ///
    /// # Errors
    /// The first error in the settings.
    pub fn load<'a>(&self, schema: &'a Schema) -> Result<Effective<'a>, Failure> {
        Ok(schema.load(&self.sources)?)
    }

    /// Reads `file` instead of the file of `--config`.
    pub fn read_file(&mut self, file: PathBuf) {
        self.sources.file = Some(file.clone());
        self.places.file = Some(file);
    }
}

/// The default size of a cache file.
pub(crate) const DEFAULT_SIZE: ByteSize = ByteSize::gib(4);

/// The default size of a file for tiny objects.
pub(crate) const TINY_SIZE: ByteSize = ByteSize::gib(1);

/// The settings as typed values, checked as far as possible without opening anything.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) device: DeviceConfig,
    pub(crate) chunk: ChunkConfig,
    /// The admission policy for chunks.
    pub(crate) admission: AdmissionConfig,
    pub(crate) ram: RamConfig,
    /// The tiny engine, if enabled.
    pub(crate) tiny: Option<TinyTierConfig>,
    /// The cache of volumes; it has none if it is not to be opened.
    pub(crate) volumes: VolumesSettings,
    object: ObjectConfig,
    /// The size of an object's chunks is a default, which may be reduced.
    chunk_size_is_default: bool,
    pub(crate) origin: OriginConfig,
    pub(crate) server: ServerConfig,
    pub(crate) log: LogConfig,
    /// The cache is a file in the data directory.
    pub(crate) path_is_default: bool,
    /// The device's size is a default, which may be reduced.
    pub(crate) size_is_default: bool,
    /// The origin is the directory in the data directory.
    pub(crate) origin_is_default: bool,
    /// The item size is a default, which may be reduced.
    pub(crate) item_size_is_default: bool,
}

impl Plan {
    /// Warnings for the operator about the settings.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.server.warnings(&self.object)
    }

    /// The paths of all drives below caches.
    pub(crate) fn drives(&self) -> impl Iterator<Item = PathBuf> {
        let tiny = self.tiny.iter().flat_map(|tier| tier.device.all_paths());
        let all = self.device.all_paths().chain(tiny);
        all.chain(self.volumes.path.as_deref()).map(Path::to_owned)
    }

    /// Reads every section.
    ///
    /// # Errors
    /// The first section with contradictory values.
    pub(crate) fn new(request: &Request, effective: &Effective<'_>) -> Result<Self, Failure> {
        let log: LogConfig = effective.section("log")?;
        logging::filter(&log)?;
        let mut device = device(request, effective)?;
        let ChunkSettings {
            engine: chunk,
            admission,
        } = effective.section("chunk")?;
        device.value_size = chunk.size;
        check_admission("chunk", &admission)?;
        let object = object(request, effective, chunk.size)?;
        let chunk_size_is_default = !effective.is_given("object.chunk_size");
        let (origin, origin_is_default) = origin(request, effective)?;
        let server = frontends::config(effective, origin_is_default, &request.places.data_dir)?;
        check_events(&object, &server, origin.kind)?;
        let tiny: TinySettings = effective.section("tiny")?;
        check_admission("tiny", &tiny.admission)?;
        // Only memcached's items are tiny objects.
        let tiny = tiny
            .tier(request.places.data_dir.join("tiny.floe"), TINY_SIZE)
            .filter(|_| server.memcached.is_some());
        let path_is_given = effective.is_given("device.path") || effective.is_given("device.paths");
        let path_is_default = device.kind == DeviceKind::File && !path_is_given;
        let plan = Plan {
            path_is_default,
            size_is_default: path_is_default && device.size.is_none(),
            device,
            chunk,
            admission: admission.config(),
            ram: effective.section("ram")?,
            tiny,
            volumes: volumes::settings(effective, &request.places.data_dir)?,
            object,
            chunk_size_is_default,
            origin,
            server,
            log,
            origin_is_default,
            item_size_is_default: !effective.is_changed("memcached.max_item_size"),
        };
        plan.check_shape()?;
        Ok(plan)
    }

    /// Checks the engines' plans against the geometries of their devices, as
    /// far as the settings determine them. Arrays are checked once they are open.
    fn check_shape(&self) -> Result<(), Failure> {
        if let Some(tier) = &self.tiny
            && let Some(size) = tier.device.size
            && tier.device.paths.is_empty()
        {
            let geometry = tier.device.geometry(size).map_err(unusable_tiny)?;
            let mut engine = tier.engine.clone();
            if tier.device.zone_size.is_none() && tier.device.all_paths().any(Path::exists) {
                // A cache that exists has zones of its own size, and these divide them.
                (engine.instances, engine.nemo.set_group_pages) = (None, None);
            }
            engine.check(&geometry).map_err(unusable_tiny)?;
        }
        let size = match self.device.size {
            Some(size) => size,
            None if self.size_is_default => DEFAULT_SIZE,
            None => return Ok(()),
        };
        if !self.device.paths.is_empty() {
            // The array has other zones than its drives.
            return Ok(());
        }
        let geometry = self.device.geometry(size).map_err(|error| {
            Failure::usage("the settings of the device are invalid").because(error)
        })?;
        self.check_chunks(&geometry)
    }

    /// Checks that the engine can run on a device with this geometry, and that
    /// the configured items fit.
    pub(crate) fn check_chunks(&self, geometry: &Geometry) -> Result<(), Failure> {
        let plan = chunk::Plan::new(&self.chunk, geometry).map_err(|error| {
            Failure::usage("the cache cannot work on this device").because(error)
        })?;
        let Some(memcached) = self
            .server
            .memcached
            .as_ref()
            .filter(|_| !self.item_size_is_default)
        else {
            return Ok(());
        };
        let most = ByteSize(plan.value_bytes_max);
        if memcached.max_item_size <= most {
            return Ok(());
        }
        let cure = match plan.layout {
            ZoneLayout::Slots => "use larger chunks (chunk.size), or chunk.clru_layout = log",
            ZoneLayout::Log => "use larger zones (device.zone_size)",
        };
        Err(Failure::usage(format!(
            "memcached.max_item_size = {} cannot work: a value of the cache has at most {most}",
            memcached.max_item_size
        ))
        .cure(format!("lower it to {most}, or {cure}")))
    }

    /// How long cached metadata of objects is used.
    pub(crate) fn consistency(&self) -> Consistency {
        self.object.consistency
    }

    /// The settings of objects over a store whose values have at most `most` bytes.
    pub(crate) fn objects(&self, most: u64) -> ObjectConfig {
        let mut object = self.object.clone();
        if self.chunk_size_is_default {
            object.chunk_size = object.chunk_size.min(ByteSize(most));
        }
        object
    }

    /// The frontends' settings over a store whose values have at most `most` bytes.
    pub(crate) fn frontends(&self, most: u64) -> ServerConfig {
        let mut server = self.server.clone();
        if let Some(memcached) = server
            .memcached
            .as_mut()
            .filter(|_| self.item_size_is_default)
            && memcached.max_item_size.bytes() > most
        {
            memcached.max_item_size = ByteSize(most);
            tracing::warn!(
                limit = %memcached.max_item_size,
                "memcached's items are limited to the cache's largest value"
            );
        }
        server
    }
}

/// The settings of objects read through.
fn object(
    request: &Request,
    effective: &Effective<'_>,
    chunk_size: ByteSize,
) -> Result<ObjectConfig, Failure> {
    let mut object: ObjectConfig = effective.section("object")?;
    if object.names.as_os_str().is_empty() {
        object.names = request.places.data_dir.join("names.floe");
    }
    if object.pins.as_os_str().is_empty() {
        object.pins = request.places.data_dir.join("pins.json");
    }
    if effective.is_given("chunk.size") && !effective.is_given("object.chunk_size") {
        object.chunk_size = chunk_size;
    }
    object
        .validate()
        .map_err(|error| Failure::usage("the settings of objects are invalid").because(error))?;
    Ok(object)
}

/// Mode `events` needs a place where notifications arrive, and a queue an origin that has some.
fn check_events(
    object: &ObjectConfig,
    server: &ServerConfig,
    origin: OriginKind,
) -> Result<(), Failure> {
    let events = server.events.as_ref();
    if origin != OriginKind::S3 && events.is_some_and(|events| !events.queue.is_empty()) {
        return Err(Failure::usage(format!(
            "an origin of kind {origin:?} has no queue for events.queue; only an S3 service has"
        ))
        .cure("set origin.kind = \"s3\", or leave events.queue out"));
    }
    let of_rules = object.rules.iter().filter_map(|rule| rule.consistency);
    let mut modes = of_rules.chain([object.consistency]);
    match modes.any(|mode| mode == Consistency::Events) && server.events.is_none() {
        true => Err(Failure::usage(
            "object.consistency = \"events\" without notifications is mode `etag`",
        )
        .cure("set events.listen to the address to which the origin posts its notifications, events.queue to their queue, or events.nats to the server of their subject")),
        false => Ok(()),
    }
}

/// The origin's settings, and whether it is the directory in the data directory.
fn origin(request: &Request, effective: &Effective<'_>) -> Result<(OriginConfig, bool), Failure> {
    let mut origin: OriginConfig = effective.section("origin")?;
    let is_default = origin.kind == OriginKind::Directory && origin.root.is_none();
    if is_default {
        origin.root = Some(request.places.data_dir.join("origin"));
    }
    origin
        .validate()
        .map_err(|error| Failure::usage("the settings of the origin are invalid").because(error))?;
    Ok((origin, is_default))
}

/// The settings of tiny objects are invalid.
pub(crate) fn unusable_tiny(error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
    Failure::usage("the settings of tiny objects are invalid").because(error)
}

/// Rejects invalid settings of `[section]`'s admission policy.
///
/// # Errors
/// The setting, its value and the nearest value that works.
pub fn check_admission(section: &str, settings: &AdmissionSettings) -> Result<(), Failure> {
    settings.config().check().map_err(|error| {
        Failure::usage(format!(
            "{section}.admission_{} = {} cannot work: {}",
            error.setting, error.value, error.limit
        ))
        .cure(format!("the nearest value that works is {}", error.nearest))
    })
}

/// The device's settings; by default it is in the data directory.
pub(crate) fn device(
    request: &Request,
    effective: &Effective<'_>,
) -> Result<DeviceConfig, Failure> {
    let mut device: DeviceConfig = effective.section("device")?;
    if device.kind == DeviceKind::File && device.all_paths().next().is_none() {
        device.path = Some(request.places.data_dir.join("cache.floe"));
    }
    Ok(device)
}

/// The device of tiny objects. `None` if its file does not exist, or if a flag
/// names only the device of chunks.
pub(crate) fn tiny_device(
    request: &Request,
    effective: &Effective<'_>,
) -> Result<Option<DeviceConfig>, Failure> {
    let is_given = effective.is_given("tiny.path") || effective.is_given("tiny.paths");
    if names_one_device(effective) && !is_given {
        return Ok(None);
    }
    let tiny: TinySettings = effective.section("tiny")?;
    let tier = tiny.tier(request.places.data_dir.join("tiny.floe"), TINY_SIZE);
    Ok(tier
        .map(|tier| tier.device)
        .filter(|device| device.all_paths().any(Path::exists)))
}

/// The file or block device of the cache of volumes. `None` if it does not exist, or if a flag
/// names only the device of chunks.
pub(crate) fn volumes_path(
    request: &Request,
    effective: &Effective<'_>,
) -> Result<Option<PathBuf>, Failure> {
    let path = volumes::settings(effective, &request.places.data_dir)?.path;
    if path.is_none() && names_one_device(effective) {
        return Ok(None);
    }
    let path = path.unwrap_or_else(|| volumes::default_path(&request.places.data_dir));
    let path = match nvme::is_namespace(&path) {
        true => nvme::block_device(&path).ok_or_else(|| {
            let what = format!("no NVMe namespace `{}` is there", path.display());
            Failure::environment(what).cure("`floe device list` shows those of this machine")
        })?,
        false => path,
    };
    Ok(Some(path).filter(|path| path.exists()))
}

/// True if a flag names the device of chunks.
fn names_one_device(effective: &Effective<'_>) -> bool {
    ["device.path", "device.paths"].iter().any(|setting| {
        let entry = effective.get(setting);
        entry.is_some_and(|entry| matches!(entry.source, Source::Flag(_)))
    })
}

/// Adds to `command` the flags of every section that `wanted` accepts, and the
/// flags that name sources of settings.
pub fn with_settings(command: Command, schema: &Schema, wanted: impl Fn(&str) -> bool) -> Command {
    let command = command
        .arg(
            Arg::new(CONFIG)
                .long("config")
                .short('c')
                .value_name("FILE")
                .env("FLOE_CONFIG")
                .value_hint(ValueHint::FilePath)
                .value_parser(value_parser!(PathBuf))
                .help("Read settings from this TOML file"),
        )
        .arg(
            Arg::new(DATA_DIR)
                .long("data-dir")
                .value_name("DIR")
                .env("FLOE_DATA_DIR")
                .value_hint(ValueHint::DirPath)
                .value_parser(value_parser!(PathBuf))
                .help("Keep files whose path is not set in this folder [default: ./floe-data]"),
        )
        .arg(
            Arg::new(SET)
                .long("set")
                .value_name("SECTION.KEY=VALUE")
                .action(ArgAction::Append)
                .help("Set any setting; `floe config default` lists them, --help shows their own flags"),
        );
    schema
        .sections()
        .iter()
        .filter(|section| wanted(section.name))
        .flat_map(|section| section.keys.iter().map(move |key| (section, key)))
        .fold(command, |command, (section, key)| {
            command.arg(flag_argument(section, key))
        })
}

/// The flag of a setting, as an argument.
fn flag_argument(section: &Section, key: &Key) -> Arg {
    let setting = format!("{}.{}", section.name, key.name);
    let argument = Arg::new(setting.clone())
        .long(Schema::flag(&setting))
        .value_name(key.kind.placeholder())
        .help(help(&setting, key))
        .help_heading(format!("Settings [{}]", section.name))
        .hide_short_help(true);
    if is_switch(key) {
        return argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true");
    }
    argument.allow_negative_numbers(true)
}

/// True if a flag without a value means `true`.
fn is_switch(key: &Key) -> bool {
    match key.kind {
        Kind::Bool => true,
        Kind::Choice(choices) => choices.iter().any(|choice| choice.word == "true"),
        _ => false,
    }
}

/// Parses the arguments of this process. An error about the old flag of a
/// setting names its present one.
pub fn parse(command: Command) -> ArgMatches {
    command.try_get_matches().unwrap_or_else(|mut error| {
        if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg)
            && let Some(name) = Schema::renamed_flag(flag.trim_start_matches('-'))
        {
            let name = ContextValue::String(format!("--{name}"));
            error.insert(ContextKind::SuggestedArg, name);
        }
        error.exit()
    })
}

fn help(setting: &str, key: &Key) -> String {
    let mut text = key.summary().trim_end_matches('.').to_owned();
    if let Kind::Choice(choices) = key.kind {
        let words: Vec<&str> = choices.iter().map(|choice| choice.word).collect();
        text.push_str(&format!(" [one of: {}]", words.join(", ")));
    }
    if let Some(value) = &key.default {
        text.push_str(&format!(
            " [default: {}]",
            value.to_string().trim_matches('"')
        ));
    }
    if is_switch(key) {
        text.push_str(&format!(
            " [a value needs `=`: --{}=…]",
            Schema::flag(setting)
        ));
    }
    text.push_str(&format!(" [env: {}]", Schema::variable(setting)));
    text
}

fn flags(schema: &Schema, matches: &ArgMatches) -> Result<Vec<Overlay>, Failure> {
    let mut overlays = Vec::new();
    for pair in many(matches, SET) {
        let Some((setting, text)) = pair.split_once('=') else {
            return Err(Failure::usage(format!("`--set {pair}` has no `=`"))
                .cure("write it as --set section.key=value"));
        };
        overlays.push(Overlay {
            setting: setting.trim().to_owned(),
            text: text.to_owned(),
            source: Source::Flag(format!("--set {}", setting.trim())),
        });
    }
    overlays.extend(volumes::overlays(&many(matches, "volume"))?);
    for (setting, _) in schema.keys() {
        if let Some(text) = one::<String>(matches, &setting) {
            overlays.push(Overlay {
                source: Source::Flag(format!("--{}", Schema::flag(&setting))),
                setting,
                text,
            });
        }
    }
    Ok(overlays)
}

/// The value of an argument, if the subcommand has the argument and it was given.
pub(crate) fn one<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Option<T> {
    matches.try_get_one::<T>(id).ok().flatten().cloned()
}

pub(crate) fn many(matches: &ArgMatches, id: &str) -> Vec<String> {
    matches
        .try_get_many::<String>(id)
        .ok()
        .flatten()
        .map_or_else(Vec::new, |values| values.cloned().collect())
}
