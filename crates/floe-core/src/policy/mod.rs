//! Who is given up when room is needed.

pub mod object;
