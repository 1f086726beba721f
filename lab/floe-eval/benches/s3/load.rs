//! The load: `wrk`, which reads objects of one length in random order.

use std::fs;
use std::process::Command;

use crate::AnyError;
use crate::peer::Peer;

/// Objects of one length, and the connections that read them.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
    /// Different ones, so that few readers read the same at once. All objects of all cases fit
    /// the RAM tier of a default installation.
    pub(crate) objects: usize,
    pub(crate) connections: &'static [u32],
}

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "4 KiB",
        bytes: 4 << 10,
        objects: 256,
        connections: &[1, 64],
    },
    Case {
        name: "64 KiB",
        bytes: 64 << 10,
        objects: 256,
        connections: &[1, 64],
    },
    Case {
        name: "1 MiB",
        bytes: 1 << 20,
        objects: 64,
        connections: &[1, 64],
    },
    Case {
        name: "16 MiB",
        bytes: 16 << 20,
        objects: 6,
        connections: &[8],
    },
];

impl Case {
    /// The path of an object in the bucket.
    pub(crate) fn object(&self, number: usize) -> String {
        format!("{}/{number}", self.name.replace(' ', ""))
    }

    /// The bytes of an object.
    pub(crate) fn content(&self, number: usize) -> Vec<u8> {
        (0..self.bytes)
            .map(|at| ((at + number) * 31 % 251) as u8)
            .collect()
    }
}

/// Asks for the objects at random, and prints what a run counted.
const SCRIPT: &str = r#"
request = function()
  return wrk.format("GET", string.format(PATH, math.random(0, OBJECTS - 1)))
end
done = function(summary, latency)
  local errors = summary.errors
  local failed = errors.status + errors.read + errors.write + errors.connect + errors.timeout
  io.write(string.format("counted %d %d %d %d %d %d\n", summary.requests, summary.bytes,
    summary.duration, latency:percentile(50), latency:percentile(99.9), failed))
end
"#;

/// The counts of one slice, or the sums of several slices of one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) requests: u64,
    /// With the heads of responses.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    /// The median and the 99.9th percentile of each slice, in microseconds.
    latencies: [Vec<u64>; 2],
}

impl Slice {
    pub(crate) fn add(&mut self, other: Slice) {
        for (all, more) in self.latencies.iter_mut().zip(other.latencies) {
            all.extend(more);
        }
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.seconds += other.seconds;
        self.cpu_seconds += other.cpu_seconds;
    }

    pub(crate) fn per_cpu_second(&self) -> f64 {
        self.requests as f64 / self.cpu_seconds.max(1e-3)
    }

    /// Its latencies at the median and at the 99.9th percentile.
    pub(crate) fn p50_and_p999(&self) -> [OfSlices; 2] {
        self.latencies.clone().map(OfSlices::from)
    }

    pub(crate) fn bytes_each(&self) -> f64 {
        self.bytes as f64 / self.requests.max(1) as f64
    }
}

/// A percentile of latencies in microseconds, over slices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfSlices {
    pub(crate) least: u64,
    pub(crate) median: u64,
    pub(crate) most: u64,
}

impl From<Vec<u64>> for OfSlices {
    fn from(mut of_slices: Vec<u64>) -> Self {
        of_slices.sort_unstable();
        let last = of_slices.len() - 1;
        OfSlices {
            least: of_slices[0],
            median: of_slices[last / 2],
            most: of_slices[last],
        }
    }
}

/// Asks a peer for some seconds.
pub(crate) fn slice(
    peer: &Peer,
    case: &Case,
    connections: u32,
    seconds: u32,
) -> Result<Slice, AnyError> {
    // Whole, and in the cache, before anything is counted.
    verify(peer, case, 2)?;
    slice_by(Command::new("env"), peer, case, connections, seconds)
}

/// Reads all objects of a case some times, and compares them.
pub(crate) fn verify(peer: &Peer, case: &Case, times: usize) -> Result<(), AnyError> {
    for number in (0..case.objects).cycle().take(times * case.objects) {
        if peer.get(&case.object(number))? != case.content(number) {
            return Err(format!("{} returned other bytes of {}", peer.name, case.name).into());
        }
    }
    Ok(())
}

/// Asks a peer for some seconds, with the load as an argument of another program.
pub(crate) fn slice_by(
    mut program: Command,
    peer: &Peer,
    case: &Case,
    connections: u32,
    seconds: u32,
) -> Result<Slice, AnyError> {
    let script = peer.folder.join("counted.lua");
    let objects = format!(
        "PATH = \"/bucket/{}/%d\"\nOBJECTS = {}\n",
        case.name.replace(' ', ""),
        case.objects
    );
    fs::write(&script, objects + SCRIPT)?;
    let stored = peer.stored_bytes()?;
    let before = peer.cpu_seconds()?;
    let wrk = program.args(["wrk", "-t", "1", "-c", &connections.to_string()]);
    wrk.args(["-d", &format!("{seconds}s"), "--timeout", "30s", "-s"]);
    let output = wrk.arg(&script).arg(peer.url()).output();
    let output = output.map_err(|error| format!("wrk, of the package wrk: {error}"))?;
    let cpu_seconds = peer.cpu_seconds()? - before;
    let output = String::from_utf8(output.stdout)?;
    let counted = output
        .lines()
        .find_map(|line| line.strip_prefix("counted "));
    let counted = counted.ok_or("wrk counted nothing")?.split(' ');
    let counted: Vec<u64> = counted.map(str::parse).collect::<Result<_, _>>()?;
    let [requests, bytes, duration_us, p50_us, p999_us, failed] = counted[..] else {
        return Err("wrk counted something else".into());
    };
    let stored = peer.stored_bytes()? - stored;
    if peer.reads_past_page_cache() && stored < bytes / 10 * 9 {
        return Err(format!("{} read {stored} B to send {bytes} B", peer.name).into());
    }
    if failed > 0 || requests == 0 {
        return Err(format!("{}: {failed} requests failed: {output}", peer.name).into());
    }
    Ok(Slice {
        requests,
        bytes,
        seconds: duration_us as f64 / 1e6,
        cpu_seconds,
        latencies: [vec![p50_us], vec![p999_us]],
    })
}
