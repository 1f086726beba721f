//! The handshake as a state machine: an option comes in, replies go out.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use tokio_util::sync::CancellationToken;

use super::config::TlsMode;
use super::exports::{Exports, Served};
use super::protocol::options::{
    self, ClientOption, ContextQuery, ExportQuery, OptionError, flags, info, kind, number,
};
use super::protocol::reply::ALLOCATION_ID;
use super::protocol::request::Terms;

/// The only context.
const ALLOCATION: &str = "base:allocation";

/// The namespace of [`ALLOCATION`], which lists it.
const BASE: &str = "base:";

/// The state of one handshake.
pub(super) struct Negotiation<'a> {
    exports: &'a Exports,
    tls: TlsMode,
    /// TLS protects the connection.
    is_encrypted: bool,
    client_flags: u32,
    /// Cancelled when the server is shut down.
    draining: &'a CancellationToken,
    structured: bool,
    /// The export whose allocation the client selected.
    allocation_of: Option<Arc<Served>>,
}

/// The next step after the replies so far were sent.
pub(super) enum Step {
    /// Read another option.
    Continue,
    /// Run the TLS handshake, and begin again.
    StartTls,
    /// Begin the transmission.
    Begin(Agreed),
    /// Close the connection.
    Close,
}

/// The result of a handshake.
#[derive(Clone)]
pub(super) struct Agreed {
    pub(super) served: Arc<Served>,
    pub(super) terms: Terms,
}

impl<'a> Negotiation<'a> {
    /// A handshake with a client whose first message was `client_flags`; `None`
    /// if a flag is unknown.
    pub(super) fn new(
        exports: &'a Exports,
        tls: TlsMode,
        client_flags: u32,
        draining: &'a CancellationToken,
    ) -> Option<Self> {
        let known = u32::from(options::FIXED_NEWSTYLE | options::NO_ZEROES);
        (client_flags & !known == 0).then_some(Negotiation {
            exports,
            tls,
            is_encrypted: false,
            client_flags,
            draining,
            structured: false,
            allocation_of: None,
        })
    }

    /// Forgets all that an attacker may have negotiated before the encryption.
    pub(super) fn encrypted(&mut self) {
        self.is_encrypted = true;
        self.structured = false;
        self.allocation_of = None;
    }

    /// Processes the option `number`.
    pub(super) fn process(&mut self, number: u32, data: &[u8], out: &mut BytesMut) -> Step {
        let is_fixed = self.client_flags & u32::from(options::FIXED_NEWSTYLE) != 0;
        let needs_tls = self.tls == TlsMode::Required && !self.is_encrypted;
        let is_draining = self.draining.is_cancelled();
        // Without replies an error can only close the connection.
        if number == number::EXPORT_NAME {
            return match ClientOption::parse(number, data) {
                Ok(ClientOption::ExportName(name)) if !needs_tls && !is_draining => {
                    self.export_name(name, out)
                }
                _ => Step::Close,
            };
        }
        if !is_fixed {
            return Step::Close;
        }
        let mut replies = Replies { number, out };
        if is_draining && number != number::ABORT {
            replies.put(kind::ERR_SHUTDOWN, b"the server is being shut down");
            return Step::Close;
        }
        if needs_tls && !matches!(number, number::STARTTLS | number::ABORT) {
            replies.put(kind::ERR_TLS_REQD, b"begin with STARTTLS");
            return Step::Continue;
        }
        match ClientOption::parse(number, data) {
            Ok(option) => self.answer(option, &mut replies),
            Err(error) => {
                if number == number::SET_META_CONTEXT {
                    self.allocation_of = None;
                }
                replies.put(
                    match error {
                        OptionError::Unknown => kind::ERR_UNSUP,
                        OptionError::Invalid => kind::ERR_INVALID,
                        OptionError::TooBig => kind::ERR_TOO_BIG,
                    },
                    b"",
                );
                Step::Continue
            }
        }
    }

    fn answer(&mut self, option: ClientOption<'_>, replies: &mut Replies<'_>) -> Step {
        match option {
            ClientOption::Abort => {
                replies.put(kind::ACK, b"");
                return Step::Close;
            }
            ClientOption::List => {
                for served in self.exports.all() {
                    let mut entry = BytesMut::new();
                    put_text(&mut entry, &served.name);
                    replies.put(kind::SERVER, &entry);
                }
                replies.put(kind::ACK, b"");
            }
            ClientOption::StartTls => return self.start_tls(replies),
            ClientOption::Info(query) => {
                self.describe(&query, replies);
            }
            ClientOption::Go(query) => {
                if let Some(agreed) = self.describe(&query, replies) {
                    return Step::Begin(agreed);
                }
            }
            ClientOption::StructuredReply => {
                self.structured = true;
                replies.put(kind::ACK, b"");
            }
            ClientOption::ListMetaContext(query) => self.list_contexts(&query, replies),
            ClientOption::SetMetaContext(query) => self.set_contexts(&query, replies),
            // Processed before.
            ClientOption::ExportName(_) => return Step::Close,
        }
        Step::Continue
    }

    fn start_tls(&self, replies: &mut Replies<'_>) -> Step {
        let (kind, step) = match (self.tls, self.is_encrypted) {
            (TlsMode::Off, _) => (kind::ERR_POLICY, Step::Continue),
            (_, true) => (kind::ERR_INVALID, Step::Continue),
            (_, false) => (kind::ACK, Step::StartTls),
        };
        replies.put(kind, b"");
        step
    }

    fn export_name(&self, name: &str, out: &mut BytesMut) -> Step {
        let Some(served) = self.exports.find(name) else {
            return Step::Close;
        };
        let agreed = self.agreed(&served);
        put_size_and_flags(&agreed.terms, out);
        if self.client_flags & u32::from(options::NO_ZEROES) == 0 {
            out.put_bytes(0, options::PADDING_BYTES);
        }
        Step::Begin(agreed)
    }

    /// Replies with the facts of an export.
    fn describe(&self, query: &ExportQuery<'_>, replies: &mut Replies<'_>) -> Option<Agreed> {
        let Some(served) = self.exports.find(query.name) else {
            replies.put(kind::ERR_UNKNOWN, b"there is no such export");
            return None;
        };
        let agreed = self.agreed(&served);
        let Agreed { served, terms } = &agreed;
        replies.info(info::EXPORT, |data| put_size_and_flags(terms, data));
        if query.asks_for(info::NAME) {
            replies.info(info::NAME, |data| data.put_slice(served.name.as_bytes()));
        }
        if query.asks_for(info::DESCRIPTION) {
            let text = served.export.describe();
            replies.info(info::DESCRIPTION, |data| data.put_slice(text.as_bytes()));
        }
        if query.asks_for(info::BLOCK_SIZE) {
            replies.info(info::BLOCK_SIZE, |data| {
                data.put_u32(terms.block_bytes);
                data.put_u32(served.export.preferred_bytes());
                data.put_u32(terms.payload_bytes_max);
            });
        }
        replies.put(kind::ACK, b"");
        Some(agreed)
    }

    fn agreed(&self, served: &Arc<Served>) -> Agreed {
        let selected = self.allocation_of.as_ref();
        let terms = Terms {
            structured: self.structured,
            has_allocation: selected.is_some_and(|selected| Arc::ptr_eq(selected, served)),
            ..self.exports.terms(served)
        };
        Agreed {
            served: Arc::clone(served),
            terms,
        }
    }

    fn list_contexts(&self, query: &ContextQuery<'_>, replies: &mut Replies<'_>) {
        let is_listed = query.queries.is_empty()
            || query
                .queries
                .iter()
                .any(|query| [ALLOCATION, BASE].contains(query));
        match self.exports.find(query.name) {
            None => replies.put(kind::ERR_UNKNOWN, b"there is no such export"),
            Some(_) => replies.contexts(is_listed.then_some(0)),
        }
    }

    fn set_contexts(&mut self, query: &ContextQuery<'_>, replies: &mut Replies<'_>) {
        self.allocation_of = None;
        if !self.structured {
            return replies.put(kind::ERR_INVALID, b"negotiate structured replies first");
        }
        let Some(served) = self.exports.find(query.name) else {
            return replies.put(kind::ERR_UNKNOWN, b"there is no such export");
        };
        let is_selected = query.queries.contains(&ALLOCATION);
        self.allocation_of = is_selected.then_some(served);
        replies.contexts(is_selected.then_some(ALLOCATION_ID));
    }
}

/// The replies to one option.
struct Replies<'a> {
    number: u32,
    out: &'a mut BytesMut,
}

impl Replies<'_> {
    fn put(&mut self, kind: u32, data: &[u8]) {
        options::put_reply(self.out, self.number, kind, data);
    }

    fn info(&mut self, info: u16, put_data: impl FnOnce(&mut BytesMut)) {
        let mut data = BytesMut::new();
        data.put_u16(info);
        put_data(&mut data);
        self.put(kind::INFO, &data);
    }

    /// `base:allocation` with an id, or no context.
    fn contexts(&mut self, id: Option<u32>) {
        if let Some(id) = id {
            let mut data = BytesMut::new();
            data.put_u32(id);
            data.put_slice(ALLOCATION.as_bytes());
            self.put(kind::META_CONTEXT, &data);
        }
        self.put(kind::ACK, b"");
    }
}

fn put_text(out: &mut BytesMut, text: &str) {
    // A name has at most 4096 bytes.
    out.put_u32(text.len() as u32);
    out.put_slice(text.as_bytes());
}

fn put_size_and_flags(terms: &Terms, out: &mut BytesMut) {
    let when = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
    out.put_u64(terms.size_bytes);
    out.put_u16(
        flags::HAS_FLAGS
            | flags::SEND_FLUSH
            | flags::SEND_FUA
            | flags::SEND_TRIM
            | flags::SEND_WRITE_ZEROES
            | flags::SEND_FAST_ZERO
            | flags::SEND_CACHE
            // A flush makes the writes of all connections durable.
            | flags::CAN_MULTI_CONN
            | when(terms.structured, flags::SEND_DF)
            | when(terms.is_read_only, flags::READ_ONLY),
    );
}
