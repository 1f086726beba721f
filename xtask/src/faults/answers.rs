//! Responses of the S3 frontend, and checks of them.

use anyhow::{Result, ensure};

use crate::blackbox::content;
use crate::blackbox::http::{Connection, Response};
use crate::blackbox::origin::OBJECT_BYTES;
use crate::blackbox::server::Server;

/// The response to a GET of `key`.
pub(super) fn get(server: &Server, key: &str) -> Result<Response> {
    Ok(Connection::open(server.s3)?.request("GET", &format!("/bucket/{key}"), &[], b"")?)
}

/// Fails unless `response` is a server error in S3's format.
pub(super) fn server_error(response: &Response) -> Result<()> {
    ensure!(
        (500..600).contains(&response.status),
        "status {}",
        response.status
    );
    let text = text(response);
    ensure!(text.contains("<Code>"), "no S3 error: {text}");
    Ok(())
}

/// `response` must be the whole of version `version` of `key`.
pub(super) fn same(response: &Response, key: &str, version: u32) -> Result<()> {
    ensure!(
        response.status == 200,
        "status {}: {}",
        response.status,
        text(response)
    );
    let wanted = content(&format!("/bucket/{key}"), version, OBJECT_BYTES);
    ensure!(
        response.body == wanted,
        "wrong bytes ({} of them)",
        response.body.len()
    );
    Ok(())
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}
