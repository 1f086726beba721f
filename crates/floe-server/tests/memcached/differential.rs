//! The same requests to the real memcached, where it is installed: every byte
//! of the answers must be the same, but for versions and seconds that pass.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use proptest::test_runner::{RngAlgorithm, TestRng};
use proptest::prelude::RngExt as _;

use crate::support::{Client, rig, rig_on_flash, unix_client};
