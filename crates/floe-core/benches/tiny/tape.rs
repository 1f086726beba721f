//! What the model itself costs: the answers of an engine are taped, and played
//! back to a second model by an engine that does nothing else.

use std::collections::VecDeque;

use floe_core::hash::KeyHash;
use floe_core::tiny::{
    Accepted, Engine, Found, Insert, Memory, Object, Outcome, PageAddress, Search, Statistics,
    Step, Task, TaskId,
};

/// An answer.
#[derive(Clone, Debug)]
enum Answer {
    Accepted,
    Busy,
    /// Of a search: how it goes on, with so many pages of index and of objects.
    Step(Step, usize, usize),
    Task(Option<Task>),
}

/// Answers, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tape {
    answers: VecDeque<Answer>,
    pages: VecDeque<PageAddress>,
}

impl Tape {
    fn record(&mut self, step: Step, search: &Search) -> Step {
        self.pages.extend(&search.index_pages);
        self.pages.extend(&search.pages);
        let (index, objects) = (search.index_pages.len(), search.pages.len());
        self.answers.push_back(Answer::Step(step, index, objects));
        step
    }

    fn step(&mut self, search: &mut Search) -> Step {
        let Some(Answer::Step(step, index, objects)) = self.answers.pop_front() else {
            panic!("the tape has no step here");
        };
        search.index_pages.clear();
        search.pages.clear();
        search.index_pages.extend(self.pages.drain(..index));
        search.pages.extend(self.pages.drain(..objects));
        step
    }
}

/// An engine whose answers are taped.
#[derive(Debug)]
pub(crate) struct Recorded<E> {
    engine: E,
    /// Its answers.
    pub(crate) tape: Tape,
}

impl<E: Engine> Recorded<E> {
    /// Tapes what `engine` answers from now on.
    pub(crate) fn new(engine: E) -> Self {
        Recorded {
            engine,
            tape: Tape::default(),
        }
    }
}

impl<E: Engine> Engine for Recorded<E> {
    type Scratch = E::Scratch;

    fn insert(&mut self, object: Object, now_seconds: u32) -> Insert {
        let insert = self.engine.insert(object, now_seconds);
        self.tape.answers.push_back(match insert {
            Insert::Accepted(_) => Answer::Accepted,
            Insert::Busy(_) => Answer::Busy,
        });
        insert
    }

    fn in_memory(&self, hash: KeyHash) -> Option<&Object> {
        self.engine.in_memory(hash)
    }

    fn begin_search(
        &mut self,
        hash: KeyHash,
        search: &mut Search,
        scratch: &mut E::Scratch,
    ) -> Step {
        let step = self.engine.begin_search(hash, search, scratch);
        self.tape.record(step, search)
    }

    fn index_read(
        &mut self,
        search: &mut Search,
        scratch: &mut E::Scratch,
        pages: &[Option<&[u8]>],
    ) -> Step {
        let step = self.engine.index_read(search, scratch, pages);
        self.tape.record(step, search)
    }

    fn end_search(&mut self, search: &mut Search, scratch: &mut E::Scratch, found: Found) {
        self.engine.end_search(search, scratch, found);
    }

    fn next_task(&mut self) -> Option<Task> {
        let task = self.engine.next_task();
        self.tape.answers.push_back(Answer::Task(task.clone()));
        task
    }

    fn complete(&mut self, id: TaskId, outcome: Outcome, now_seconds: u32) {
        self.engine.complete(id, outcome, now_seconds);
    }

    fn statistics(&self) -> &Statistics {
        self.engine.statistics()
    }

    fn memory(&self) -> Memory {
        self.engine.memory()
    }
}

/// An engine that says what another one said.
#[derive(Debug)]
pub(crate) struct Player {
    tape: Tape,
    object: Object,
    statistics: Statistics,
}

impl Player {
    /// Plays `tape`.
    pub(crate) fn new(tape: Tape) -> Self {
        Player {
            tape,
            object: Object::sized(KeyHash(0), 1),
            statistics: Statistics::default(),
        }
    }
}

impl Engine for Player {
    type Scratch = ();

    fn insert(&mut self, object: Object, _: u32) -> Insert {
        match self.tape.answers.pop_front() {
            Some(Answer::Accepted) => Insert::Accepted(Accepted::default()),
            Some(Answer::Busy) => Insert::Busy(object),
            other => panic!("an insert was answered with {other:?}"),
        }
    }

    fn in_memory(&self, _: KeyHash) -> Option<&Object> {
        Some(&self.object)
    }

    fn begin_search(&mut self, hash: KeyHash, search: &mut Search, _: &mut ()) -> Step {
        search.hash = hash;
        search.read = 0;
        self.tape.step(search)
    }

    fn index_read(&mut self, search: &mut Search, _: &mut (), _: &[Option<&[u8]>]) -> Step {
        self.tape.step(search)
    }

    fn end_search(&mut self, _: &mut Search, _: &mut (), _: Found) {}

    fn next_task(&mut self) -> Option<Task> {
        match self.tape.answers.pop_front() {
            Some(Answer::Task(task)) => task,
            other => panic!("a task was answered with {other:?}"),
        }
    }

    fn complete(&mut self, _: TaskId, _: Outcome, _: u32) {}

    fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    fn memory(&self) -> Memory {
        Memory::default()
    }
}
