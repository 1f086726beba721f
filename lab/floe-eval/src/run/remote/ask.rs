//! Requests, independent of the protocol.

use floe::origin::emulated::Content;

use crate::run::response::Check;

/// A request to a server.
#[derive(Debug)]
pub(super) enum Ask {
    Get {
        offset: u64,
        length: u64,
        /// The range is the whole object.
        whole: bool,
        check: Check,
    },
    Put {
        content: Content,
        length: u64,
    },
    Delete,
}
