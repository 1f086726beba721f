//! Tells xtask which platform it was built for.

fn main() {
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo:rustc-env=XTASK_TARGET={target}");
    println!("cargo:rerun-if-changed=build.rs");
}
