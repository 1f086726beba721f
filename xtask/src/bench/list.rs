//! The benchmarks and their commands.

use anyhow::Result;

use crate::built::{self, Profile};
use crate::project;

/// A benchmark.
pub(super) struct Bench {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Words after `cargo`. The benches of the workspace are built with the features of
    /// all of it, so that they share their dependencies.
    pub(super) cargo: &'static [&'static str],
    /// The directory that it runs in.
    pub(super) folder: &'static str,
    /// Further arguments.
    pub(super) full: &'static [&'static str],
    /// Arguments of a quick run.
    pub(super) quick: &'static [&'static str],
    /// Builds further programs, and returns arguments that name them.
    pub(super) prepare: Option<fn() -> Result<Vec<String>>>,
}

/// A benchmark that prints its rows as JSON.
const JSON: Bench = Bench {
    name: "",
    about: "",
    cargo: &[],
    folder: "",
    full: &["--json"],
    quick: &["--json", "--quick"],
    prepare: None,
};

/// A benchmark that prints its rows as JSON, without further arguments.
const fn json(name: &'static str, about: &'static str, cargo: &'static [&'static str]) -> Bench {
    Bench {
        name,
        about,
        cargo,
        ..JSON
    }
}

/// Every benchmark.
pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "device",
        about: "The device back ends against a raw io_uring loop on the same file",
        cargo: &["bench", "--workspace", "--bench", "ring", "--"],
        full: &["1024", "2"],
        quick: &["256", "1"],
        ..JSON
    },
    json(
        "store",
        "Flash hits through the library against a raw io_uring loop on the same file",
        &["bench", "--workspace", "--bench", "store", "--"],
    ),
    json(
        "purges",
        "Metadata of objects in memory, read in mode `immutable`, with live purges of prefixes of 50 lengths, each of which every read asks for: processor time of a read, and the part of the purges",
        &["bench", "--workspace", "--bench", "purges", "--"],
    ),
    json(
        "tiny",
        "The cores of the engines for tiny objects on modelled flash, without I/O: operations of a mix like Twitter's, filters, lookups in memory, by processor time",
        &["bench", "--workspace", "--bench", "tiny", "--"],
    ),
    Bench {
        name: "tiny-steps",
        about: "The longest step of Nemo, by processor time, on modelled flash that is filled and a fifth of which is written again: a driver holds its lock for one step. The same steps are done twice, and the shorter time of each counts, since a virtual machine counts what its host takes away. A step that met memory for the first time took a page fault, which the kernel and the host of a virtual machine answer: the longest without one stands beside it",
        cargo: &["bench", "--workspace", "--bench", "tiny", "--"],
        full: &["--steps", "--json"],
        quick: &["--steps", "--json", "--quick"],
        ..JSON
    },
    json(
        "stalls",
        "Gets of tiny values from the RAM tier, 4,000 a second, while 50,000 values a second are put: new keys, which fill set-groups on a file, beside the same load on few keys, which fills none, in turns",
        &["bench", "--workspace", "--bench", "stalls", "--"],
    ),
    json(
        "volume",
        "The core of the block cache of volumes, without I/O: lookups at 10 M blocks beside random reads of memory, requests, RAM per block, by processor time",
        &["bench", "--workspace", "--bench", "volume", "--"],
    ),
    Bench {
        name: "memcached",
        about: "Gets of values in memory over memcached's protocol: requests per second of the server's processor time, beside the installed memcached",
        cargo: &["bench", "--workspace", "--bench", "memcached", "--"],
        ..JSON
    },
    json(
        "volumes",
        "The driver of volumes: hits of 4 KiB on devices in memory beside the device alone, one after the other, by processor time; two threads beside one, and beside copies of 4 KiB without locks; hits on a file beside a plain io_uring loop; starts after an unclean stop",
        &["bench", "--workspace", "--bench", "volumes", "--"],
    ),
    Bench {
        name: "ssd",
        about: "The SSD model, and the papers' hosts over it, in time of one processor, beside what it must reach",
        cargo: &["bench", "--workspace", "--bench", "ssd", "--"],
        ..JSON
    },
    Bench {
        name: "peers",
        about: "Floe and foyer on the same file system with the same sizes, workload and threads",
        cargo: &["run", "--release", "--quiet", "--"],
        folder: "lab/peers",
        ..JSON
    },
    Bench {
        name: "rivals",
        about: "Floe, memcached with and without extstore, and foyer behind the same protocol, with the same memory and flash: a burst of sets, gets from flash, and the mix of Twitter's clusters with a set after every miss, once every peer has written all of its flash. The second half of the mix counts, and the first is shown beside it. Processor time and bytes written are those of the server's process, also of what it does between its turns",
        cargo: &["bench", "--workspace", "--bench", "rivals", "--"],
        prepare: Some(rivals),
        ..JSON
    },
    Bench {
        name: "fill",
        about: "New keys only, values of 226 B, pipelined 64 deep by one client until they take 1.05 times 1 GiB of flash: bytes that the server's process wrote to the device for each byte accepted, fences included, and how many of the newest keys are not found afterwards; Floe, foyer and memcached with extstore behind the same protocol",
        cargo: &["bench", "--workspace", "--bench", "rivals", "--"],
        full: &["--fill", "--json"],
        quick: &["--fill", "--json", "--quick"],
        prepare: Some(rivals),
        ..JSON
    },
    Bench {
        name: "scale",
        about: "The engines for tiny objects on a file of 4 GiB behind memcached's protocol, and Nemo on one of 32 GiB, with Floe's defaults: three turnovers (FairyWREN one) of new keys with values of 230 B, 256 sets in flight; then, once flash is full, gets of the newest half of the keys and sets of new ones, each at its time, from which its latency counts; then a start after a stop, and one after a kill amid sets, until half of the gets of the newest keys hit again. Processor time, bytes written and the most memory (`resident mib`) are those of the server's process, and `announced mib` is what it said at its start of its own, of tiny objects and of buffers that the kernel pins; the clients run on the same cores",
        cargo: &["bench", "--workspace", "--bench", "rivals", "--"],
        full: &["--scale", "--json"],
        quick: &["--scale", "--json", "--quick"],
        prepare: Some(scale),
        ..JSON
    },
    Bench {
        name: "s3",
        about: "Reads of cached objects over HTTP, in front of a directory with the same files: requests and bytes per second of the processor time of the server's processes, and its latencies, the median, least and most of five slices; beside nginx with `proxy_cache` that serves from the page cache or revalidates each request, nginx that reads the same files with `directio`, and Varnish, each with a worker for each core, if they are installed. The ratio is that to the peer with the same promise. The load is wrk's, as much as a peer can do. In the rows with a rate each request has its time, from which its latency counts, and all peers have the same load",
        cargo: &["bench", "--workspace", "--bench", "s3", "--"],
        prepare: Some(s3),
        ..JSON
    },
    Bench {
        name: "far",
        about: "Reads in front of an S3 service that answers after 20 ms, by one client on one connection: the time to the first byte, and its excess over the origin's own HEAD or GET in the same run (over nothing in modes that do not ask). In turns with them a bare server: where the origin is asked a relay that only passes bytes on, else one that answers at once. `busy` is beside 32 other connections to the same server, each of which asks again at once, for hits or for misses. Requests to the origin for each read; 64 readers of one cached object at once; and the resident memory of many connections beyond that of none. nginx with `proxy_cache` is in front of the same service, and its status is checked",
        cargo: &["bench", "--workspace", "--bench", "s3", "--"],
        prepare: Some(s3),
        full: &["--far", "--json"],
        quick: &["--far", "--json", "--quick"],
        ..JSON
    },
    Bench {
        name: "ring",
        about: "Reads of cached objects through HAProxy in front of three Floe nodes, and in the same run in front of three servers that answer from memory whatever is asked. HAProxy has one thread on a processor of its own, and the configuration of packaging/ring. The servers and the load, wrk's, share the other processors. `proxy busy` is HAProxy's processor time for each second: it limits where that is 1. `servers us each` is the processor time of all servers for a request. With `processors of servers at limit` they would keep HAProxy busy",
        cargo: &["bench", "--workspace", "--bench", "s3", "--"],
        prepare: Some(s3),
        full: &["--ring", "--json"],
        quick: &["--ring", "--json", "--quick"],
        ..JSON
    },
    Bench {
        name: "nbd",
        about: "Reads and writes of 4 KiB over NBD on a Unix socket by one client: requests per second of the server's processor time, and mean latency at depth 1, the median of seven slices; beside a bare loop that moves the same bytes, and nbdkit's memory plugin and qemu-nbd on a file in memory, if they are installed",
        cargo: &["bench", "--workspace", "--bench", "nbd", "--"],
        ..JSON
    },
];

pub(super) fn names() -> Vec<&'static str> {
    BENCHES.iter().map(|bench| bench.name).collect()
}

/// Builds Floe, and returns arguments that name it and a folder.
fn floe_in(folder: &str) -> Result<Vec<String>> {
    let folder = project::target_dir().join(folder);
    let floe = built::build_floe(Profile::Release)?;
    let words = [("--floe", &floe), ("--folder", &folder)];
    let words = words.iter();
    let words = words.flat_map(|(word, path)| [(*word).to_owned(), path.display().to_string()]);
    Ok(words.collect())
}

fn s3() -> Result<Vec<String>> {
    floe_in("s3")
}

fn scale() -> Result<Vec<String>> {
    floe_in("scale")
}

/// Builds the servers for the bench `rivals`, and returns arguments that name them.
fn rivals() -> Result<Vec<String>> {
    let mut words = floe_in("rivals")?;
    let peers = project::root().join("lab/peers");
    let built = project::run(
        project::cargo()
            .current_dir(&peers)
            .args(["build", "--release"]),
    );
    match built {
        Ok(()) => {
            let target = match std::env::var_os("CARGO_TARGET_DIR") {
                Some(_) => project::target_dir(),
                None => peers.join("target"),
            };
            let foyer = target.join("release/peers");
            words.extend(["--foyer".to_owned(), foyer.display().to_string()]);
        }
        Err(error) => eprintln!("SKIPPED foyer: it could not be built: {error:#}"),
    }
    Ok(words)
}
