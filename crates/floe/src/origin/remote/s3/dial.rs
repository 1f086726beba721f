//! Connections to a service: directly, or through the proxy that the environment names
//! (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`) for services with TLS.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::origin::remote::redirect::Shuffled;
use crate::origin::types::BoxError;

/// Opens connections to one service.
#[derive(Clone)]
pub(super) enum Dial {
    Direct(HttpConnector<Shuffled>),
    Proxy(Tunnel<HttpConnector<Shuffled>>),
}

impl Dial {
    /// For the service at `endpoint`.
    pub(super) fn new(endpoint: &Uri, connect_timeout: Duration) -> Self {
        Self::through(&Matcher::from_env(), endpoint, connect_timeout)
    }

    fn through(proxies: &Matcher, endpoint: &Uri, connect_timeout: Duration) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(Shuffled);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(connect_timeout));
        let is_secure = endpoint.scheme_str() == Some("https");
        match proxies.intercept(endpoint).filter(|_| is_secure) {
            None => Dial::Direct(tcp),
            Some(proxy) => {
                let tunnel = Tunnel::new(proxy.uri().clone(), tcp);
                Dial::Proxy(match proxy.basic_auth() {
                    Some(credentials) => tunnel.with_auth(credentials.clone()),
                    None => tunnel,
                })
            }
        }
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Dial::Direct(tcp) => tcp.poll_ready(context).map_err(BoxError::from),
            Dial::Proxy(tunnel) => tunnel.poll_ready(context).map_err(BoxError::from),
        }
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        match self {
            Dial::Direct(tcp) => tcp.call(to).map(|opened| Ok(opened?)).boxed(),
            Dial::Proxy(tunnel) => tunnel.call(to).map(|opened| Ok(opened?)).boxed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn secure_services_are_reached_through_the_environments_proxy() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("http://user:word@{}", listener.local_addr().unwrap());
        let proxies = Matcher::builder().all(proxy).no("near.example").build();
        let limit = Duration::from_secs(5);
        for direct in ["http://far.example", "https://near.example"] {
            let dial = Dial::through(&proxies, &direct.parse().unwrap(), limit);
            assert!(matches!(dial, Dial::Direct(_)), "{direct}");
        }
        let far: Uri = "https://far.example".parse().unwrap();
        let mut dial = Dial::through(&proxies, &far, limit);
        let accept = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            String::from_utf8(head).unwrap()
        };
        std::future::poll_fn(|context| dial.poll_ready(context))
            .await
            .unwrap();
        let (opened, asked) = tokio::join!(dial.call(far), accept);
        assert!(opened.is_ok());
        assert!(asked.starts_with("CONNECT far.example:443 "), "{asked}");
        assert!(
            asked.to_lowercase().contains("proxy-authorization: basic "),
            "{asked}"
        );
    }
}
