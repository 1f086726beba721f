//! The device as a host sees it.
