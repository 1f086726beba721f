//! The responses, identical to those of memcached 1.6.

/// Clients derive the available commands from it, so it begins with the version
/// of memcached that Floe follows.
pub(crate) const VERSION: &str = concat!("VERSION 1.6.18-floe-", env!("CARGO_PKG_VERSION"));
pub(crate) const ERROR: &str = "ERROR";
pub(crate) const OK: &str = "OK";
pub(crate) const STORED: &str = "STORED";
pub(crate) const NOT_STORED: &str = "NOT_STORED";
pub(crate) const EXISTS: &str = "EXISTS";
pub(crate) const NOT_FOUND: &str = "NOT_FOUND";
pub(crate) const DELETED: &str = "DELETED";
pub(crate) const TOUCHED: &str = "TOUCHED";
pub(crate) const RESET: &str = "RESET";
pub(crate) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
pub(crate) const BAD_DATA: &str = "CLIENT_ERROR bad data chunk";
pub(crate) const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
pub(crate) const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
pub(crate) const NOT_A_NUMBER: &str =
    "CLIENT_ERROR cannot increment or decrement non-numeric value";
pub(crate) const DELETE_USAGE: &str =
    "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
pub(crate) const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
pub(crate) const NO_MEMORY: &str = "SERVER_ERROR out of memory storing object";
pub(crate) const NO_MEMORY_TO_GET: &str = "SERVER_ERROR out of memory writing get response";
pub(crate) const UNCONFIRMED: &str =
    "SERVER_ERROR this node is not confirmed as a member of its ring";
pub(crate) const FOREIGN: &str = "SERVER_ERROR another node of the ring owns this key";
pub(crate) const STORE_FAILED: &str = "SERVER_ERROR the cache device failed; try again";

pub(crate) const DUPLICATE_FLAG: &str = "CLIENT_ERROR duplicate flag";
pub(crate) const INVALID_FLAG: &str = "CLIENT_ERROR invalid flag";
pub(crate) const INVALID_OR_DUPLICATE_FLAG: &str = "CLIENT_ERROR invalid or duplicate flag";
pub(crate) const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
pub(crate) const BAD_BASE64: &str = "CLIENT_ERROR error decoding key";
pub(crate) const BAD_MODE_LENGTH: &str = "CLIENT_ERROR incorrect length for M token";
pub(crate) const BAD_INITIAL: &str = "CLIENT_ERROR invalid numeric initial value";
pub(crate) const BAD_META_DELTA: &str = "CLIENT_ERROR invalid numeric delta value";
pub(crate) const BAD_SET_MODE: &str = "CLIENT_ERROR invalid mode for ms M token";
pub(crate) const BAD_COUNT_MODE: &str = "CLIENT_ERROR invalid mode for ma M token";
pub(crate) const OPAQUE_TOO_LONG: &str = "CLIENT_ERROR opaque token too long";
pub(crate) const FLAGS_TOO_LONG: &str = "CLIENT_ERROR options flags too long";
pub(crate) const FLAGS_ARE_TOO_LONG: &str = "CLIENT_ERROR options flags are too long";

pub(crate) const MEMLIMIT_TOO_SMALL: &str =
    "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m";
pub(crate) const MEMLIMIT_MEGABYTES: &str =
    "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes";
pub(crate) const MEMLIMIT_FIXED: &str = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust";
pub(crate) const NO_FLUSH: &str = "CLIENT_ERROR flush_all not allowed";
pub(crate) const NO_CRAWLER_START: &str = "ERROR failed to start lru crawler thread";
pub(crate) const CRAWLER_SLEEP: &str = "CLIENT_ERROR sleep must be one second or less";
pub(crate) const LRU_SHARES: &str = "ERROR hot and warm pcts must not exceed 80";
pub(crate) const LRU_FACTORS: &str = "ERROR hot/warm age factors must be greater than 0";
pub(crate) const NO_SHUTDOWN: &str = "ERROR: shutdown not enabled";
pub(crate) const NO_REASSIGN: &str = "CLIENT_ERROR slab reassignment disabled";
pub(crate) const NO_CRAWLER: &str = "CLIENT_ERROR lru crawler disabled";
pub(crate) const NO_WATCH: &str = "CLIENT_ERROR watch commands not allowed";
pub(crate) const NO_CACHEDUMP: &str = "CLIENT_ERROR stats cachedump not allowed";
pub(crate) const DETAIL_USAGE: &str = "CLIENT_ERROR usage: stats detail on|off|dump";
pub(crate) const TOO_MANY_CONNECTIONS: &str = "ERROR Too many open connections";

pub(crate) const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated";
pub(crate) const AUTH_BAD_END: &str = "CLIENT_ERROR bad command line termination";
pub(crate) const AUTH_BAD_FORMAT: &str = "CLIENT_ERROR bad authentication token format";
/// As in the newest memcached; 1.6.18 waits for the bytes.
pub(crate) const AUTH_TOO_LONG: &str = "CLIENT_ERROR auth token too long";
pub(crate) const AUTH_FAILED: &str = "CLIENT_ERROR authentication failure";
