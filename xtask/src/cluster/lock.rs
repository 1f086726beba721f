//! Two machines that would attach one backing device, with a lock in etcd.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::network::{ETCD, Machine, NODES};
use super::programs::{self, Node, Program};
use crate::blackbox::nbd::{Client, Command, Endpoint, Reply};

pub(super) const NAME: &str = "volume-lock";

const NBD: u16 = 10809;
const BLOCK: usize = 4096;
const STORE_BYTES: u64 = 64 << 20;

/// The time in which a machine learns that its lock was taken away.
const LEARNING_TIME: Duration = Duration::from_secs(7);

/// Runs the trial: the second machine is refused and told the holder, also after the holder was
/// killed; the volume goes on without etcd; and a lock that is taken away ends the first one.
///
/// # Errors
/// Both had the device at once, or one had old data.
pub(super) fn run(binary: &Path, folder: &Path) -> Result<()> {
    println!("cluster: {NAME}: two machines, one backing device, a lock in etcd");
    let etcd = programs::etcd(folder, &[])?;
    let [one, two, store] = NODES;
    let image = folder.join("store.img");
    File::create(&image)?.set_len(STORE_BYTES)?;
    let image = format!("disk={},mode=pass-through", image.display());
    let _store = node(store, binary, folder, image, &[]).start()?;
    let locked = |machine, more: &str| {
        let volume = format!(
            "disk=nbd://{}:{NBD}/disk,mode=write-back,lock=store/disk{more}",
            store.address()
        );
        let etcd = format!("--node-etcd=http://{}:2379", ETCD.address());
        let more = [
            etcd,
            "--node-rejoin=wait".to_owned(),
            "--node-lease-ms=3000".to_owned(),
        ];
        node(machine, binary, folder, volume, &more)
    };
    let first = locked(one, "").start()?;
    ensure!(write(one, 1)? == 0, "the first machine cannot write");

    let refusal = refused(&locked(two, ""))?;
    let key = refusal
        .split_once(&format!("{}, by the key ", one.name))
        .and_then(|(_, rest)| rest.get(..16))
        .with_context(|| format!("the refusal does not tell the holder: {refusal}"))?
        .to_owned();
    first.end("KILL")?;
    refused(&locked(two, ""))?;
    let first = locked(one, "").start().context("the holder starts again")?;
    ensure!(read(one)?.data == [1; BLOCK], "the holder lost dirty data");

    etcd.end("TERM")?;
    std::thread::sleep(LEARNING_TIME);
    ensure!(
        read(one)?.data == [1; BLOCK],
        "without etcd, the holder does not go on"
    );
    let _etcd = programs::etcd(folder, &[])?;
    std::thread::sleep(LEARNING_TIME);

    let began = Instant::now();
    let second = locked(two, &format!(",take-from={key}")).start()?;
    ensure!(
        began.elapsed() >= LEARNING_TIME,
        "it did not wait for the holder to learn of it"
    );
    ensure!(write(two, 2)? == 0, "the second machine cannot write");
    ensure!(read(one)?.error != 0, "the first machine still answers");
    ensure!(write(one, 3)? != 0, "the first machine still writes");
    ensure!(
        read(two)?.data == [2; BLOCK],
        "the second machine has other data"
    );
    first.end("KILL")?;
    refused(&locked(one, ""))?;
    second.end("KILL")?;
    let _second = locked(two, "").start()?;
    ensure!(
        read(two)?.data == [2; BLOCK],
        "the second machine lost dirty data"
    );
    Ok(())
}

/// A machine with a volume.
fn node(machine: Machine, binary: &Path, folder: &Path, volume: String, more: &[String]) -> Node {
    let listen = format!("{}:{NBD}", machine.address());
    let options = [
        "--nbd-listen",
        &listen,
        "--nbd-anonymous=true",
        "--volume",
        &volume,
    ];
    let of_cache = ["--volumes-size", "32MiB"];
    let options = options.into_iter().chain(of_cache).map(str::to_owned);
    Node {
        machine,
        binary: binary.to_owned(),
        folder: folder.to_owned(),
        config: None,
        s3_keys: None,
        more: options.chain(more.iter().cloned()).collect(),
        minutes_off: 0,
    }
}

/// Starts a machine that must be refused; what it says.
fn refused(node: &Node) -> Result<String> {
    let started: Result<Program> = node.start();
    match started {
        Ok(_) => bail!("{} has the device, too", node.machine.name),
        Err(error) => Ok(format!("{error:#}")),
    }
}

fn connect(machine: Machine) -> Result<Client> {
    let address = SocketAddr::from((machine.address(), NBD));
    Ok(Client::open(&Endpoint::Tcp(address), "disk")?)
}

/// Reads the first block.
fn read(machine: Machine) -> Result<Reply> {
    let mut client = connect(machine)?;
    client.send(Command::Read(BLOCK as u32), 0)?;
    Ok(client.receive()?)
}

/// Fills the first block, durably; the error number.
fn write(machine: Machine, byte: u8) -> Result<u32> {
    let mut client = connect(machine)?;
    client.send(Command::Write(&[byte; BLOCK], true), 0)?;
    Ok(client.receive()?.error)
}
