use super::*;

#[tokio::test]
async fn the_error_of_an_address_in_use_names_the_remedy() {
    let first = bind_tcp("s3", ([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = first.local_addr().unwrap();
    let error = bind_tcp("s3", address).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&address.to_string()), "{text}");
    assert!(text.contains("s3.listen"), "{text}");
    assert!(text.contains("ss -ltnp"), "{text}");
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("floe.sock");
    // A listener that is dropped without removing its path leaves a stale socket.
    drop(UnixListener::bind(&path).unwrap());
    let socket = UnixSocket::bind("oxcache", &path).await.unwrap();
    let error = UnixSocket::bind("oxcache", &path).await.unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    assert_eq!(socket.path(), path);
    drop(socket);
    assert!(!path.exists());

    std::fs::write(&path, "precious").unwrap();
    let error = UnixSocket::bind("oxcache", &path).await.unwrap_err();
    assert!(error.to_string().contains("no socket"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");

    let missing = directory.path().join("no/such/directory");
    assert!(UnixSocket::bind("oxcache", &missing).await.is_err());
}
