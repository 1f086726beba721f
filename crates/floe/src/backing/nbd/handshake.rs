//! The client's side of the handshake: fixed newstyle, `GO`, structured replies.

use bytes::{Buf as _, BufMut as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::error::{Fault, Junk};
use super::transport::{Stream, Tls};
use super::wire::{
    FIXED_NEWSTYLE, GREETING, NO_ZEROES, OPTION_MAGIC, PAYLOAD_BYTES_MAX, REPLY_MAGIC, flags, info,
    kind, number,
};

/// Most bytes of a reply to an option.
const REPLY_BYTES_MAX: u32 = 64 << 10;

/// Most replies to an option.
const REPLIES_MAX: usize = 64;

/// Blocks of a server that names no size.
const BLOCK_BYTES_MIN: u32 = 512;

/// An export, as its server describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) size_bytes: u64,
    /// The transmission flags.
    pub(super) flags: u16,
    pub(super) block_bytes: u32,
    pub(super) payload_bytes_max: u32,
    /// Reads have structured replies.
    pub(super) is_structured: bool,
}

impl Export {
    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Agrees with a server on the export `name`.
pub(super) async fn greet(
    mut stream: Stream,
    name: &str,
    tls: Option<&Tls>,
) -> Result<(Stream, Export), Fault> {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).await?;
    let mut greeting = &greeting[..];
    if greeting.get_u64() != GREETING || greeting.get_u64() != OPTION_MAGIC {
        return Err(Junk("the greeting is not that of a newstyle NBD server").into());
    }
    let offered = greeting.get_u16();
    if offered & FIXED_NEWSTYLE == 0 {
        return Err(Junk("the server has no fixed newstyle handshake").into());
    }
    let accepted = FIXED_NEWSTYLE | offered & NO_ZEROES;
    stream.write_all(&u32::from(accepted).to_be_bytes()).await?;
    if let Some(tls) = tls {
        match ask(&mut stream, number::STARTTLS, &[]).await? {
            Answer::Done(_) => stream = tls.encrypt(stream).await?,
            Answer::Rejected { reason, .. } => {
                return Err(Fault::Rejected(format!("no TLS: {reason}")));
            }
        }
    }
    let structured = ask(&mut stream, number::STRUCTURED_REPLY, &[]).await?;
    let mut query = Vec::with_capacity(name.len() + 8);
    // The address has checked its length.
    query.put_u32(name.len() as u32);
    query.put_slice(name.as_bytes());
    query.put_u16(1);
    query.put_u16(info::BLOCK_SIZE);
    let infos = match ask(&mut stream, number::GO, &query).await? {
        Answer::Done(infos) => infos,
        Answer::Rejected { kind, reason } => {
            let hint = match kind {
                kind::ERR_TLS_REQD => "it wants TLS, so write nbds://",
                _ => "the export may have another name",
            };
            return Err(Fault::Rejected(format!("{reason} ({hint})")));
        }
    };
    let export = export(&infos, matches!(structured, Answer::Done(_)))?;
    Ok((stream, export))
}

/// The end of the replies to an option.
enum Answer {
    /// It was accepted, with these pieces of information.
    Done(Vec<Vec<u8>>),
    /// It was not.
    Rejected { kind: u32, reason: String },
}

async fn ask(stream: &mut Stream, option: u32, data: &[u8]) -> Result<Answer, Fault> {
    let mut message = Vec::with_capacity(16 + data.len());
    message.put_u64(OPTION_MAGIC);
    message.put_u32(option);
    message.put_u32(data.len() as u32);
    message.put_slice(data);
    stream.write_all(&message).await?;
    stream.flush().await?;
    let mut infos = Vec::new();
    for _ in 0..REPLIES_MAX {
        let mut head = [0; 20];
        stream.read_exact(&mut head).await?;
        let mut head = &head[..];
        if head.get_u64() != REPLY_MAGIC || head.get_u32() != option {
            return Err(Junk("a reply to another option, or none").into());
        }
        let (reply, len) = (head.get_u32(), head.get_u32());
        if len > REPLY_BYTES_MAX {
            return Err(Junk("a reply to an option is longer than 64 KiB").into());
        }
        let mut data = vec![0; len as usize];
        stream.read_exact(&mut data).await?;
        match reply {
            kind::ACK => return Ok(Answer::Done(infos)),
            kind::INFO => infos.push(data),
            _ if reply >> 31 == 1 => {
                let reason = match data.is_empty() {
                    true => format!("error {}", reply & !(1 << 31)),
                    false => String::from_utf8_lossy(&data).into_owned(),
                };
                return Ok(Answer::Rejected {
                    kind: reply,
                    reason,
                });
            }
            _ => {}
        }
    }
    Err(Junk("an option has more than 64 replies").into())
}

/// Collects what the replies to `GO` say, and checks it.
fn export(infos: &[Vec<u8>], is_structured: bool) -> Result<Export, Fault> {
    let (mut about, mut blocks) = (None, None);
    for mut data in infos.iter().map(Vec::as_slice) {
        match (data.try_get_u16().ok(), data.len()) {
            (Some(info::EXPORT), 10) => about = Some((data.get_u64(), data.get_u16())),
            (Some(info::BLOCK_SIZE), 12) => {
                blocks = Some((data.get_u32(), data.get_u32(), data.get_u32()));
            }
            (Some(info::EXPORT | info::BLOCK_SIZE) | None, _) => {
                return Err(Junk("information about the export has a wrong length").into());
            }
            _ => {}
        }
    }
    let (size_bytes, flags) = about.ok_or(Junk("the server does not say how large it is"))?;
    let (least, _, most) = blocks.unwrap_or((BLOCK_BYTES_MIN, 0, PAYLOAD_BYTES_MAX));
    let block_bytes = least.max(BLOCK_BYTES_MIN);
    if !block_bytes.is_power_of_two() || block_bytes > 4096 {
        return Err(Fault::Unusable(format!(
            "its blocks have {least} bytes, and 4096 are the most"
        )));
    }
    if size_bytes == 0 || !size_bytes.is_multiple_of(block_bytes.into()) {
        return Err(Fault::Unusable(format!(
            "its {size_bytes} bytes are not whole blocks of {block_bytes}"
        )));
    }
    let payload_bytes_max = most.min(PAYLOAD_BYTES_MAX) / block_bytes * block_bytes;
    if payload_bytes_max == 0 {
        return Err(Junk("the longest request is shorter than a block").into());
    }
    let export = Export {
        size_bytes,
        // Without HAS_FLAGS the others say nothing.
        flags: if flags & flags::HAS_FLAGS == 0 {
            0
        } else {
            flags
        },
        block_bytes,
        payload_bytes_max,
        is_structured,
    };
    if !export.has(flags::SEND_FLUSH) && !export.has(flags::READ_ONLY) {
        let why = "it has no FLUSH, so that no write can be made durable";
        return Err(Fault::Unusable(why.to_owned()));
    }
    Ok(export)
}
