//! Runs all cases of an experiment: in parallel in virtual time, resumed after
//! an interruption, spread over machines, merged.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use super::Shard;
use super::assemble::assemble;
use super::cache::TargetKind;
use super::cases::{self, Case};
use super::drive::{Place, run_case};
use super::known::KnownToDiffer;
use super::lists;
use super::overrides::{self, Override};
use super::records::{Record, Sweep, experiment_text};
use super::schema::{BenchCase, Experiment, TimeKind};
use crate::error::EvalError;
use crate::results::Provenance;
use crate::run::Progress;
use crate::tiny::TinyCase;

/// The options of an experiment's run.
#[derive(Clone, Debug)]
pub struct ExperimentOptions {
    /// The experiment file.
    pub path: PathBuf,
    /// The parent of the folder of results.
    pub results: PathBuf,
    /// The display of progress.
    pub progress: Progress,
    /// Most cases at a time in virtual time; by default one per core. Cases in
    /// real time always run one after the other.
    pub jobs: Option<NonZeroUsize>,
    /// Only this part of the cases.
    pub shard: Option<Shard>,
    /// The results folder to resume. Completed cases with the same
    /// configuration are kept.
    pub resume: Option<PathBuf>,
    /// Keys that differ from the file's, in all cases.
    pub set: Vec<Override>,
    /// Wipe the drives and files that cases name.
    pub wipe: bool,
    /// The commit this program was built from.
    pub commit: Option<String>,
}

impl ExperimentOptions {
    /// All cases, into a new folder under `results/`, with the machine's
    /// parallelism.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        ExperimentOptions {
            path: path.into(),
            results: PathBuf::from("results"),
            progress: Progress::Auto,
            jobs: None,
            shard: None,
            resume: None,
            set: Vec::new(),
            wipe: false,
            commit: None,
        }
    }
}

/// Runs an experiment's cases and writes `<results>/<name>-<time>/`, or resumes
/// a folder; returns the folder. A case's result does not depend on which other
/// cases run, or when.
///
/// Blocks, and creates its own runtimes, so it must be called outside of any.
///
/// # Errors
/// If the file is invalid, a case fails, or results cannot be written.
/// Completed cases stay in the folder.
pub fn run(options: &ExperimentOptions) -> Result<PathBuf, EvalError> {
    let path = &options.path;
    let text = std::fs::read_to_string(path).map_err(EvalError::file("read", path))?;
    let text = overrides::applied(lists::expand(path, &text)?, &options.set);
    let (experiment, mut cases) = cases::parse(path, &text)?;
    for case in &mut cases {
        permit_wiping(case, options.wipe)?;
    }
    let (folder, shard) = folder(options, &experiment)?;
    let sweep = Sweep {
        experiment: experiment.name.clone(),
        config_digest: crate::results::digest(&text),
        shard,
    };
    sweep.write(&folder, &text, path)?;
    let ours: Vec<&Case> = (cases.iter().enumerate())
        .filter(|(index, _)| shard.is_none_or(|shard| shard.has(*index)))
        .map(|(_, case)| case)
        .collect();
    let mut due = Vec::new();
    for case in &ours {
        if Record::find(&folder, case)?.is_none() {
            due.push(*case);
        }
    }
    let work = Work {
        options,
        folder: &folder,
        bar: bar(options.progress, due.len(), ours.len()),
        next: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
        failure: Mutex::new(None),
    };
    work.all(&due);
    work.bar.finish_and_clear();
    if let Some((case, error)) = work.failure.into_inner() {
        return Err(EvalError::Case {
            case,
            folder,
            source: Box::new(error),
        });
    }
    let known = KnownToDiffer::beside(path)?;
    write(&experiment, &text, &known, &cases, &[&folder], &folder)?;
    Ok(folder)
}

/// Lets a case wipe the storage that it names, if that `may_be_wiped`.
fn permit_wiping(case: &mut Case, may_be_wiped: bool) -> Result<(), EvalError> {
    let Some(device) = case.experiment.drive_mut() else {
        return Ok(());
    };
    device.accept_foreign = may_be_wiped;
    match device.all_paths().next() {
        Some(path) if !may_be_wiped => Err(EvalError::Option {
            option: "wipe",
            reason: format!(
                "the case `{}` would wipe {} permanently; allow that with --wipe",
                case.name,
                path.display()
            ),
        }),
        _ => Ok(()),
    }
}

/// Merges the parts of one experiment into `<into>/`; returns that folder.
///
/// # Errors
/// If the folders are not parts of one experiment, or cannot be read or
/// written.
pub fn merge(pieces: &[PathBuf], into: &Path) -> Result<PathBuf, EvalError> {
    let [first, others @ ..] = pieces else {
        return Err(EvalError::Option {
            option: "folders",
            reason: "name the folders of results to merge".into(),
        });
    };
    let sweep = Sweep::read(first)?;
    for other in others {
        let theirs = Sweep::read(other)?;
        if theirs.config_digest != sweep.config_digest {
            return Err(EvalError::Results {
                path: other.clone(),
                reason: format!(
                    "it is of `{}` ({}), not of `{}` ({}) as {} is; only pieces of one experiment file can be merged",
                    theirs.experiment,
                    theirs.config_digest,
                    sweep.experiment,
                    sweep.config_digest,
                    first.display()
                ),
            });
        }
    }
    let (path, text) = experiment_text(first)?;
    let (experiment, cases) = cases::parse(&path, &text)?;
    let whole = Sweep {
        shard: None,
        ..sweep
    };
    whole.write(into, &text, &path)?;
    let known = KnownToDiffer::beside(&path)?;
    let folders: Vec<&Path> = pieces.iter().map(PathBuf::as_path).collect();
    for (case, record) in records(&cases, &folders)?.0 {
        record.keep(into, case)?;
    }
    write(&experiment, &text, &known, &cases, &folders, into)?;
    Ok(into.to_owned())
}

/// True if these folders are pieces that `--shard` made, of one experiment.
pub fn are_pieces(folders: &[PathBuf]) -> bool {
    let sweeps: Option<Vec<Sweep>> = folders.iter().map(|f| Sweep::read(f).ok()).collect();
    sweeps.is_some_and(|sweeps| {
        let Some(first) = sweeps.first() else {
            return false;
        };
        let is_piece = |s: &Sweep| s.shard.is_some() && s.config_digest == first.config_digest;
        sweeps.iter().all(is_piece)
    })
}

/// The results folder, and the shard that it belongs to.
fn folder(
    options: &ExperimentOptions,
    experiment: &Experiment,
) -> Result<(PathBuf, Option<Shard>), EvalError> {
    let Some(folder) = &options.resume else {
        let shard = options.shard;
        let suffix = shard.map_or_else(String::new, |s| {
            format!("-shard-{}-of-{}", s.index, s.count)
        });
        return Ok((
            make_folder(&options.results, &experiment.name, &suffix)?,
            shard,
        ));
    };
    let sweep = Sweep::read(folder)?;
    let reject = |reason: String| {
        Err(EvalError::Results {
            path: folder.clone(),
            reason,
        })
    };
    if sweep.experiment != experiment.name {
        return reject(format!(
            "it is of `{}`, not of `{}`; resume it with its own experiment file",
            sweep.experiment, experiment.name
        ));
    }
    if options.shard.is_some() && options.shard != sweep.shard {
        return reject("it is of another shard; leave --shard out to resume its own".into());
    }
    Ok((folder.clone(), sweep.shard))
}

fn make_folder(results: &Path, name: &str, suffix: &str) -> Result<PathBuf, EvalError> {
    let format = time::macros::format_description!("[year][month][day]-[hour][minute][second]");
    let now = time::OffsetDateTime::now_utc();
    let stamp = now.format(format).unwrap_or_default();
    std::fs::create_dir_all(results).map_err(EvalError::file("create", results))?;
    // Two runs within a second have separate folders.
    for attempt in 0.. {
        let again = match attempt {
            0 => String::new(),
            attempt => format!("-{attempt}"),
        };
        let folder = results.join(format!("{name}-{stamp}{suffix}{again}"));
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && attempt < 100 => {}
            made => {
                return made
                    .map(|()| folder.clone())
                    .map_err(EvalError::file("create", &folder));
            }
        }
    }
    Ok(results.to_owned())
}

/// The state of running cases.
struct Work<'a> {
    options: &'a ExperimentOptions,
    folder: &'a Path,
    bar: ProgressBar,
    next: AtomicUsize,
    is_over: AtomicBool,
    /// The first failure, with its case.
    failure: Mutex<Option<(String, EvalError)>>,
}

impl Work<'_> {
    /// Runs the cases that may share the machine, then the others alone.
    fn all(&self, due: &[&Case]) {
        let (shared, alone): (Vec<&Case>, Vec<&Case>) =
            due.iter().partition(|case| is_independent(case));
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let jobs = self.options.jobs.map_or(cores, NonZeroUsize::get);
        let progress = match due.len() {
            0 | 1 => self.options.progress,
            // A run's progress line and the sweep's bar would overwrite each
            // other.
            _ => Progress::Off,
        };
        thread::scope(|scope| {
            for _ in 0..jobs.min(shared.len()) {
                scope.spawn(|| {
                    while let Some(case) = shared.get(self.next.fetch_add(1, Relaxed)) {
                        self.one(case, progress);
                    }
                });
            }
        });
        for case in alone {
            self.one(case, progress);
        }
    }

    fn one(&self, case: &Case, progress: Progress) {
        if self.is_over.load(Relaxed) {
            return;
        }
        self.bar.set_message(case.name.clone());
        if let Err(error) = self.run_and_keep(case, progress) {
            self.is_over.store(true, Relaxed);
            let mut failure = self.failure.lock();
            failure.get_or_insert_with(|| (case.name.clone(), error));
        }
        self.bar.inc(1);
    }

    /// Skips a case whose data is not on this machine. The report lists it as
    /// not run.
    fn skip(&self, case: &Case, reason: &EvalError) {
        let line = format!("skipped `{}`: {reason}", case.name);
        match self.bar.is_hidden() {
            true => eprintln!("{line}"),
            false => self.bar.println(line),
        }
    }

    fn run_and_keep(&self, case: &Case, progress: Progress) -> Result<(), EvalError> {
        let scratch = self.folder.join(format!("scratch-{}", case.digest));
        let place = Place {
            experiment: &self.options.path,
            scratch: &scratch,
            progress,
        };
        let found = match run_case(case, place) {
            Err(reason @ EvalError::Absent { .. }) if case.experiment.skips_absent() => {
                self.skip(case, &reason);
                return Ok(());
            }
            found => found?,
        };
        let provenance = Provenance {
            config_digest: case.digest.clone(),
            seed: case.experiment.seed,
            device: found.device,
            ..Provenance::here(self.options.commit.as_deref(), "", 0, "")
        };
        let record = Record {
            case: case.name.clone(),
            provenance,
            run: found.run,
            replay: found.replay,
            figures: found.figures,
            request_sizes: found.request_sizes,
        };
        record.keep(self.folder, case)
    }
}

/// True if concurrent cases cannot change the case's result.
fn is_independent(case: &Case) -> bool {
    let is_model = |bench: &BenchCase| {
        let target = &bench.cache.target;
        matches!(target, TargetKind::Zncache | TargetKind::Oxcache)
            && bench.cache.device.all_paths().next().is_none()
    };
    case.experiment.bench.as_ref().is_some_and(is_model)
        || case.experiment.replay.is_some()
        || case.experiment.volume.is_some()
        || case
            .experiment
            .tiny
            .as_ref()
            .is_some_and(TinyCase::is_model)
        || case.experiment.time() == TimeKind::Virtual
}

fn bar(progress: Progress, due: usize, all: usize) -> ProgressBar {
    if progress == Progress::Off || due < 2 {
        return ProgressBar::hidden();
    }
    // Draws on standard error, and only on a terminal.
    let bar = ProgressBar::new(all as u64).with_position((all - due) as u64);
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} cases, {eta} left  {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(500));
    bar
}

type Records<'a> = (Vec<(&'a Case, Record)>, Vec<String>);

/// The cases that are done in any of `folders`, and the names of the others.
fn records<'a>(cases: &'a [Case], folders: &[&Path]) -> Result<Records<'a>, EvalError> {
    let (mut done, mut missing) = (Vec::new(), Vec::new());
    for case in cases {
        let mut found = None;
        for folder in folders {
            found = match found {
                None => Record::find(folder, case)?,
                found => found,
            };
        }
        match found {
            Some(record) => done.push((case, record)),
            None => missing.push(case.name.clone()),
        }
    }
    Ok((done, missing))
}

fn write(
    experiment: &Experiment,
    text: &str,
    known: &KnownToDiffer,
    cases: &[Case],
    from: &[&Path],
    into: &Path,
) -> Result<(), EvalError> {
    let (done, missing) = records(cases, from)?;
    assemble(experiment, text, known, done, missing)?.write(into)?;
    Ok(())
}
