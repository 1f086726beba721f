//! Messages of NBD clients: options and requests.
//!
//! An input is read as a stream of options, as the data of each option, and as a
//! stream of requests.

use floe_server::nbd::protocol::options::{
    self, ClientOption, DATA_BYTES_MAX, TEXT_BYTES_MAX, number,
};
use floe_server::nbd::protocol::request::{self, Command, Operation, Terms, check, flag};

pub(crate) fn nbd_messages(data: &[u8]) {
    options(data);
    for number in 0..=number::SET_META_CONTEXT + 1 {
        option(number, data);
    }
    requests(data);
}

/// Reads options as the handshake does, up to an invalid or incomplete one.
fn options(mut stream: &[u8]) {
    while let Some(head) = stream.first_chunk().and_then(options::Head::parse) {
        assert!(head.len <= DATA_BYTES_MAX);
        let rest = &stream[options::HEAD_BYTES..];
        let Some((data, rest)) = rest.split_at_checked(head.len as usize) else {
            return;
        };
        option(head.number, data);
        stream = rest;
    }
}

fn option(number: u32, data: &[u8]) {
    let Ok(option) = ClientOption::parse(number, data) else {
        return;
    };
    let (name, queries) = match &option {
        ClientOption::ExportName(name) => (*name, &[][..]),
        ClientOption::Info(query) | ClientOption::Go(query) => {
            // Any answer will do.
            let _ = query.asks_for(options::info::BLOCK_SIZE);
            (query.name, &[][..])
        }
        ClientOption::ListMetaContext(query) | ClientOption::SetMetaContext(query) => {
            (query.name, &query.queries[..])
        }
        ClientOption::Abort
        | ClientOption::List
        | ClientOption::StartTls
        | ClientOption::StructuredReply => return,
    };
    for text in queries.iter().chain([&name]) {
        assert!(text.len() <= TEXT_BYTES_MAX.min(data.len()));
    }
}

/// Reads requests as the transmission does, up to an invalid one.
fn requests(mut stream: &[u8]) {
    while let Some(head) = stream.first_chunk().and_then(request::Head::parse) {
        for terms in terms() {
            check_request(&head, &terms);
        }
        let skipped = request::HEAD_BYTES + head.payload_bytes() as usize;
        stream = stream.get(skipped..).unwrap_or_default();
    }
}

/// A small export with all features, and a large read-only one with none.
fn terms() -> [Terms; 2] {
    let small = Terms {
        size_bytes: 1 << 20,
        block_bytes: 512,
        payload_bytes_max: 64 << 10,
        is_read_only: false,
        zeroes_fast: true,
        structured: true,
        has_allocation: true,
    };
    let large = Terms {
        size_bytes: u64::MAX - 4095,
        block_bytes: 4096,
        payload_bytes_max: 32 << 20,
        is_read_only: true,
        zeroes_fast: false,
        structured: false,
        has_allocation: false,
    };
    [small, large]
}

/// A request that is carried out lies inside the export and changes no
/// read-only one.
fn check_request(head: &request::Head, terms: &Terms) {
    let Ok(operation) = check(head, terms) else {
        return;
    };
    assert!(!(terms.is_read_only && operation.changes()));
    if operation == Operation::Flush {
        return assert_eq!((head.at, head.len), (0, 0));
    }
    let len = u64::from(head.len);
    assert!(
        len > 0
            && head
                .at
                .checked_add(len)
                .is_some_and(|end| end <= terms.size_bytes)
    );
    let block = u64::from(terms.block_bytes);
    assert!(head.at.is_multiple_of(block) && len.is_multiple_of(block));
    if matches!(head.command, Command::Read | Command::Write) {
        assert!(head.len <= terms.payload_bytes_max);
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let head = |number: u32, data: &[u8]| {
        let mut bytes = options::OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    };
    let contexts = b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation";
    let query = b"\0\0\0\x04disk\0\x02\0\0\0\x03";
    let handshake = [
        head(number::STRUCTURED_REPLY, b""),
        head(number::LIST, b""),
        head(number::SET_META_CONTEXT, contexts),
        head(number::GO, query),
    ];
    let request = |flags: u16, command: u16, at: u64, len: u32, data: &[u8]| {
        let mut bytes = request::MAGIC.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend([7; 8]);
        bytes.extend(at.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes.extend(data);
        bytes
    };
    let requests = [
        request(flag::DF, 0, 0, 4096, b""),
        request(flag::FUA, 1, 4096, 512, &[1; 512]),
        request(0, 3, 0, 0, b""),
        request(flag::FAST_ZERO, 6, 0, 1 << 20, b""),
        request(flag::REQ_ONE, 7, 0, 512, b""),
        request(0, 0, u64::MAX, u32::MAX, b""),
    ];
    vec![
        handshake.concat(),
        requests.concat(),
        contexts.to_vec(),
        query.to_vec(),
    ]
}
