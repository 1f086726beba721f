//! Dies. Each does one operation at a time. Reads for hosts go first: they
//! suspend a program, up to a limit of suspensions. After a burst of reads, the
//! operation that waits is resumed or begun.

use std::collections::VecDeque;

use super::config::NandConfig;
use super::saved::{Reader, StateFault, Writer};
use super::statistics::{DieBusy, Programmed};

const NEVER: u64 = u64::MAX;

#[derive(Clone, Debug)]
pub(super) struct Nand {
    dies: Vec<Die>,
    /// When each die ends its operation.
    due: Vec<u64>,
    read_page_ns: u64,
    program_ns: u64,
    erase_ns: u64,
    read_burst_ns: u64,
    suspends_max: u32,
    operations: u64,
}

#[derive(Clone, Debug, Default)]
struct Die {
    reads: VecDeque<Read>,
    work: VecDeque<Work>,
    current: Current,
    started: u64,
    /// A suspended program and its remaining time.
    suspended: Option<(Program, u64)>,
    /// Suspensions of the program that runs or is suspended.
    suspends: u32,
    /// How long reads have run while other operations wait.
    burst_ns: u64,
    busy: DieBusy,
}

#[derive(Clone, Copy, Debug, Default)]
enum Current {
    #[default]
    Idle,
    Read(Read),
    Work(Work),
}

/// A read for a host, and the command that it is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) command: u32,
    pub(super) pages: u32,
    pub(super) bytes: u32,
}

/// A program of a superblock in one of its lives, and its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) superblock: u32,
    pub(super) life: u32,
    pub(super) bytes: Portions,
}

/// The bytes of a program by cause; all zero for parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Portions {
    pub(super) host: u32,
    pub(super) collected: u32,
    pub(super) rewritten: u32,
    pub(super) padding: u32,
}

/// An operation in the queue of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Program(Program),
    Erase {
        superblock: u32,
    },
    /// For garbage collection, or for a partial write, which has no move
    /// number.
    Read {
        move_number: Option<u32>,
        pages: u32,
    },
}

/// An operation that a die has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finished {
    Read(Read),
    Work(Work),
}

impl Portions {
    pub(super) fn total(&self) -> u64 {
        u64::from(self.host)
            + u64::from(self.collected)
            + u64::from(self.rewritten)
            + u64::from(self.padding)
    }

    pub(super) fn programmed(&self) -> Programmed {
        Programmed {
            host_bytes: self.host.into(),
            collected_bytes: self.collected.into(),
            rewritten_bytes: self.rewritten.into(),
            padding_bytes: self.padding.into(),
        }
    }
}

impl Nand {
    pub(super) fn new(config: &NandConfig) -> Self {
        Nand {
            dies: vec![Die::default(); config.dies as usize],
            due: vec![NEVER; config.dies as usize],
            read_page_ns: config.read_page_ns,
            program_ns: config.program_ns,
            erase_ns: config.erase_ns,
            read_burst_ns: config.read_burst_ns,
            suspends_max: config.suspends_per_program,
            operations: 0,
        }
    }

    pub(super) fn dies(&self) -> u32 {
        self.dies.len() as u32
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    pub(super) fn busy(&self) -> Vec<DieBusy> {
        self.dies.iter().map(|die| die.busy).collect()
    }

    /// Writes the number of operations, and each die's busy times.
    pub(super) fn save(&self, out: &mut Writer) {
        out.number(self.operations);
        for die in &self.dies {
            let busy = &die.busy;
            out.numbers([
                busy.host_read_ns,
                busy.internal_read_ns,
                busy.program_ns,
                busy.erase_ns,
            ]);
        }
    }

    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), StateFault> {
        self.operations = from.count()?;
        for die in &mut self.dies {
            let [host_read_ns, internal_read_ns, program_ns, erase_ns] = from.counts()?;
            die.busy = DieBusy {
                host_read_ns,
                internal_read_ns,
                program_ns,
                erase_ns,
            };
        }
        Ok(())
    }

    /// When the next die is done, and its number; the lowest of several.
    pub(super) fn next(&self) -> Option<(u64, usize)> {
        let mut next = (NEVER, 0);
        for (die, &at) in self.due.iter().enumerate() {
            if at < next.0 {
                next = (at, die);
            }
        }
        (next.0 != NEVER).then_some(next)
    }

    pub(super) fn read(&mut self, now: u64, die: u32, read: Read) {
        let number = die as usize;
        self.dies[number].reads.push_back(read);
        match self.dies[number].current {
            Current::Idle => self.begin(now, number),
            Current::Work(Work::Program(program)) => self.suspend(now, number, program),
            _ => {}
        }
    }

    pub(super) fn work(&mut self, now: u64, die: u32, work: Work) {
        let number = die as usize;
        self.dies[number].work.push_back(work);
        if matches!(self.dies[number].current, Current::Idle) {
            self.begin(now, number);
        }
    }

    /// Ends the operation of a die, which is due at `now`.
    pub(super) fn finish(&mut self, now: u64, number: usize) -> Option<Finished> {
        let die = &mut self.dies[number];
        let spent = now - die.started;
        self.operations += 1;
        let finished = match std::mem::take(&mut die.current) {
            Current::Idle => None,
            Current::Read(read) => {
                die.busy.host_read_ns += spent;
                die.burst_ns += spent;
                Some(Finished::Read(read))
            }
            Current::Work(work) => {
                die.burst_ns = 0;
                match work {
                    Work::Program(_) => die.busy.program_ns += spent,
                    Work::Erase { .. } => die.busy.erase_ns += spent,
                    Work::Read { .. } => die.busy.internal_read_ns += spent,
                }
                Some(Finished::Work(work))
            }
        };
        self.begin(now, number);
        finished
    }

    /// Suspends a program for the read that has just arrived, if allowed.
    fn suspend(&mut self, now: u64, number: usize, program: Program) {
        let die = &mut self.dies[number];
        if die.suspends >= self.suspends_max || self.read_burst_ns == 0 {
            return;
        }
        let rest = self.due[number] - now;
        if rest == 0 {
            return;
        }
        die.suspends += 1;
        die.busy.program_ns += now - die.started;
        die.suspended = Some((program, rest));
        die.burst_ns = 0;
        die.current = Current::Idle;
        self.begin(now, number);
    }

    /// Begins the next operation of an idle die.
    fn begin(&mut self, now: u64, number: usize) {
        let die = &mut self.dies[number];
        let others_wait = die.suspended.is_some() || !die.work.is_empty();
        let burst_is_over = die.burst_ns > 0 && die.burst_ns >= self.read_burst_ns;
        die.started = now;
        let takes = if die.reads.is_empty() || (others_wait && burst_is_over) {
            if let Some((program, rest)) = die.suspended.take() {
                die.current = Current::Work(Work::Program(program));
                rest
            } else if let Some(work) = die.work.pop_front() {
                die.current = Current::Work(work);
                die.suspends = 0;
                match work {
                    Work::Program(_) => self.program_ns,
                    Work::Erase { .. } => self.erase_ns,
                    Work::Read { pages, .. } => self.read_page_ns * u64::from(pages),
                }
            } else {
                die.burst_ns = 0;
                self.due[number] = NEVER;
                return;
            }
        } else if let Some(read) = die.reads.pop_front() {
            die.current = Current::Read(read);
            self.read_page_ns * u64::from(read.pages)
        } else {
            self.due[number] = NEVER;
            return;
        };
        self.due[number] = now + takes;
    }
}
