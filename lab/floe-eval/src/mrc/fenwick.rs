//! Sums of prefixes of a list of marks, in logarithmic time.

/// A Fenwick tree of marks at places from 0.
#[derive(Debug)]
pub(super) struct Marks {
    /// Partial sums; index 0 is unused.
    sums: Vec<u32>,
}

impl Marks {
    pub(super) fn new(places: usize) -> Self {
        Marks {
            sums: vec![0; places + 1],
        }
    }

    /// A tree of `places`, of which the first `marked` are marked.
    pub(super) fn all_marked(places: usize, marked: usize) -> Self {
        let mut marks = Marks::new(places);
        for place in 1..=places {
            marks.sums[place] += u32::from(place <= marked);
            let above = place + lowest_bit(place);
            if above <= places {
                marks.sums[above] += marks.sums[place];
            }
        }
        marks
    }

    pub(super) fn places(&self) -> usize {
        self.sums.len() - 1
    }

    pub(super) fn mark(&mut self, place: usize) {
        self.update(place, |sum| *sum += 1);
    }

    pub(super) fn unmark(&mut self, place: usize) {
        self.update(place, |sum| *sum -= 1);
    }

    /// Number of marks up to and including `place`.
    pub(super) fn up_to(&self, place: usize) -> u64 {
        let (mut at, mut sum) = (place + 1, 0);
        while at > 0 {
            sum += u64::from(self.sums[at]);
            at -= lowest_bit(at);
        }
        sum
    }

    fn update(&mut self, place: usize, change: fn(&mut u32)) {
        let mut at = place + 1;
        while at < self.sums.len() {
            change(&mut self.sums[at]);
            at += lowest_bit(at);
        }
    }
}

fn lowest_bit(number: usize) -> usize {
    number & number.wrapping_neg()
}
