//! Tests of the layouts.
