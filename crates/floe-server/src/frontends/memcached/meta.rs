//! The meta commands on items, and their responses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BufMut;
use floe::Item;
use floe::items::{Access, Decision, Expiry, ItemBuffer, ItemError, ItemState, NewItem};
use tokio_util::context::TokioContext;

use super::execute::{Context, NoCount, Outcome, Sent, counted, item_bytes};
use super::output::Output;
use super::protocol::number::Digits;
use super::protocol::{self, Key, Meta, Request, Verb};
use super::words as say;

/// An item and its metadata for the response of `mg`.
struct View<'a> {
    item: &'a Item,
    /// The item's access before this read.
    access: Access,
    /// The expiry that this request sets, for flags after its `T`.
    new_expiry: Option<Expiry>,
    /// The expiry of an item that this request created, for flags after its `N`.
    first_expiry: Option<Expiry>,
    /// This client must refill the item.
    won: bool,
    now_unix_s: u64,
}

impl Context {
    /// True if `mg` must change the item or create one.
    pub(super) fn must_change(&self, meta: &Meta<'_>, item: Option<&Item>) -> bool {
        match item {
            None => meta.vivify.is_some(),
            Some(item) => meta.ttl.is_some() || self.wins(meta, item),
        }
    }

    /// True if this client must refill the item.
    fn wins(&self, meta: &Meta<'_>, item: &Item) -> bool {
        let ends_soon = || {
            let soon = match meta.recache.map(|seconds| self.expiry(seconds)) {
                Some(Expiry::At(at)) => at,
                _ => return false,
            };
            // A `T` before the `R` takes effect first.
            let mut flags = meta.flags().map(|(flag, _)| flag);
            let comes_first = flags.find(|flag| matches!(flag, b'T' | b'R'));
            let expiry_unix_s = match meta.ttl.filter(|_| comes_first == Some(b'T')) {
                Some(seconds) => unix_s(self.expiry(seconds)),
                None => item.expiry_unix_s,
            };
            expiry_unix_s != 0 && expiry_unix_s < soon
        };
        !item.state.is_claimed && (item.state.is_stale || ends_soon())
    }

    /// `mg` without a change.
    pub(super) fn meta_show(&self, meta: &Meta<'_>, item: Option<&Item>, output: &mut Output) {
        let Some(item) = item else {
            return missing(meta, output);
        };
        let view = View {
            item,
            access: self.items().access(item),
            new_expiry: None,
            first_expiry: None,
            won: false,
            now_unix_s: self.now_unix_s(),
        };
        view.show(meta, output);
        if !meta.no_bump {
            self.items().note_read(item);
        }
    }

    /// `mg` with any change.
    pub(super) async fn meta_get(&self, meta: &Meta<'_>) -> Output {
        let now_unix_s = self.now_unix_s();
        let new_expiry = meta.ttl.map(|seconds| self.expiry(seconds));
        let updated = self.items().update(meta.key.as_slice(), |present| {
            let Some(item) = present else {
                return self.vivify(meta, new_expiry);
            };
            let won = self.wins(meta, item);
            if !won && new_expiry.is_none() {
                return Decision::Keep(Some((item.clone(), false)));
            }
            let mut new = NewItem::copy_of(item);
            new.state.is_claimed |= won;
            new.expiry = new_expiry.unwrap_or(new.expiry);
            Decision::Amend(new, Some((item.clone(), won)))
        });
        let updated = match updated.await {
            Ok(updated) => updated,
            Err(error) => return self.failed(&error),
        };
        let mut output = Output::default();
        let Some((mut item, won)) = updated.result else {
            self.count_get(meta, false);
            missing(meta, &mut output);
            return output;
        };
        // A new item received its version when it was stored.
        let is_new = item.version == 0;
        item.version = updated.version.unwrap_or(item.version);
        let view = View {
            item: &item,
            access: self.items().access(&item),
            new_expiry,
            first_expiry: is_new
                .then(|| meta.vivify.map(|seconds| self.expiry(seconds)))
                .flatten(),
            won,
            now_unix_s,
        };
        view.show(meta, &mut output);
        if !meta.no_bump {
            self.items().note_read(&item);
        }
        self.count_get(meta, true);
        output
    }

    fn count_get(&self, meta: &Meta<'_>, is_hit: bool) {
        let counters = &self.counters;
        if meta.ttl.is_some() {
            counters.touches.add(1);
            counters.touch_hits.add(u64::from(is_hit));
            return;
        }
        counters.gets.add(1);
        match is_hit {
            true => counters.get_hits_memory.add(1),
            false => counters.get_misses.add(1),
        }
    }

    /// Creates an empty item for the first client that missed, if the command asks for it.
    fn vivify(
        &self,
        meta: &Meta<'_>,
        new_expiry: Option<Expiry>,
    ) -> Decision<Option<(Item, bool)>> {
        let Some(seconds) = meta.vivify else {
            return Decision::Keep(None);
        };
        // The last of `N` and `T` applies.
        let last = meta.flags().filter(|(flag, _)| matches!(flag, b'N' | b'T'));
        let expiry = match (last.last(), new_expiry) {
            (Some((b'T', _)), Some(expiry)) => expiry,
            _ => self.expiry(seconds),
        };
        let mut new = NewItem::new(ItemBuffer::new(0));
        new.expiry = expiry;
        new.state.is_claimed = true;
        let shown = Item {
            flags: 0,
            version: 0,
            expiry_unix_s: 0,
            state: ItemState::default(),
            value: bytes::Bytes::new(),
        };
        Decision::Put(new, Some((shown, true)))
    }

    /// `ms`, after its value has arrived.
    pub(super) async fn meta_set(&self, meta: &Meta<'_>, value: ItemBuffer) -> Output {
        let verb = set_verb(meta);
        let sent = Sent {
            verb,
            key: meta.key.as_slice().into(),
            flags: meta.client_flags,
            expiry: self.set_expiry(meta),
            version: meta.version.unwrap_or(0),
            allow_stale: meta.stale && verb == Verb::Cas,
            value,
        };
        self.meta_stored(meta, self.store(sent).await)
    }

    /// The expiry of an item that `ms` stores.
    pub(super) fn set_expiry(&self, meta: &Meta<'_>) -> Expiry {
        meta.ttl
            .map_or(Expiry::Never, |seconds| self.expiry(seconds))
    }

    /// The response to `ms`.
    pub(super) fn meta_stored(
        &self,
        meta: &Meta<'_>,
        stored: Result<(Outcome, Option<u64>), ItemError>,
    ) -> Output {
        let (outcome, version) = match stored {
            Ok(stored) => stored,
            Err(error) => return self.failed(&error),
        };
        let mut output = Output::default();
        if outcome == Outcome::Stored && meta.quiet {
            return output;
        }
        output.text().put_slice(match outcome {
            Outcome::Stored => b"HD",
            Outcome::NotStored => b"NS",
            Outcome::Exists => b"EX",
            Outcome::NotFound => b"NF",
        });
        for (flag, word) in meta.flags() {
            if flag == b'c' {
                number(&mut output, b'c', version.unwrap_or(0));
            } else {
                echo(meta, flag, word, &mut output);
            }
        }
        output.text().put_slice(b"\r\n");
        output
    }

    /// `md`.
    pub(super) async fn meta_delete(&self, meta: &Meta<'_>) -> Output {
        let new_expiry = meta.ttl.map(|seconds| self.expiry(seconds));
        let mut was_read = false;
        let updated = self.items().update(meta.key.as_slice(), |present| {
            let Some(item) = present else {
                return Decision::Keep(Outcome::NotFound);
            };
            if meta.version.is_some_and(|version| version != item.version) {
                return Decision::Keep(Outcome::Exists);
            }
            if !meta.stale {
                return Decision::Delete(Outcome::Stored);
            }
            was_read = self.items().access(item).was_read;
            let mut new = NewItem::copy_of(item);
            new.expiry = new_expiry.unwrap_or(new.expiry);
            new.state = ItemState {
                is_stale: true,
                is_claimed: false,
            };
            Decision::Put(new, Outcome::Stored)
        });
        let mut output = Output::default();
        let outcome = match updated.await {
            Ok(updated) => {
                self.keep_access(was_read, updated.version);
                updated.result
            }
            Err(error) => return self.failed(&error),
        };
        match outcome {
            Outcome::Stored => self.counters.delete_hits.add(1),
            _ => self.counters.delete_misses.add(1),
        }
        if outcome == Outcome::Stored && meta.quiet {
            return output;
        }
        output.text().put_slice(match outcome {
            Outcome::Stored => b"HD",
            Outcome::Exists => b"EX",
            Outcome::NotFound | Outcome::NotStored => b"NF",
        });
        echo_all(meta, &mut output);
        output
    }

    /// `ma`.
    pub(super) async fn meta_count(&self, meta: &Meta<'_>) -> Output {
        let up = !matches!(meta.mode.0, Some(b'D' | b'-'));
        let now_unix_s = self.now_unix_s();
        let new_expiry = meta.ttl.map(|seconds| self.expiry(seconds));
        let mut was_read = false;
        let updated = self.items().update(meta.key.as_slice(), |present| {
            let Some(item) = present else {
                return self.first_count(meta, new_expiry);
            };
            // Version 0 means none, as in memcached.
            let expected = meta.version.filter(|&version| version != 0);
            if item.value.is_empty() || is_in_chunks(meta.key.as_slice(), item) {
                return Decision::Keep(Err(NoCount::NotANumber));
            }
            if expected.is_some_and(|version| version != item.version) {
                return Decision::Keep(Err(NoCount::Mismatch));
            }
            match counted(item, meta.delta, up) {
                Ok((mut new, count)) => {
                    let in_place = new.value.bytes().len() == item.value.len();
                    was_read = in_place && self.items().access(item).was_read;
                    let old = new.expiry;
                    new.expiry = new_expiry.unwrap_or(old);
                    Decision::Put(new, Ok((count, old, false)))
                }
                Err(none) => Decision::Keep(Err(none)),
            }
        });
        let updated = match updated.await {
            Ok(updated) => updated,
            Err(error) => return self.failed(&error),
        };
        let mut output = Output::default();
        self.keep_access(was_read, updated.version);
        self.note_count(up, &updated.result.map(|(count, ..)| count));
        let (count, mut expiry, is_new) = match updated.result {
            Ok(counted) => counted,
            Err(NoCount::NotANumber) => {
                output.line(say::NOT_A_NUMBER);
                return output;
            }
            Err(none) => {
                let is_mismatch = none == NoCount::Mismatch;
                output
                    .text()
                    .put_slice(if is_mismatch { b"EX" } else { b"NF" });
                echo_all(meta, &mut output);
                return output;
            }
        };
        if meta.quiet && !is_new {
            return output;
        }
        let digits = Digits::of(count);
        let digits = digits.as_slice();
        head(meta, digits.len(), &mut output);
        for (flag, word) in meta.flags() {
            match flag {
                b'T' => expiry = new_expiry.unwrap_or(expiry),
                b'N' if is_new => expiry = meta.vivify.map_or(expiry, |s| self.expiry(s)),
                b'c' => number(&mut output, b'c', updated.version.unwrap_or(0)),
                b't' => time_left(&mut output, unix_s(expiry), now_unix_s),
                _ => echo(meta, flag, word, &mut output),
            }
        }
        output.text().put_slice(b"\r\n");
        if meta.value {
            output.text().put_slice(digits);
            output.text().put_slice(b"\r\n");
        }
        output
    }

    fn first_count(
        &self,
        meta: &Meta<'_>,
        new_expiry: Option<Expiry>,
    ) -> Decision<Result<(u64, Expiry, bool), NoCount>> {
        let Some(seconds) = meta.vivify else {
            return Decision::Keep(Err(NoCount::NotFound));
        };
        let last = meta.flags().filter(|(flag, _)| matches!(flag, b'N' | b'T'));
        let digits = Digits::of(meta.initial);
        let mut new = NewItem::new(ItemBuffer::from(digits.as_slice()));
        new.expiry = match (last.last(), new_expiry) {
            (Some((b'T', _)), Some(expiry)) => expiry,
            _ => self.expiry(seconds),
        };
        Decision::Put(new, Ok((meta.initial, Expiry::Never, true)))
    }

    /// `me`.
    pub(super) fn meta_debug(&self, key: &Key<'_>, item: Option<&Item>, output: &mut Output) {
        let Some(item) = item else {
            output.line("EN");
            return;
        };
        let now = self.now_unix_s();
        let access = self.items().access(item);
        let text = output.text();
        text.put_slice(b"ME ");
        put_key(text, key);
        let ends_in = match item.expiry_unix_s {
            0 => -1,
            // memcached gives the seconds since the expiry, negative before it.
            at => i64::try_from(now).unwrap_or(i64::MAX) - i64::from(at),
        };
        let line = format!(
            " exp={ends_in} la={} cas={} fetch={} cls=1 size={}\r\n",
            now.saturating_sub(access.last_unix_s),
            item.version,
            if access.was_read { "yes" } else { "no" },
            item_bytes(key.as_slice().len(), item.flags, item.value.len()),
        );
        text.put_slice(line.as_bytes());
    }
}

impl View<'_> {
    fn show(&self, meta: &Meta<'_>, output: &mut Output) {
        let item = self.item;
        head(meta, item.value.len(), output);
        let mut expiry_unix_s = item.expiry_unix_s;
        for (flag, word) in meta.flags() {
            match flag {
                b'T' => expiry_unix_s = self.new_expiry.map_or(expiry_unix_s, unix_s),
                b'N' => expiry_unix_s = self.first_expiry.map_or(expiry_unix_s, unix_s),
                b's' => number(output, b's', item.value.len() as u64),
                b't' => time_left(output, expiry_unix_s, self.now_unix_s),
                b'c' => number(output, b'c', item.version),
                b'f' => number(output, b'f', u64::from(item.flags)),
                b'l' => {
                    let seconds = self.now_unix_s.saturating_sub(self.access.last_unix_s);
                    number(output, b'l', seconds);
                }
                b'h' => number(output, b'h', u64::from(self.access.was_read)),
                _ => echo(meta, flag, word, output),
            }
        }
        let text = output.text();
        if item.state.is_claimed {
            text.put_slice(b" Z");
        }
        if item.state.is_stale {
            text.put_slice(b" X");
        }
        if self.won {
            text.put_slice(b" W");
        }
        text.put_slice(b"\r\n");
        if meta.value {
            output.value(&item.value);
        }
    }
}

/// True if memcached would store the item in several slab chunks. Such an item
/// is no number.
fn is_in_chunks(key: &[u8], item: &Item) -> bool {
    const SLAB_CHUNK_BYTES_MAX: u64 = 512 << 10;
    item_bytes(key.len(), item.flags, item.value.len()) > SLAB_CHUNK_BYTES_MAX
}

/// The status of a response with an item.
fn head(meta: &Meta<'_>, len: usize, output: &mut Output) {
    if !meta.value {
        output.text().put_slice(b"HD");
        return;
    }
    output.text().put_slice(b"VA ");
    output.number(len as u64);
}

/// What `ms` does.
pub(super) fn set_verb(meta: &Meta<'_>) -> Verb {
    match meta.mode.0 {
        Some(b'E') => Verb::Add,
        Some(b'A') => Verb::Append,
        Some(b'P') => Verb::Prepend,
        _ if meta.version.is_some() => Verb::Cas,
        Some(b'R') => Verb::Replace,
        _ => Verb::Set,
    }
}

/// `mg` of a missing item.
fn missing(meta: &Meta<'_>, output: &mut Output) {
    if meta.quiet {
        return;
    }
    output.text().put_slice(b"EN");
    echo_all(meta, output);
}

fn echo_all(meta: &Meta<'_>, output: &mut Output) {
    for (flag, word) in meta.flags() {
        echo(meta, flag, word, output);
    }
    output.text().put_slice(b"\r\n");
}

/// Flags that the response repeats.
fn echo(meta: &Meta<'_>, flag: u8, word: &[u8], output: &mut Output) {
    let text = output.text();
    match flag {
        b'O' => {
            text.put_u8(b' ');
            text.put_slice(word);
        }
        b'k' => {
            text.put_slice(b" k");
            put_key(text, &meta.key);
            if meta.key.is_decoded() {
                text.put_slice(b" b");
            }
        }
        _ => {}
    }
}

fn put_key(text: &mut bytes::BytesMut, key: &Key<'_>) {
    match key {
        Key::Plain(key) => text.put_slice(key),
        Key::Decoded(..) => text.put_slice(STANDARD.encode(key.as_slice()).as_bytes()),
    }
}

fn number(output: &mut Output, flag: u8, value: u64) {
    output.text().put_u8(b' ');
    output.text().put_u8(flag);
    output.number(value);
}

fn time_left(output: &mut Output, expiry_unix_s: u32, now_unix_s: u64) {
    match expiry_unix_s {
        0 => output.text().put_slice(b" t-1"),
        at => number(output, b't', u64::from(at).saturating_sub(now_unix_s)),
    }
}

/// An item's expiry in seconds; a past one is the first second.
fn unix_s(expiry: Expiry) -> u32 {
    match expiry {
        Expiry::Never => 0,
        Expiry::At(at) => at,
        Expiry::Past => 1,
    }
}

/// Requests that were kept as lines while they waited.
impl Context {
    /// `mg` of an item on flash.
    pub(super) async fn meta_read(&self, line: &[u8]) -> Output {
        let mut output = Output::default();
        let Request::MetaGet(meta) = protocol::parse(line) else {
            return output;
        };
        let item = self.read(meta.key.as_slice()).await;
        match self.must_change(&meta, item.as_ref()) {
            // A change may spawn tasks; a read does not.
            true => TokioContext::new(self.meta_get(&meta), self.frontend.runtime.clone()).await,
            false => {
                self.meta_show(&meta, item.as_ref(), &mut output);
                output
            }
        }
    }

    /// `mg`, `md`, `ma`.
    pub(super) async fn meta_line(&self, line: &[u8]) -> Output {
        match protocol::parse(line) {
            Request::MetaGet(meta) => self.meta_get(&meta).await,
            Request::MetaDelete(meta) => self.meta_delete(&meta).await,
            Request::MetaCount(meta) => self.meta_count(&meta).await,
            _ => Output::default(),
        }
    }

    /// `ms` with its value.
    pub(super) async fn meta_set_line(&self, line: &[u8], value: ItemBuffer) -> Output {
        match protocol::parse(line) {
            Request::MetaSet(meta, _) => self.meta_set(&meta, value).await,
            _ => Output::default(),
        }
    }
}
