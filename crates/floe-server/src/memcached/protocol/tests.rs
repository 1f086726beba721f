//! Lines to requests.
