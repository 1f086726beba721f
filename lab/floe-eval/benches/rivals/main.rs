//! Floe, memcached with and without extstore, and foyer: the same requests
//! over the same protocol, on the same file system, with the same memory.
//!
//! `cargo bench -p floe-eval --bench rivals -- --floe PATH [--foyer PATH]
//! [--fill | --scale [--flash-gib N]] [--quick] [--json] [--folder PATH] [--only
//! NAME]`; `cargo xtask bench rivals` and, for `--fill` and `--scale`, `cargo xtask
//! bench fill` and `scale` build the programs and say where they are.
//!
//! Every peer is a process of its own behind a Unix socket. They are
//! asked in turns, in short slices, so that a disturbance hits all. What is
//! counted of each is the processor time and the bytes written of its process.
//! Values are checked whole: a wrong one ends the run.

mod client;
mod fill;
mod load;
mod scale;
mod server;

use std::path::PathBuf;

use load::Case;
use serde_json::Value;
use server::{Peer, Programs};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The arguments of the command line.
struct Arguments {
    programs: Programs,
    folder: PathBuf,
    only: Vec<String>,
    fill: bool,
    scale: bool,
    flash_gib: Option<u64>,
    quick: bool,
    json: bool,
}

impl Arguments {
    fn read() -> Result<Self, AnyError> {
        let mut arguments = Arguments {
            programs: Programs::default(),
            folder: std::env::temp_dir(),
            only: Vec::new(),
            fill: false,
            scale: false,
            flash_gib: None,
            quick: false,
            json: false,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--floe" => arguments.programs.floe = Some(value()?.into()),
                "--foyer" => arguments.programs.foyer = Some(value()?.into()),
                "--folder" => arguments.folder = value()?.into(),
                "--only" => arguments.only.push(value()?),
                "--fill" => arguments.fill = true,
                "--scale" => arguments.scale = true,
                "--flash-gib" => arguments.flash_gib = Some(value()?.parse()?),
                "--quick" => arguments.quick = true,
                "--json" => arguments.json = true,
                // Cargo's own.
                "--bench" => {}
                other => return Err(format!("{other} is not understood").into()),
            }
        }
        Ok(arguments)
    }
}

fn main() -> Result<(), AnyError> {
    let arguments = Arguments::read()?;
    std::fs::create_dir_all(&arguments.folder)?;
    let wanted = |name: &str| {
        arguments.only.is_empty() || arguments.only.iter().any(|only| name.contains(only))
    };
    if arguments.scale {
        let mut runs = scale::runs(arguments.flash_gib, arguments.quick);
        runs.retain(|(engine, _)| wanted(engine));
        let (programs, folder) = (&arguments.programs, &arguments.folder);
        let show = |row| show(&row, arguments.json);
        return scale::run(&runs, arguments.quick, programs, folder, show);
    }
    let cases = match arguments.fill {
        true => vec![Case::fill(arguments.quick)],
        false => Case::all(arguments.quick).to_vec(),
    };
    for case in cases {
        let folder = tempfile::Builder::new()
            .prefix("rivals-")
            .tempdir_in(&arguments.folder)?;
        let mut peers = Peer::start_all(&arguments.programs, &case, folder.path())?;
        peers.retain(|peer| wanted(peer.name));
        let rows = match arguments.fill {
            true => fill::run(&case, &peers)?,
            false => load::run(&case, &mut peers)?,
        };
        for row in rows {
            show(&row, arguments.json);
        }
    }
    Ok(())
}

fn show(row: &Value, as_json: bool) {
    if as_json {
        println!("{row}");
        return;
    }
    let text = |name: &str| row[name].to_string().trim_matches('"').to_owned();
    match row.get("engine") {
        Some(_) => println!("\n{} on {} GiB", text("engine"), text("flash_gib")),
        None => println!("\n{} at {} B", text("peer"), text("value_bytes")),
    }
    for (name, figure) in row.as_object().into_iter().flatten() {
        if !matches!(
            name.as_str(),
            "peer" | "value_bytes" | "engine" | "flash_gib"
        ) {
            println!("  {:<36} {figure}", name.replace('_', " "));
        }
    }
}
