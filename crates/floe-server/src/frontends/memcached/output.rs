//! Unsent responses: text in one buffer, long values beside it. A batch of
//! responses takes one vectored write, and long values are not copied.

use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use floe::Item;

use super::memory::Share;
use super::protocol::number::put_number;

/// Shorter values are copied into the text, which costs less than another slice.
const COPIED_BYTES_MAX: usize = 2048;

/// Slices of one write; the kernel accepts up to 1024.
const SLICES_MAX: usize = 64;

/// A larger text buffer is freed after it was sent.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Responses in order.
#[derive(Debug, Default)]
pub(super) struct Output {
    text: BytesMut,
    /// Bytes of the text that were sent.
    text_sent: usize,
    /// Bytes of the text that `parts` covers.
    placed: usize,
    parts: Vec<Part>,
    /// Bytes of long values.
    value_bytes: usize,
    /// Shares of memory to release once the output is sent.
    shares: Vec<Share>,
}

#[derive(Debug)]
enum Part {
    /// Length of the next piece of text.
    Text(usize),
    Value(Bytes),
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.parts.is_empty()
    }

    /// Unsent bytes.
    pub(super) fn len(&self) -> usize {
        self.text.len() + self.value_bytes
    }

    /// The text, to append to.
    pub(super) fn text(&mut self) -> &mut BytesMut {
        &mut self.text
    }

    /// Appends a line and its end.
    pub(super) fn line(&mut self, line: &str) {
        self.text.put_slice(line.as_bytes());
        self.text.put_slice(b"\r\n");
    }

    pub(super) fn number(&mut self, number: u64) {
        put_number(&mut self.text, number);
    }

    /// Appends an item as in the response to `get`.
    pub(super) fn item(&mut self, key: &[u8], item: &Item, with_version: bool) {
        let text = &mut self.text;
        text.reserve(key.len() + 80 + item.value.len().min(COPIED_BYTES_MAX));
        text.put_slice(b"VALUE ");
        text.put_slice(key);
        text.put_u8(b' ');
        put_number(text, u64::from(item.flags));
        text.put_u8(b' ');
        put_number(text, item.value.len() as u64);
        if with_version {
            text.put_u8(b' ');
            put_number(text, item.version);
        }
        text.put_slice(b"\r\n");
        self.value(&item.value);
    }

    /// Appends a value and its line end.
    pub(super) fn value(&mut self, value: &Bytes) {
        if value.len() <= COPIED_BYTES_MAX {
            self.text.put_slice(value);
        } else {
            self.place_text();
            self.value_bytes += value.len();
            self.parts.push(Part::Value(value.clone()));
        }
        self.text.put_slice(b"\r\n");
    }

    /// Keeps a share of memory until all output so far is sent.
    pub(super) fn hold(&mut self, share: Share) {
        self.shares.push(share);
    }

    fn place_text(&mut self) {
        let new = self.text.len() - self.placed;
        if new > 0 {
            self.parts.push(Part::Text(new));
            self.placed = self.text.len();
        }
    }

    /// Appends `other`.
    pub(super) fn append(&mut self, other: Output) {
        if self.is_empty() && self.shares.is_empty() {
            *self = other;
            return;
        }
        let Output {
            mut text,
            parts,
            value_bytes,
            shares,
            ..
        } = other;
        for part in parts {
            match part {
                Part::Text(len) => self.text.put_slice(&text.split_to(len)),
                Part::Value(value) => {
                    self.place_text();
                    self.parts.push(Part::Value(value));
                }
            }
        }
        self.text.put_slice(&text);
        self.value_bytes += value_bytes;
        self.shares.extend(shares);
    }

    /// Begins sending: until the output is empty, only
    /// [`slices`](Output::slices) and [`sent`](Output::sent) may be called.
    pub(super) fn begin_sending(&mut self) {
        if !self.parts.is_empty() {
            self.place_text();
            // Parts are removed from the end.
            self.parts.reverse();
        }
    }

    /// The unsent rest, if it is text only.
    pub(super) fn only_text(&self) -> Option<&[u8]> {
        self.parts.is_empty().then(|| &self.text[self.text_sent..])
    }

    /// The next bytes to send.
    pub(super) fn slices<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        let mut text = &self.text[self.text_sent..];
        if self.parts.is_empty() {
            slices.push(IoSlice::new(text));
            return;
        }
        for part in self.parts.iter().rev().take(SLICES_MAX) {
            match part {
                Part::Text(len) => {
                    let (piece, rest) = text.split_at(*len);
                    text = rest;
                    slices.push(IoSlice::new(piece));
                }
                Part::Value(value) => slices.push(IoSlice::new(value)),
            }
        }
    }

    /// Records that `len` bytes were sent; returns whether the output is empty.
    pub(super) fn sent(&mut self, mut len: usize) -> bool {
        if self.parts.is_empty() {
            self.text_sent += len;
        }
        while len > 0 {
            match self.parts.last_mut() {
                None => break,
                Some(Part::Text(left)) => {
                    let taken = len.min(*left);
                    self.text_sent += taken;
                    *left -= taken;
                    len -= taken;
                    if *left == 0 {
                        self.parts.pop();
                    }
                }
                Some(Part::Value(value)) => {
                    let taken = len.min(value.len());
                    value.advance(taken);
                    len -= taken;
                    if value.is_empty() {
                        self.parts.pop();
                    }
                }
            }
        }
        let is_done = self.text_sent == self.text.len() && self.parts.is_empty();
        if is_done {
            self.reset();
        }
        is_done
    }

    fn reset(&mut self) {
        self.text.clear();
        self.text_sent = 0;
        self.placed = 0;
        self.value_bytes = 0;
        self.shares.clear();
        if self.text.capacity() > KEPT_BYTES_MAX {
            self.text = BytesMut::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(len: usize) -> Item {
        Item {
            flags: 5,
            version: 9,
            expiry_unix_s: 0,
            state: Default::default(),
            value: vec![b'x'; len].into(),
        }
    }

    fn send(output: &mut Output, step: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        output.begin_sending();
        loop {
            let mut slices = Vec::new();
            output.slices(&mut slices);
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            let taken = step.min(bytes.len());
            sent.extend(&bytes[..taken]);
            if output.sent(taken) {
                return sent;
            }
        }
    }

    #[test]
    fn text_and_values_are_sent_in_order() {
        let build = || {
            let mut first = Output::default();
            first.line("STORED");
            first.item(b"a", &item(3), false);
            let mut second = Output::default();
            second.item(b"long", &item(COPIED_BYTES_MAX + 1), true);
            second.line("END");
            second.item(b"longer", &item(5000), false);
            first.append(second);
            first.line("END");
            first
        };
        let long = "x".repeat(COPIED_BYTES_MAX + 1);
        let longer = "x".repeat(5000);
        let expected = format!(
            "STORED\r\nVALUE a 5 3\r\nxxx\r\nVALUE long 5 2049 9\r\n{long}\r\nEND\r\n\
             VALUE longer 5 5000\r\n{longer}\r\nEND\r\n"
        );
        assert_eq!(build().len(), expected.len());
        for step in [1, 7, 100, 2000, 100_000] {
            let mut output = build();
            assert_eq!(send(&mut output, step), expected.as_bytes(), "{step}");
            output.line("again");
            assert_eq!(send(&mut output, step), b"again\r\n");
        }
    }
}
