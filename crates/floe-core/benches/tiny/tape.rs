//! The cost of the model itself: one engine's responses are recorded on a tape,
//! and an engine that only replays the tape drives a second model.

use std::cell::RefCell;
use std::collections::VecDeque;

use floe_core::hash::KeyHash;
use floe_core::tiny::{
    Accepted, Engine, Found, Insert, Memory, Object, Outcome, PageAddress, Search, Statistics,
    Step, Stripe, Task, TaskId,
};

/// A response.
#[derive(Clone, Debug)]
enum Response {
    Accepted,
    Busy,
    /// The next step of a search, with its numbers of index pages and pages of
    /// objects.
    Step(Step, usize, usize),
    Task(Option<Task>),
}

/// Responses, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tape {
    responses: VecDeque<Response>,
    pages: VecDeque<PageAddress>,
}

impl Tape {
    fn record(&mut self, step: Step, search: &Search) -> Step {
        self.pages.extend(&search.index_pages);
        self.pages.extend(&search.pages);
        let (index, objects) = (search.index_pages.len(), search.pages.len());
        self.responses
            .push_back(Response::Step(step, index, objects));
        step
    }

    fn step(&mut self, search: &mut Search) -> Step {
        let Some(Response::Step(step, index, objects)) = self.responses.pop_front() else {
            panic!("the tape has no step here");
        };
        search.index_pages.clear();
        search.pages.clear();
        search.index_pages.extend(self.pages.drain(..index));
        search.pages.extend(self.pages.drain(..objects));
        step
    }
}

/// An engine with a tape of its responses.
#[derive(Debug)]
pub(crate) struct Recorded<E> {
    engine: E,
    tape: RefCell<Tape>,
}

impl<E: Engine> Recorded<E> {
    /// Starts to record the responses of `engine`.
    pub(crate) fn new(engine: E) -> Self {
        Recorded {
            engine,
            tape: RefCell::default(),
        }
    }

    /// The recorded responses.
    pub(crate) fn into_tape(self) -> Tape {
        self.tape.into_inner()
    }
}

impl<E: Engine> Engine for Recorded<E> {
    type Stripe = E::Stripe;
    type Scratch = E::Scratch;

    fn stripe(&self) -> E::Stripe {
        self.engine.stripe()
    }

    fn insert(&self, stripe: &mut E::Stripe, object: Object, now_seconds: u32) -> Insert {
        let insert = self.engine.insert(stripe, object, now_seconds);
        self.tape.borrow_mut().responses.push_back(match insert {
            Insert::Accepted(_) => Response::Accepted,
            Insert::Busy(_) => Response::Busy,
        });
        insert
    }

    fn begin_search(
        &mut self,
        stripe: &mut E::Stripe,
        hash: KeyHash,
        search: &mut Search,
        scratch: &mut E::Scratch,
    ) -> Step {
        let step = self.engine.begin_search(stripe, hash, search, scratch);
        self.tape.get_mut().record(step, search)
    }

    fn index_read(
        &mut self,
        search: &mut Search,
        scratch: &mut E::Scratch,
        pages: &[Option<&[u8]>],
    ) -> Step {
        let step = self.engine.index_read(search, scratch, pages);
        self.tape.get_mut().record(step, search)
    }

    fn pages_read(&mut self, search: &mut Search, scratch: &mut E::Scratch) -> Step {
        let step = self.engine.pages_read(search, scratch);
        self.tape.get_mut().record(step, search)
    }

    fn end_search(
        &mut self,
        stripe: &mut E::Stripe,
        search: &mut Search,
        scratch: &mut E::Scratch,
        found: Found,
    ) {
        self.engine.end_search(stripe, search, scratch, found);
    }

    fn next_task(&mut self, stripe: &mut E::Stripe) -> Option<Task> {
        let task = self.engine.next_task_at_once(stripe);
        let response = Response::Task(task.clone());
        self.tape.get_mut().responses.push_back(response);
        task
    }

    fn complete(&mut self, stripe: &mut E::Stripe, id: TaskId, outcome: Outcome, now_seconds: u32) {
        self.engine.complete(stripe, id, outcome, now_seconds);
    }

    fn statistics(&self, stripe: &E::Stripe) -> Statistics {
        self.engine.statistics(stripe)
    }

    fn memory(&self, stripe: &E::Stripe) -> Memory {
        self.engine.memory(stripe)
    }
}

/// An engine that replays the responses of another one.
#[derive(Debug)]
pub(crate) struct Player {
    tape: RefCell<Tape>,
}

/// The object that every lookup returns.
#[derive(Debug)]
pub(crate) struct Always(Object);

impl Stripe for Always {
    fn in_memory(&self, _: KeyHash) -> Option<&Object> {
        Some(&self.0)
    }
}

impl Player {
    /// Creates an engine that replays `tape`.
    pub(crate) fn new(tape: Tape) -> Self {
        Player {
            tape: RefCell::new(tape),
        }
    }
}

impl Engine for Player {
    type Stripe = Always;
    type Scratch = ();

    fn stripe(&self) -> Always {
        Always(Object::sized(KeyHash(0), 1))
    }

    fn insert(&self, _: &mut Always, object: Object, _: u32) -> Insert {
        match self.tape.borrow_mut().responses.pop_front() {
            Some(Response::Accepted) => Insert::Accepted(Accepted::default()),
            Some(Response::Busy) => Insert::Busy(object),
            other => panic!("an insert was answered with {other:?}"),
        }
    }

    fn begin_search(
        &mut self,
        _: &mut Always,
        hash: KeyHash,
        search: &mut Search,
        _: &mut (),
    ) -> Step {
        search.hash = hash;
        search.read = 0;
        self.tape.get_mut().step(search)
    }

    fn index_read(&mut self, search: &mut Search, _: &mut (), _: &[Option<&[u8]>]) -> Step {
        self.tape.get_mut().step(search)
    }

    fn pages_read(&mut self, search: &mut Search, _: &mut ()) -> Step {
        search.read = 0;
        self.tape.get_mut().step(search)
    }

    fn end_search(&mut self, _: &mut Always, _: &mut Search, _: &mut (), _: Found) {}

    fn next_task(&mut self, _: &mut Always) -> Option<Task> {
        match self.tape.get_mut().responses.pop_front() {
            Some(Response::Task(task)) => task,
            other => panic!("a task was answered with {other:?}"),
        }
    }

    fn complete(&mut self, _: &mut Always, _: TaskId, _: Outcome, _: u32) {}

    fn statistics(&self, _: &Always) -> Statistics {
        Statistics::default()
    }

    fn memory(&self, _: &Always) -> Memory {
        Memory::default()
    }
}
