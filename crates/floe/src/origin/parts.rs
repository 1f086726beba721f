//! The parts that an object was uploaded in, as a header that is stored with it.

use std::ops::Range;

use super::types::Headers;

/// Bytes of the longest header: file systems keep few bytes beside a file.
const HEADER_BYTES_MAX: usize = 256;

/// The sizes of the parts that an object was uploaded in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSizes {
    /// Neighbours of one size.
    runs: Vec<Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    size: u64,
    parts: u32,
}

impl PartSizes {
    /// The stored header that has them, as in `8388608*12 517`: it is no header of S3.
    pub const HEADER: &str = "x-floe-parts";

    /// The parts of an object of `size` bytes with these headers. `None` if it was uploaded as a
    /// whole, or its parts are not known.
    pub fn of(headers: &Headers, size: u64) -> Option<Self> {
        let (_, text) = headers.iter().find(|(name, _)| name == Self::HEADER)?;
        let sizes = Self::parse(text)?;
        let mut total: u64 = 0;
        for run in &sizes.runs {
            total = total.checked_add(run.size.checked_mul(u64::from(run.parts))?)?;
        }
        (total == size).then_some(sizes)
    }

    /// Parts 1, 2, 3 … of these sizes.
    fn collect(sizes: impl IntoIterator<Item = u64>) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for size in sizes {
            match runs.last_mut() {
                Some(run) if run.size == size => run.parts += 1,
                _ => runs.push(Run { size, parts: 1 }),
            }
        }
        PartSizes { runs }
    }

    fn parse(text: &str) -> Option<Self> {
        let run = |word: &str| {
            let (size, parts) = word.split_once('*').unwrap_or((word, "1"));
            Some(Run {
                size: size.parse().ok()?,
                parts: parts.parse().ok().filter(|parts| *parts > 0)?,
            })
        };
        let runs = text.split(' ').map(run).collect::<Option<_>>()?;
        Some(PartSizes { runs })
    }

    fn text(&self) -> String {
        let words = self.runs.iter().map(|run| match run.parts {
            1 => run.size.to_string(),
            parts => format!("{}*{parts}", run.size),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// The number of parts.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.parts)).sum()
    }

    /// The bytes of part `number`, counted from 1, in the object.
    pub fn range(&self, number: u32) -> Option<Range<u64>> {
        let mut before = number.checked_sub(1)?;
        let mut start = 0;
        for run in &self.runs {
            if before < run.parts {
                start += run.size * u64::from(before);
                return Some(start..start + run.size);
            }
            before -= run.parts;
            start += run.size * u64::from(run.parts);
        }
        None
    }
}

/// The header of an object that is made of parts, by number and size. None if they are not
/// numbered 1, 2, 3 …, or differ in size too often.
pub(crate) fn header(parts: impl Iterator<Item = (u32, u64)> + Clone) -> Option<(String, String)> {
    let numbers = parts.clone().map(|(number, _)| number);
    if !numbers.zip(1..).all(|(number, place)| number == place) {
        return None;
    }
    let text = PartSizes::collect(parts.map(|(_, size)| size)).text();
    let fits = (1..=HEADER_BYTES_MAX).contains(&text.len());
    fits.then(|| (PartSizes::HEADER.to_owned(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(sizes: &[u64]) -> Option<(String, String)> {
        header((1..).zip(sizes.iter().copied()))
    }

    #[test]
    fn parts_are_found_by_number() {
        let header = stored(&[8, 8, 8, 5, 5, 1]).unwrap();
        assert_eq!(header.1, "8*3 5*2 1");
        let sizes = PartSizes::of(&vec![header.clone()], 35).unwrap();
        assert_eq!(sizes.count(), 6);
        let ranges: Vec<_> = (1..=6).filter_map(|number| sizes.range(number)).collect();
        assert_eq!(ranges, [0..8, 8..16, 16..24, 24..29, 29..34, 34..35]);
        assert_eq!((sizes.range(0), sizes.range(7)), (None, None));
        assert_eq!(PartSizes::of(&vec![header], 36), None);
    }

    #[test]
    fn what_does_not_describe_an_object_is_no_header() {
        assert_eq!(stored(&[]), None);
        assert_eq!(header([(1, 8), (3, 8)].into_iter()), None);
        assert_eq!(stored(&(0..200).collect::<Vec<_>>()), None);
        assert!(stored(&[5 << 20; 10_000]).is_some());
        for text in [
            "",
            "8*0",
            "8*",
            "*2",
            "8  8",
            "-1",
            "99999999999999999999",
            "8*3 ",
        ] {
            let headers = vec![(PartSizes::HEADER.to_owned(), text.to_owned())];
            assert_eq!(PartSizes::of(&headers, 24), None, "{text}");
        }
        let huge = format!("{}*{}", u64::MAX, u32::MAX);
        let headers = vec![(PartSizes::HEADER.to_owned(), huge)];
        assert_eq!(PartSizes::of(&headers, 0), None);
    }
}
