//! The five engines as one.
//!
//! | | an acknowledged value after the process died | work under way at a time |
//! |---|---|---|
//! | `nemo` | is found again, or outlived by what replaced it | one task: its order is what makes that true |
//! | the others | is forgotten: what lies where only their memory knows | as many as they ask for |

use floe_core::Geometry;
use floe_core::hash::KeyHash;
use floe_core::layout::tiny::{TinyEngine, TinyFormatPlan};
use floe_core::tiny::nemo::{Nemo, NemoPlan};
use floe_core::tiny::{
    Durability, Engine, FairyWren, FairyWrenPlan, Flash, Found, Insert, Kangaroo, KangarooPlan,
    Label, Living, Log, LogPlan, Memory, Object, Outcome, PageAddress, PlanError, Search, Set,
    SetPlan, Statistics, Step, Task, TaskId,
};

use super::config::TinyConfig;

/// The plan of an engine that fits its flash.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EnginePlan {
    Nemo(NemoPlan),
    Log(LogPlan),
    Set(SetPlan),
    Kangaroo(KangarooPlan),
    FairyWren(FairyWrenPlan),
}

impl EnginePlan {
    /// Checks the settings of the engine that `config` chooses.
    pub(super) fn new(config: &TinyConfig, flash: &Flash) -> Result<Self, PlanError> {
        Ok(match config.engine {
            TinyEngine::Nemo => EnginePlan::Nemo(NemoPlan::new(&config.nemo, *flash)?),
            TinyEngine::Log => EnginePlan::Log(LogPlan::new(&config.log, flash)?),
            TinyEngine::Set => EnginePlan::Set(SetPlan::new(&config.set, flash)?),
            TinyEngine::Kangaroo => {
                EnginePlan::Kangaroo(KangarooPlan::new(&config.kangaroo, flash)?)
            }
            TinyEngine::FairyWren => {
                EnginePlan::FairyWren(FairyWrenPlan::new(&config.fairywren, flash)?)
            }
        })
    }

    pub(super) fn kind(&self) -> TinyEngine {
        match self {
            EnginePlan::Nemo(_) => TinyEngine::Nemo,
            EnginePlan::Log(_) => TinyEngine::Log,
            EnginePlan::Set(_) => TinyEngine::Set,
            EnginePlan::Kangaroo(_) => TinyEngine::Kangaroo,
            EnginePlan::FairyWren(_) => TinyEngine::FairyWren,
        }
    }

    /// As [`Engine::durability`] of its engine.
    pub(super) fn durability(&self) -> Durability {
        match self {
            EnginePlan::Nemo(plan) => plan.durability(),
            EnginePlan::Log(_)
            | EnginePlan::Set(_)
            | EnginePlan::Kangaroo(_)
            | EnginePlan::FairyWren(_) => Durability::Volatile,
        }
    }

    /// The plan that recovery reads flash by; `None` where nothing is recovered.
    pub(super) fn recovery(&self) -> Option<&NemoPlan> {
        match self {
            EnginePlan::Nemo(plan) => Some(plan),
            EnginePlan::Log(_)
            | EnginePlan::Set(_)
            | EnginePlan::Kangaroo(_)
            | EnginePlan::FairyWren(_) => None,
        }
    }

    /// Sets of a set-group; zero where there are no set-groups.
    pub(super) fn set_group_sets(&self) -> u32 {
        self.recovery().map_or(0, NemoPlan::sets)
    }

    /// An engine on empty flash.
    pub(super) fn engine(&self) -> AnyEngine {
        match self.clone() {
            EnginePlan::Nemo(plan) => AnyEngine::Nemo(Box::new(Nemo::new(plan))),
            EnginePlan::Log(plan) => AnyEngine::Log(Box::new(Log::new(plan))),
            EnginePlan::Set(plan) => AnyEngine::Set(Box::new(Set::new(plan))),
            EnginePlan::Kangaroo(plan) => AnyEngine::Kangaroo(Box::new(Kangaroo::new(plan))),
            EnginePlan::FairyWren(plan) => AnyEngine::FairyWren(Box::new(FairyWren::new(plan))),
        }
    }

    /// What of it is written down in the superblock.
    pub(super) fn format(
        &self,
        geometry: &Geometry,
        instances: u32,
        candidates: u32,
    ) -> TinyFormatPlan {
        let (set_group_pages, sets, candidates) = match self {
            EnginePlan::Nemo(plan) => (plan.extent_pages(), plan.sets(), candidates),
            EnginePlan::Log(_) => (0, 0, 0),
            EnginePlan::Set(plan) => (0, plan.sets(), 1),
            EnginePlan::Kangaroo(plan) => (0, plan.sets(), 1),
            EnginePlan::FairyWren(plan) => (0, plan.sets(), 1),
        };
        TinyFormatPlan {
            engine: self.kind(),
            block_size: geometry.block_size,
            zone_count: geometry.zone_count,
            zone_size: geometry.zone_size,
            zone_capacity: geometry.zone_capacity,
            set_group_pages,
            sets,
            candidates,
            instances,
        }
    }
}

/// An engine.
#[derive(Debug)]
pub(super) enum AnyEngine {
    Nemo(Box<Nemo>),
    Log(Box<Log>),
    Set(Box<Set>),
    Kangaroo(Box<Kangaroo>),
    FairyWren(Box<FairyWren>),
}

/// The scratch of whichever engine it is: only that one's is used. Only Nemo's
/// takes any room.
#[derive(Clone, Debug, Default)]
pub(super) struct AnyScratch {
    nemo: <Nemo as Engine>::Scratch,
    log: <Log as Engine>::Scratch,
    set: <Set as Engine>::Scratch,
    kangaroo: <Kangaroo as Engine>::Scratch,
    fairywren: <FairyWren as Engine>::Scratch,
}

/// Does the same with whichever engine it is, and with its own scratch.
macro_rules! each {
    ($any:expr, $engine:ident => $does:expr) => {
        match $any {
            AnyEngine::Nemo($engine) => $does,
            AnyEngine::Log($engine) => $does,
            AnyEngine::Set($engine) => $does,
            AnyEngine::Kangaroo($engine) => $does,
            AnyEngine::FairyWren($engine) => $does,
        }
    };
    ($any:expr, $all:expr, $engine:ident, $scratch:ident => $does:expr) => {
        match $any {
            AnyEngine::Nemo($engine) => {
                let $scratch = &mut $all.nemo;
                $does
            }
            AnyEngine::Log($engine) => {
                let $scratch = &mut $all.log;
                $does
            }
            AnyEngine::Set($engine) => {
                let $scratch = &mut $all.set;
                $does
            }
            AnyEngine::Kangaroo($engine) => {
                let $scratch = &mut $all.kangaroo;
                $does
            }
            AnyEngine::FairyWren($engine) => {
                let $scratch = &mut $all.fairywren;
                $does
            }
        }
    };
}

impl Engine for AnyEngine {
    type Scratch = AnyScratch;

    fn insert(&mut self, object: Object, now_seconds: u32) -> Insert {
        each!(self, engine => engine.insert(object, now_seconds))
    }

    fn in_memory(&self, hash: KeyHash) -> Option<&Object> {
        each!(self, engine => engine.in_memory(hash))
    }

    fn begin_search(&mut self, hash: KeyHash, search: &mut Search, all: &mut AnyScratch) -> Step {
        each!(self, all, engine, scratch => engine.begin_search(hash, search, scratch))
    }

    fn index_read(
        &mut self,
        search: &mut Search,
        all: &mut AnyScratch,
        pages: &[Option<&[u8]>],
    ) -> Step {
        each!(self, all, engine, scratch => engine.index_read(search, scratch, pages))
    }

    fn end_search(&mut self, search: &mut Search, all: &mut AnyScratch, found: Found) {
        each!(self, all, engine, scratch => engine.end_search(search, scratch, found));
    }

    fn durability(&self) -> Durability {
        each!(self, engine => engine.durability())
    }

    fn next_task(&mut self) -> Option<Task> {
        each!(self, engine => engine.next_task())
    }

    fn has_work(&self) -> Option<bool> {
        each!(self, engine => engine.has_work())
    }

    fn waits_for_readers(&self) -> bool {
        each!(self, engine => engine.waits_for_readers())
    }

    fn waits_for_space(&self) -> bool {
        each!(self, engine => engine.waits_for_space())
    }

    fn drain(&mut self) -> bool {
        each!(self, engine => engine.drain())
    }

    fn is_drained(&self) -> bool {
        each!(self, engine => engine.is_drained())
    }

    fn complete(&mut self, id: TaskId, outcome: Outcome, now_seconds: u32) {
        each!(self, engine => engine.complete(id, outcome, now_seconds));
    }

    fn label(&self, page: PageAddress) -> Label {
        each!(self, engine => engine.label(page))
    }

    fn epoch(&self) -> u64 {
        each!(self, engine => engine.epoch())
    }

    fn durable_when(&self) -> u64 {
        each!(self, engine => engine.durable_when())
    }

    fn durable(&self) -> u64 {
        each!(self, engine => engine.durable())
    }

    fn oldest(&self) -> u64 {
        each!(self, engine => engine.oldest())
    }

    fn may_outdate(&self, hash: KeyHash) -> bool {
        each!(self, engine => engine.may_outdate(hash))
    }

    fn could_be_absent(&self, hash: KeyHash) -> bool {
        each!(self, engine => engine.could_be_absent(hash))
    }

    fn draw(&self, random: u64) -> Option<(PageAddress, Label)> {
        each!(self, engine => engine.draw(random))
    }

    fn surveyed(&mut self, object: &Object, label: Label, is_found: bool) {
        each!(self, engine => engine.surveyed(object, label, is_found));
    }

    fn statistics(&self) -> &Statistics {
        each!(self, engine => engine.statistics())
    }

    fn memory(&self) -> Memory {
        each!(self, engine => engine.memory())
    }

    fn living(&self, now_seconds: u32) -> Living {
        each!(self, engine => engine.living(now_seconds))
    }
}
