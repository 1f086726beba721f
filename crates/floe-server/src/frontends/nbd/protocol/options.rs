//! The handshake: its fixed messages, and the options that a client sends.

use bytes::BufMut;
pub use floe::backing::nbd::wire::{
    FIXED_NEWSTYLE, GREETING, NO_ZEROES, OPTION_MAGIC, REPLY_MAGIC, flags, info, kind, number,
};

/// The padding after the reply to `EXPORT_NAME`.
pub const PADDING_BYTES: usize = 124;

/// Bytes of an option's head: magic, number, length of its data.
pub const HEAD_BYTES: usize = 16;
/// Most bytes of an option's data; more end the connection.
pub const DATA_BYTES_MAX: u32 = 64 << 10;
/// Most bytes of a name or a query, as in the protocol.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Most queries of one option.
pub const QUERIES_MAX: usize = 64;

/// The head of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// One of [`number`], or an unknown one.
    pub number: u32,
    /// Bytes of data that follow.
    pub len: u32,
}

impl Head {
    /// `None` if the magic is wrong or the data is longer than [`DATA_BYTES_MAX`].
    pub fn parse(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let magic = reader.u64()?;
        let (number, len) = (reader.u32()?, reader.u32()?);
        (magic == OPTION_MAGIC && len <= DATA_BYTES_MAX).then_some(Head { number, len })
    }
}

/// An option with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOption<'a> {
    /// Begins the transmission; there is no error reply.
    ExportName(&'a str),
    /// Ends the connection.
    Abort,
    /// Lists the exports.
    List,
    /// Encrypts the connection.
    StartTls,
    /// Describes an export.
    Info(ExportQuery<'a>),
    /// Describes an export, and begins the transmission.
    Go(ExportQuery<'a>),
    /// Reads get structured replies.
    StructuredReply,
    /// Lists contexts.
    ListMetaContext(ContextQuery<'a>),
    /// Selects contexts.
    SetMetaContext(ContextQuery<'a>),
}

/// The data of `INFO` and `GO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportQuery<'a> {
    /// The export; empty is the default one.
    pub name: &'a str,
    /// Types of information, in pairs of bytes.
    requests: &'a [u8],
}

impl ExportQuery<'_> {
    /// True if the client asks for this type of information.
    pub fn asks_for(&self, info: u16) -> bool {
        let mut asked = self.requests.chunks_exact(2);
        asked.any(|pair| pair == info.to_be_bytes())
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextQuery<'a> {
    /// The export; empty is the default one.
    pub name: &'a str,
    /// The queries, such as `base:allocation`.
    pub queries: Vec<&'a str>,
}

/// An option without an answer other than an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The server does not know the option.
    #[error("the option is unknown")]
    Unknown,
    /// The data is malformed.
    #[error("the data is malformed")]
    Invalid,
    /// There are too many queries, or a text is too long.
    #[error("there are too many queries, or a text is too long")]
    TooBig,
}

impl<'a> ClientOption<'a> {
    /// Reads the option `number`, whose data is `data`.
    ///
    /// # Errors
    /// The option is unknown or its data is malformed.
    pub fn parse(number: u32, data: &'a [u8]) -> Result<Self, OptionError> {
        let mut reader = Reader(data);
        let option = match number {
            number::EXPORT_NAME => ClientOption::ExportName(reader.text(data.len())?),
            // The protocol ignores its data.
            number::ABORT => return Ok(ClientOption::Abort),
            number::LIST => ClientOption::List,
            number::STARTTLS => ClientOption::StartTls,
            number::INFO => ClientOption::Info(reader.export_query()?),
            number::GO => ClientOption::Go(reader.export_query()?),
            number::STRUCTURED_REPLY => ClientOption::StructuredReply,
            number::LIST_META_CONTEXT => ClientOption::ListMetaContext(reader.context_query()?),
            number::SET_META_CONTEXT => ClientOption::SetMetaContext(reader.context_query()?),
            _ => return Err(OptionError::Unknown),
        };
        match reader.0.is_empty() {
            true => Ok(option),
            false => Err(OptionError::Invalid),
        }
    }
}

/// Unread bytes of a message.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8], OptionError> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(OptionError::Invalid)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self, len: usize) -> Result<&'a str, OptionError> {
        let bytes = self.bytes(len)?;
        if len > TEXT_BYTES_MAX {
            return Err(OptionError::TooBig);
        }
        str::from_utf8(bytes).map_err(|_| OptionError::Invalid)
    }

    fn counted_text(&mut self) -> Result<&'a str, OptionError> {
        let len = self.u32().ok_or(OptionError::Invalid)?;
        self.text(len as usize)
    }

    fn export_query(&mut self) -> Result<ExportQuery<'a>, OptionError> {
        let name = self.counted_text()?;
        let requests = self.u16().ok_or(OptionError::Invalid)?;
        let requests = self.bytes(2 * usize::from(requests))?;
        Ok(ExportQuery { name, requests })
    }

    fn context_query(&mut self) -> Result<ContextQuery<'a>, OptionError> {
        let name = self.counted_text()?;
        let count = self.u32().ok_or(OptionError::Invalid)? as usize;
        if count > QUERIES_MAX {
            return Err(OptionError::TooBig);
        }
        let queries = (0..count).map(|_| self.counted_text());
        let queries = queries.collect::<Result<_, _>>()?;
        Ok(ContextQuery { name, queries })
    }
}

/// Appends the server's first message.
pub fn put_greeting(out: &mut impl BufMut) {
    out.put_u64(GREETING);
    out.put_u64(OPTION_MAGIC);
    out.put_u16(FIXED_NEWSTYLE | NO_ZEROES);
}

/// Appends a reply of type `kind` to the option `number`.
pub fn put_reply(out: &mut impl BufMut, number: u32, kind: u32, data: &[u8]) {
    out.put_u64(REPLY_MAGIC);
    out.put_u32(number);
    out.put_u32(kind);
    // Bounded by the lengths of names.
    out.put_u32(data.len() as u32);
    out.put_slice(data);
}
