//! Small runs of the papers' hosts.
