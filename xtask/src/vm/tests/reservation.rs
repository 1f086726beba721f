//! Two hosts that reach one backing device over the kernel's NVMe target, each with a server.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::service::{Service, Site, Volume, prepare_folders};
use super::stage::Stage;
use crate::blackbox::nbd::Endpoint;
use crate::blackbox::volume_load::Part;

const PATIENCE: Duration = Duration::from_secs(60);

const FIRST: Site = Site {
    name: "the first host",
    number: 0,
    cache: "conv-1",
    tiny: None,
    volume: Some(Volume::new("conv-2", "shared-of-1")),
    is_user: false,
};

const SECOND: Site = Site {
    name: "the second host",
    number: 1,
    cache: "conv-4",
    volume: Some(Volume::new("conv-3", "shared-of-2")),
    ..FIRST
};

/// Sectors of the volume that are written.
const SECTORS: u64 = 4_096;

const RESERVE: &str = ",reserve=required";

fn start(stage: &Stage, site: Site) -> Result<Service> {
    Service::start_with(stage, site, RESERVE)
}

/// True if the device takes a write of this host. It writes what is there.
fn writes(stage: &Stage, host: u8) -> Result<bool> {
    let disk = format!("/dev/vm/shared-of-{host}");
    let copy = format!(
        "dd if={disk} of=/tmp/sector bs=4096 count=1 status=none
         dd if=/tmp/sector of={disk} bs=4096 count=1 oflag=direct conv=notrunc status=none \
         && echo taken || echo refused"
    );
    let output = stage.machine.guest().shell(&copy, PATIENCE)?;
    Ok(output.contains("taken"))
}

/// The key of the holder, in the error of a server that is refused.
fn holder(stage: &Stage, refused: Result<Service>) -> Result<String> {
    let error = match refused {
        Ok(service) => {
            let log = service.stop(&stage.machine)?;
            bail!("a second machine attached the device: {log}")
        }
        Err(error) => format!("{error:#}"),
    };
    let key = error.split_once("reserved by another machine, by the key ");
    let key = key.and_then(|(_, rest)| rest.get(..16));
    Ok(key
        .with_context(|| format!("no key in: {error}"))?
        .to_owned())
}

pub(super) fn two_machines(stage: &Stage) -> Result<()> {
    prepare_folders(&stage.machine)?;
    FIRST.prepare(&stage.machine)?;
    for disk in ["conv-3", "conv-4"] {
        super::service::blank(&stage.machine, disk)?;
    }
    ensure!(
        writes(stage, 1)? && writes(stage, 2)?,
        "nothing is reserved yet"
    );
    let first = start(stage, FIRST)?;
    let mut part = Part::new(Endpoint::Tcp(FIRST.nbd(&stage.machine)), 0..SECTORS);
    let mut client = part.connect()?;
    part.fill(&mut client)?;
    part.flush(&mut client)?;
    part.drain(&mut client)?;
    ensure!(
        writes(stage, 1)? && !writes(stage, 2)?,
        "the first host has it"
    );
    let key = holder(stage, start(stage, SECOND))?;

    // The reservation outlives the server, whose cache has dirty data.
    first.kill(&stage.machine)?;
    ensure!(!writes(stage, 2)?, "the reservation ended with its server");
    ensure!(holder(stage, start(stage, SECOND))? == key, "another key");
    let first = start(stage, FIRST)?;
    part.verify().context("after the restart")?;
    ensure!(!writes(stage, 2)?, "the restart gave the reservation up");

    // The first host is declared lost.
    let second = Service::start_with(stage, SECOND, &format!("{RESERVE},take-from={key}"))?;
    ensure!(
        !writes(stage, 1)? && writes(stage, 2)?,
        "the second host has it"
    );
    first.kill(&stage.machine)?;
    let own = holder(stage, start(stage, FIRST))?;
    ensure!(own != key, "both have one key");
    second.stop(&stage.machine)?;
    ensure!(
        holder(stage, start(stage, FIRST))? == own,
        "a clean stop keeps it"
    );
    println!("vm:   the device refuses the host without the reservation; keys {key}, {own}");
    Ok(())
}
