//! How fast the SSD model is: die operations per second of one processor.
//!
//! ```text
//! cargo run --release -p floe-eval --example ssd_speed
//! ```

use floe_core::Tick;
use floe_core::ssd::{Command, CommandId, ConfigFault, Interface, Ssd, SsdConfig};

fn main() -> Result<(), ConfigFault> {
    for (name, config) in [
        ("zoned, appends", SsdConfig::zn540()),
        (
            "conventional, preconditioned, overwrites",
            SsdConfig::sn540(),
        ),
    ] {
        let is_zoned = matches!(
            config.flash().map(|flash| &flash.interface),
            Some(Interface::Zoned(_))
        );
        let mut ssd = Ssd::new(config, 42)?;
        ssd.precondition();
        let mut done = Vec::new();
        let bytes = 1 << 20;
        let mut now = Tick::ZERO;
        let mut next = 0u64;
        let mut state = 1u64;
        let mut issue = |ssd: &mut Ssd, now, id| {
            next += 1;
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let command = match (is_zoned, next % 3) {
                (_, 0) => Command::Read {
                    offset: (state >> 33) % 64 * bytes,
                    bytes,
                },
                (true, _) => Command::Append {
                    zone: (next / 1500) as u32,
                    bytes,
                },
                (false, _) => Command::Write {
                    offset: (state >> 33) % 800_000 * bytes,
                    bytes,
                    handle: 0,
                },
            };
            if let Err(refusal) = ssd.submit(now, CommandId(id), command) {
                println!("{command:?} was refused: {refusal}");
            }
        };
        for id in 0..32 {
            issue(&mut ssd, now, id);
        }
        let start = std::time::Instant::now();
        for _ in 0..300_000 {
            done.clear();
            now = ssd.advance_to_completion(Tick::MAX, &mut done);
            for completion in done.clone() {
                issue(&mut ssd, now, completion.id.0);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let operations = ssd.statistics().die_operations as f64;
        println!(
            "{name}: {:.1} M die operations/s",
            operations / seconds / 1e6
        );
    }
    Ok(())
}
