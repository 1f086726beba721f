//! Floe, nginx and Varnish in front of the same objects: reads of cached objects over HTTP.
//!
//! `cargo bench -p floe-eval --bench s3 -- --floe PATH [--quick] [--json] [--folder PATH]
//! [--only NAME] [--objects '4 KiB'] [--far] [--ring]`; `cargo xtask bench s3` builds Floe and says
//! where it is. `wrk` sends each peer as many requests as the peer can answer. Then each peer gets
//! requests at the same rate. With `--far` Floe is measured in front of an S3 service that is 20 ms away, and with
//! `--ring` three nodes are, behind HAProxy.
//!
//! Every peer is asked in turns, in short slices, so that a disturbance hits all. What is
//! counted of each is the processor time of its processes, not that of the load or of the
//! origin. A response of another length or status ends the run.

mod far;
mod load;
mod origin;
mod paced;
mod peer;
mod relay;
mod ring;

use std::fs;
use std::path::{Path, PathBuf};

use load::{CASES, Case, OfSlices, Slice};
use peer::{Peer, start_all};
use serde_json::{Value, json};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The arguments of the command line.
struct Arguments {
    floe: PathBuf,
    folder: PathBuf,
    only: Vec<String>,
    objects: Vec<String>,
    quick: bool,
    json: bool,
    far: bool,
    ring: bool,
}

impl Arguments {
    fn read() -> Result<Self, AnyError> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let has = |flag: &str| words.iter().any(|word| word == flag);
        let values = |flag: &'static str| {
            let pairs = words.windows(2).filter(move |pair| pair[0] == flag);
            pairs.map(|pair| pair[1].clone())
        };
        let floe = values("--floe").next().ok_or("--floe names the program")?;
        let folder = values("--folder").next().map(PathBuf::from);
        Ok(Arguments {
            floe: floe.into(),
            folder: folder.unwrap_or_else(std::env::temp_dir),
            only: values("--only").collect(),
            objects: values("--objects").collect(),
            quick: has("--quick"),
            json: has("--json"),
            far: has("--far"),
            ring: has("--ring"),
        })
    }
}

/// A bench without nginx and Varnish: the program, a folder, whether it is short, and what takes a
/// row.
type Alone = fn(&Path, &Path, bool, &dyn Fn(Value)) -> Result<(), AnyError>;

fn main() -> Result<(), AnyError> {
    let arguments = Arguments::read()?;
    fs::create_dir_all(&arguments.folder)?;
    let folder = tempfile::Builder::new()
        .prefix("s3-")
        .tempdir_in(&arguments.folder)?;
    let alone = [
        (arguments.far, far::run as Alone),
        (arguments.ring, ring::run),
    ];
    if let Some((_, run)) = alone.into_iter().find(|(asked, _)| *asked) {
        let show = |row| match arguments.json {
            true => println!("{row}"),
            false => println!("{row:#}"),
        };
        return run(&arguments.floe, folder.path(), arguments.quick, &show);
    }
    let bucket = folder.path().join("origin/bucket");
    for case in CASES {
        fs::create_dir_all(bucket.join(case.object(0)).with_file_name(""))?;
        for number in 0..case.objects {
            fs::write(bucket.join(case.object(number)), case.content(number))?;
        }
    }
    let peers = start_all(&arguments.floe, folder.path(), &arguments.only)?;
    let (rounds, seconds) = if arguments.quick { (1, 1) } else { (5, 2) };
    let asked = |case: &&Case| {
        arguments.objects.is_empty() || arguments.objects.iter().any(|name| name == case.name)
    };
    for case in CASES.iter().filter(asked) {
        for &connections in case.connections {
            let mut sums = vec![Slice::default(); peers.len()];
            for _ in 0..rounds {
                for (peer, sum) in peers.iter().zip(&mut sums) {
                    sum.add(load::slice(peer, case, connections, seconds)?);
                }
            }
            for (peer, sum) in peers.iter().zip(&sums) {
                let rival = peers.iter().position(|other| other.name == peer.rival);
                let rival = rival.map(|rival| &sums[rival]);
                show(
                    &row(peer, case.name, connections, sum, rival),
                    arguments.json,
                );
            }
        }
        if let Some(rate) = paced::rate(case) {
            for row in paced_rows(&peers, case, rate, (rounds, seconds))? {
                show(&row, arguments.json);
            }
        }
    }
    Ok(())
}

/// The latencies of all peers at the same rate of requests.
fn paced_rows(
    peers: &[Peer],
    case: &Case,
    rate: u32,
    (rounds, seconds): (u64, u32),
) -> Result<Vec<Value>, AnyError> {
    let mut sums = vec![[const { Vec::new() }; 3]; peers.len()];
    for seed in 0..rounds {
        for (peer, sum) in peers.iter().zip(&mut sums) {
            let of_slice = paced::slice(peer, case, rate, seconds, seed)?;
            for (all, one) in sum.iter_mut().zip(of_slice) {
                all.push(one);
            }
        }
    }
    let figure = format!(
        "{}, {} connections, {rate} requests/s",
        case.name,
        paced::CONNECTIONS
    );
    let rows = peers.iter().zip(sums).map(|(peer, sum)| {
        let [p50, p99, p999] = sum.map(OfSlices::from);
        json!({
            "figure": figure,
            "peer": peer.name,
            "p50_us": p50.median,
            "p99_us": p99.median,
            "p999_us": p999.median,
            "p999_us_least": p999.least,
            "p999_us_most": p999.most,
        })
    });
    Ok(rows.collect())
}

fn row(peer: &Peer, object: &str, connections: u32, sum: &Slice, rival: Option<&Slice>) -> Value {
    let rounded = |figure: f64| (figure * 100.0).round() / 100.0;
    let [p50, p999] = sum.p50_and_p999();
    json!({
        "figure": format!("{object}, {connections} connections"),
        "peer": peer.name,
        "requests_per_cpu_second": sum.per_cpu_second().round(),
        "gb_per_cpu_second": rounded(sum.per_cpu_second() * sum.bytes_each() / 1e9),
        "requests_per_second": (sum.requests as f64 / sum.seconds).round(),
        "p50_us": p50.median,
        "p999_us": p999.median,
        "p999_us_least": p999.least,
        "p999_us_most": p999.most,
        "of": peer.rival,
        "ratio": rival.map(|rival| rounded(sum.per_cpu_second() / rival.per_cpu_second())),
    })
}

fn show(row: &Value, as_json: bool) {
    if as_json {
        println!("{row}");
        return;
    }
    let fields = row.as_object().into_iter().flatten();
    let shown = fields.filter(|(_, value)| !value.is_null());
    let shown = shown.map(|(name, value)| format!("{name} {value}"));
    println!("{}", shown.collect::<Vec<_>>().join(", "));
}
