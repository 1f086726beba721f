//! Inputs for the smoke run: mutated seeds.

/// Longest input in bytes.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// Numbers at the edges of what fields can hold.
const EDGES: [u64; 12] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

/// Makes inputs; the same seed makes the same ones.
#[derive(Debug)]
pub struct Mutator {
    random: fastrand::Rng,
}

impl Mutator {
    /// Creates a mutator from a seed of its random numbers.
    pub fn new(seed: u64) -> Self {
        Mutator {
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// One of `seeds`, mutated, or sometimes random bytes.
    pub fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let chosen = self.random.choice(seeds);
        let mut input = match chosen {
            Some(seed) if self.random.u8(..) > 8 => seed.clone(),
            _ => self.noise(),
        };
        for _ in 0..self.random.usize(0..6) {
            self.change(&mut input, seeds);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn noise(&mut self) -> Vec<u8> {
        let len = self.random.usize(0..2048);
        std::iter::repeat_with(|| self.random.u8(..))
            .take(len)
            .collect()
    }

    fn change(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        if input.is_empty() {
            *input = self.noise();
            return;
        }
        let at = self.random.usize(0..input.len());
        match self.random.u8(0..8) {
            0 => input[at] ^= 1 << self.random.u8(0..8),
            1 => input[at] = self.random.u8(..),
            2 => input.truncate(at),
            3 => {
                let noise = self.noise();
                input.splice(at..at, noise);
            }
            4 => {
                let end = self.random.usize(at..=input.len());
                input.drain(at..end);
            }
            5 => {
                let other = self.random.choice(seeds).cloned().unwrap_or_default();
                let from = at.min(other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => self.change_number(input, at),
        }
    }

    /// Sets a field of 2, 4 or 8 bytes to an edge, or to a value near its own.
    fn change_number(&mut self, input: &mut [u8], at: usize) {
        let width = 1usize << self.random.usize(1..4);
        let Some(field) = input[at..].get_mut(..width) else {
            return;
        };
        let mut number = [0; 8];
        number[..width].copy_from_slice(field);
        let present = u64::from_le_bytes(number);
        let edge = EDGES[self.random.usize(0..EDGES.len())];
        let changed = match self.random.u8(0..3) {
            0 => edge,
            1 => present.wrapping_add(self.random.u64(0..16)),
            _ => present.wrapping_sub(self.random.u64(0..16)),
        };
        field.copy_from_slice(&changed.to_le_bytes()[..width]);
    }
}
