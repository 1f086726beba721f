//! The five engines as one type. Another engine is a line of `engines!` and an
//! arm of `EnginePlan::format`.
//!
//! | | an acknowledged value after the process died | concurrent tasks |
//! |---|---|---|
//! | `nemo` | is recovered, or superseded by a recovered fence | one: the guarantee relies on their order |
//! | the others | is lost: their index is in memory only | as many as the engine asks for |

use floe_core::Geometry;
use floe_core::hash::KeyHash;
use floe_core::layout::tiny::{TinyEngine, TinyFormatPlan};
use floe_core::tiny::nemo::{Nemo, NemoPlan};
use floe_core::tiny::{
    Discarded, Due, Durability, Engine, FairyWren, FairyWrenPlan, Flash, Found, Insert, Kangaroo,
    KangarooPlan, Label, LiveObjects, Log, LogPlan, Memory, Object, Outcome, PageAddress,
    PlanError, Search, Set, SetPlan, Statistics, Step, Stripe, Task, TaskId,
};

use super::config::TinyConfig;

/// Calls a macro with the list of engines: each one's name, which is also its
/// [`TinyEngine`], its plan, and its section of [`TinyConfig`].
macro_rules! engines {
    ($macro:ident $($arguments:tt)*) => {
        $macro! {
            [
                (Nemo, NemoPlan, nemo)
                (Log, LogPlan, log)
                (Set, SetPlan, set)
                (Kangaroo, KangarooPlan, kangaroo)
                (FairyWren, FairyWrenPlan, fairywren)
            ]
            $($arguments)*
        }
    };
}

macro_rules! define {
    ([$(($engine:ident, $plan:ident, $section:ident))*]) => {
        /// The validated plan of an engine.
        #[derive(Clone, Debug, PartialEq)]
        pub(super) enum EnginePlan {
            $($engine($plan),)*
        }

        impl EnginePlan {
            /// Checks the settings of the engine that `config` chooses.
            pub(super) fn new(config: &TinyConfig, flash: &Flash) -> Result<Self, PlanError> {
                Ok(match config.engine {
                    $(TinyEngine::$engine => {
                        EnginePlan::$engine($plan::new(&config.$section, flash)?)
                    })*
                })
            }

            pub(super) fn kind(&self) -> TinyEngine {
                match self {
                    $(EnginePlan::$engine(_) => TinyEngine::$engine,)*
                }
            }

            /// An engine on empty flash.
            pub(super) fn engine(&self) -> AnyEngine {
                match self.clone() {
                    $(EnginePlan::$engine(plan) => {
                        AnyEngine::$engine(Box::new($engine::new(plan)))
                    })*
                }
            }
        }

        /// The directory of an engine.
        #[derive(Debug)]
        pub(super) enum AnyEngine {
            $($engine(Box<$engine>),)*
        }

        impl AnyEngine {
            fn new_stripe(&self) -> AnyStripe {
                match self {
                    $(AnyEngine::$engine(engine) => AnyStripe::$engine(Box::new(engine.stripe())),)*
                }
            }
        }

        /// The stripe of an engine.
        #[derive(Debug)]
        pub(super) enum AnyStripe {
            $($engine(Box<<$engine as Engine>::Stripe>),)*
        }

        /// The scratch space of every engine, of which one is used. Only Nemo's takes memory.
        #[derive(Clone, Debug, Default)]
        pub(super) struct AnyScratch {
            $($section: <$engine as Engine>::Scratch,)*
        }
    };
}
engines!(define);

impl EnginePlan {
    /// The engine's [`Engine::durability`].
    pub(super) fn durability(&self) -> Durability {
        self.recovery()
            .map_or(Durability::Volatile, NemoPlan::durability)
    }

    /// The plan that recovery needs; `None` if the engine recovers nothing.
    pub(super) fn recovery(&self) -> Option<&NemoPlan> {
        match self {
            EnginePlan::Nemo(plan) => Some(plan),
            _ => None,
        }
    }

    /// Sets of a set-group; 0 if the engine has no set-groups.
    pub(super) fn set_group_sets(&self) -> u32 {
        self.recovery().map_or(0, NemoPlan::sets)
    }

    /// The parts of the plan that the superblock records.
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

/// Calls the same code for each engine's directory, optionally with its stripe and scratch.
macro_rules! each {
    ([$(($name:ident, $plan:ident, $section:ident))*] $any:expr, $engine:ident => $does:expr) => {
        match $any {
            $(AnyEngine::$name($engine) => $does,)*
        }
    };
    ([$(($name:ident, $plan:ident, $section:ident))*]
        $any:expr, $engine:ident, $stripe:ident => $does:expr) => {
        match ($any, $stripe) {
            $((AnyEngine::$name($engine), AnyStripe::$name($stripe)) => $does,)*
            _ => another_engines(),
        }
    };
    ([$(($name:ident, $plan:ident, $section:ident))*]
        $any:expr, $engine:ident, $stripe:ident, $scratch:ident => $does:expr) => {
        match ($any, $stripe) {
            $((AnyEngine::$name($engine), AnyStripe::$name($stripe)) => {
                let $scratch = &mut $scratch.$section;
                $does
            })*
            _ => another_engines(),
        }
    };
    ([$(($name:ident, $plan:ident, $section:ident))*]
        $any:expr, $scratch:ident: $engine:ident => $does:expr) => {
        match $any {
            $(AnyEngine::$name($engine) => {
                let $scratch = &mut $scratch.$section;
                $does
            })*
        }
    };
    ($($arguments:tt)*) => {
        engines!(each $($arguments)*)
    };
}

/// The driver never pairs parts of different engines.
#[cold]
fn another_engines() -> ! {
    unreachable!("a directory was given the stripe of another engine")
}

macro_rules! any_stripe {
    ([$(($engine:ident, $plan:ident, $section:ident))*] $any:expr, $stripe:ident => $does:expr) => {
        match $any {
            $(AnyStripe::$engine($stripe) => $does,)*
        }
    };
}

impl Stripe for AnyStripe {
    fn in_memory(&self, hash: KeyHash) -> Option<&Object> {
        engines!(any_stripe self, stripe => stripe.in_memory(hash))
    }
}

impl Engine for AnyEngine {
    type Stripe = AnyStripe;
    type Scratch = AnyScratch;

    fn stripe(&self) -> AnyStripe {
        self.new_stripe()
    }

    fn durability(&self) -> Durability {
        each!(self, engine => engine.durability())
    }

    fn insert(&self, stripe: &mut AnyStripe, object: Object, now_seconds: u32) -> Insert {
        each!(self, engine, stripe => engine.insert(stripe, object, now_seconds))
    }

    fn begin_search(
        &mut self,
        stripe: &mut AnyStripe,
        hash: KeyHash,
        search: &mut Search,
        scratch: &mut AnyScratch,
    ) -> Step {
        each!(self, engine, stripe, scratch => engine.begin_search(stripe, hash, search, scratch))
    }

    fn index_read(
        &mut self,
        search: &mut Search,
        scratch: &mut AnyScratch,
        pages: &[Option<&[u8]>],
    ) -> Step {
        each!(self, scratch: engine => engine.index_read(search, scratch, pages))
    }

    fn pages_read(&mut self, search: &mut Search, scratch: &mut AnyScratch) -> Step {
        each!(self, scratch: engine => engine.pages_read(search, scratch))
    }

    fn end_search(
        &mut self,
        stripe: &mut AnyStripe,
        search: &mut Search,
        scratch: &mut AnyScratch,
        found: Found,
    ) {
        each!(self, engine, stripe, scratch => engine.end_search(stripe, search, scratch, found));
    }

    fn advance(&mut self, stripe: &mut AnyStripe) -> Option<Discarded> {
        each!(self, engine, stripe => engine.advance(stripe))
    }

    fn next_task(&mut self, stripe: &mut AnyStripe) -> Option<Task> {
        each!(self, engine, stripe => engine.next_task(stripe))
    }

    fn complete(&mut self, stripe: &mut AnyStripe, id: TaskId, outcome: Outcome, now_seconds: u32) {
        each!(self, engine, stripe => engine.complete(stripe, id, outcome, now_seconds));
    }

    fn retire_zones(&mut self, is_unwritable: &dyn Fn(u32) -> bool) {
        each!(self, engine => engine.retire_zones(is_unwritable));
    }

    fn stop_loading(&mut self) {
        each!(self, engine => engine.stop_loading());
    }

    fn due(&self, stripe: &AnyStripe) -> Due {
        each!(self, engine, stripe => engine.due(stripe))
    }

    fn waits_for_readers(&self) -> bool {
        each!(self, engine => engine.waits_for_readers())
    }

    fn waits_for_space(&self) -> bool {
        each!(self, engine => engine.waits_for_space())
    }

    fn statistics(&self, stripe: &AnyStripe) -> Statistics {
        each!(self, engine, stripe => engine.statistics(stripe))
    }

    fn memory(&self, stripe: &AnyStripe) -> Memory {
        each!(self, engine, stripe => engine.memory(stripe))
    }

    fn live_objects(&self, stripe: &AnyStripe, now_seconds: u32) -> LiveObjects {
        each!(self, engine, stripe => engine.live_objects(stripe, now_seconds))
    }

    fn label(&self, page: PageAddress) -> Label {
        each!(self, engine => engine.label(page))
    }

    fn may_supersede(&self, stripe: &AnyStripe, hash: KeyHash) -> bool {
        each!(self, engine, stripe => engine.may_supersede(stripe, hash))
    }

    fn could_be_absent(&self, stripe: &AnyStripe, hash: KeyHash) -> bool {
        each!(self, engine, stripe => engine.could_be_absent(stripe, hash))
    }

    fn drain(&mut self, stripe: &mut AnyStripe) -> bool {
        each!(self, engine, stripe => engine.drain(stripe))
    }

    fn is_drained(&self, stripe: &AnyStripe) -> bool {
        each!(self, engine, stripe => engine.is_drained(stripe))
    }

    fn durable(&self) -> u64 {
        each!(self, engine => engine.durable())
    }

    fn durable_when(&self, stripe: &AnyStripe) -> u64 {
        each!(self, engine, stripe => engine.durable_when(stripe))
    }

    fn oldest(&self) -> u64 {
        each!(self, engine => engine.oldest())
    }

    fn draw(&self, stripe: &AnyStripe, random: u64) -> Option<(PageAddress, Label)> {
        each!(self, engine, stripe => engine.draw(stripe, random))
    }

    fn surveyed(&self, stripe: &mut AnyStripe, object: &Object, label: Label, is_found: bool) {
        each!(self, engine, stripe => engine.surveyed(stripe, object, label, is_found));
    }
}
