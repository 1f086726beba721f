//! Nemo.
