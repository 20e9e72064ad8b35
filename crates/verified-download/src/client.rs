//! One blocking HTTP client: limits, redirects, retries, error classes.

use std::{
    io::Read,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use ureq::{
    Agent, Body, BodyReader,
    http::{self, HeaderMap, StatusCode},
    tls::{Certificate, RootCerts, TlsConfig},
};

use crate::{Credentials, HostLimiter, HttpError, HttpUrl, Scheme, limiter::Permit, parse_retry_after};

/// How a client behaves. The defaults suit large files over a link that may be slow.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for the next byte; a body may take as long as it likes while bytes come.
    pub stall_timeout: Duration,
    /// How often a request is made before its failure is final.
    pub attempts: u32,
    /// The wait before the second attempt; it doubles with each further one.
    pub backoff: Duration,
    /// A server that asks for more patience than this is given up.
    pub longest_wait: Duration,
    /// Requests to one host at a time.
    pub per_host: usize,
    /// The `User-Agent`.
    pub user_agent: String,
    /// A proxy's address, where the caller wants one. Loopback is never asked through it.
    pub proxy: Option<String>,
    /// Hosts that are asked directly, comma-separated, as in `NO_PROXY`.
    pub no_proxy: Option<String>,
    /// PEM text of certificates to trust instead of the built-in authorities.
    pub root_certificates: Option<String>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(15),
            stall_timeout: Duration::from_secs(30),
            attempts: 5,
            backoff: Duration::from_millis(500),
            longest_wait: Duration::from_secs(300),
            per_host: 4,
            user_agent: concat!("model-rebuild/", env!("CARGO_PKG_VERSION")).to_owned(),
            proxy: None,
            no_proxy: None,
            root_certificates: None,
        }
    }
}

/// One request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The address.
    pub url: HttpUrl,
    /// Headers. All but the few that only say what is asked for go to the address's own origin alone: what a server wants to
    /// see may be a secret, whatever its name is.
    pub headers: Vec<(String, String)>,
    /// Credentials for the address's origin; those written in the address serve where these are missing.
    pub credentials: Option<Credentials>,
    /// Sent as POST where present.
    pub body: Option<Vec<u8>>,
}

impl Request {
    /// A GET without further headers.
    pub const fn get(url: HttpUrl) -> Self {
        Self { url, headers: Vec::new(), credentials: None, body: None }
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name))
    }
}

/// An answer whose body is still to be read. It holds its place at the host until dropped.
pub struct Response<'c> {
    /// The address that answered, after redirects.
    pub url: HttpUrl,
    status: StatusCode,
    headers: HeaderMap,
    body: BodyReader<'static>,
    stall_timeout: Duration,
    _permit: Permit<'c>,
}

impl std::fmt::Debug for Response<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response")
            .field("url", &self.url)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl Response<'_> {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Reads some of the body; 0 at its end.
    ///
    /// # Errors
    /// [`HttpError::Stalled`] or [`HttpError::Network`].
    pub fn read(&mut self, block: &mut [u8]) -> Result<usize, HttpError> {
        self.body
            .read(block)
            .map_err(|error| classify(&self.url, ureq::Error::from(error), self.stall_timeout))
    }
}

/// A blocking client with one limiter for all its users.
#[derive(Debug)]
pub struct HttpClient {
    agent: Agent,
    limiter: HostLimiter,
    options: HttpOptions,
}

/// Redirects that are followed in a row.
const MAX_REDIRECTS: usize = 10;

/// Bytes of an error's body that are looked at.
const ERROR_BODY: u64 = 8 * 1024;

/// Headers that follow a redirect to another host: they say what is asked for and how, and are no secret.
const OPEN_HEADERS: [&str; 4] = ["accept", "content-type", "if-range", "range"];

impl HttpClient {
    /// A client with these options.
    ///
    /// # Errors
    /// [`HttpError::Protocol`] where the proxy's address or a certificate cannot be read.
    pub fn new(options: HttpOptions) -> Result<Self, HttpError> {
        let refused = |url: &str, why: String| HttpError::Protocol { url: url.to_owned(), why };
        let proxy = options
            .proxy
            .as_deref()
            .map(|text| proxy(text, options.no_proxy.as_deref()))
            .transpose()
            .map_err(|why| refused("the proxy", why))?;
        let mut tls = TlsConfig::builder();
        if let Some(pem) = &options.root_certificates {
            let certificates: Vec<Certificate<'static>> = ureq::tls::parse_pem(pem.as_bytes())
                .filter_map(|item| match item {
                    Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                })
                .collect();
            if certificates.is_empty() {
                return Err(refused("the trusted certificates", "no certificate is in the file".to_owned()));
            }
            tls = tls.root_certs(RootCerts::new_with_certs(&certificates));
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(options.connect_timeout))
            .timeout_recv_response(Some(options.stall_timeout))
            .timeout_per_read(Some(options.stall_timeout))
            .timeout_per_write(Some(options.stall_timeout))
            .user_agent(&options.user_agent)
            .accept_encoding("identity")
            .proxy(proxy)
            .tls_config(tls.build())
            .build();
        Ok(Self { agent: config.new_agent(), limiter: HostLimiter::new(options.per_host), options })
    }

    /// The options.
    pub const fn options(&self) -> &HttpOptions {
        &self.options
    }

    /// Makes one request, once: waits for a place at the host, follows redirects, turns statuses of 400 and above into
    /// errors.
    ///
    /// # Errors
    /// [`HttpError`]
    pub fn send(&self, request: &Request, stop: &AtomicBool) -> Result<Response<'_>, HttpError> {
        let mut url = request.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let permit = self.limiter.enter(&url.origin(), stop)?;
            let answer = self
                .agent
                .run(self.build(request, &url)?)
                .map_err(|error| classify(&url, error, self.options.stall_timeout))?;
            let status = answer.status();
            if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
                url = redirect(&url, &answer, request.body.is_some())?;
                continue;
            }
            if status.is_client_error() || status.is_server_error() {
                return Err(self.refusal(&url, answer));
            }
            let (parts, body) = answer.into_parts();
            let body = body.into_reader();
            let stall_timeout = self.options.stall_timeout;
            return Ok(Response {
                url,
                status,
                headers: parts.headers,
                body,
                stall_timeout,
                _permit: permit,
            });
        }
        let why = format!("more than {MAX_REDIRECTS} redirects");
        Err(HttpError::Protocol { url: request.url.to_string(), why })
    }

    fn build(&self, request: &Request, url: &HttpUrl) -> Result<http::Request<Vec<u8>>, HttpError> {
        let at_home = url.origin() == request.url.origin();
        let method = if request.body.is_some() { http::Method::POST } else { http::Method::GET };
        let mut built =
            http::Request::builder().method(method).uri(format!("{}{}", url.origin(), url.path()));
        for (name, value) in &request.headers {
            let open = OPEN_HEADERS.iter().any(|open| name.eq_ignore_ascii_case(open));
            if at_home || open {
                built = built.header(name, value);
            }
        }
        let credentials = request.credentials.as_ref().or_else(|| request.url.credentials());
        // A redirect's own user info belongs to the redirect's host.
        let credentials = if at_home { credentials } else { url.credentials() };
        if let (Some(credentials), false) = (credentials, at_home && request.has("authorization")) {
            built = built.header("authorization", credentials.basic());
        }
        let body = request.body.clone().unwrap_or_default();
        built.body(body).map_err(|error| HttpError::Protocol { url: url.to_string(), why: error.to_string() })
    }

    fn refusal(&self, url: &HttpUrl, answer: http::Response<Body>) -> HttpError {
        let (parts, body) = answer.into_parts();
        let status = parts.status.as_u16();
        let header = parts.headers.get("retry-after").and_then(|value| value.to_str().ok());
        let retry_after = header.and_then(|value| parse_retry_after(value, jiff::Timestamp::now()));
        let mut text = Vec::new();
        // The body of an error is only words: what can be read of it is enough.
        let _ = body.into_reader().take(ERROR_BODY).read_to_end(&mut text);
        let error =
            HttpError::Status { url: url.to_string(), status, message: message_of(&text), retry_after };
        if let (true, Some(wait)) = (error.is_retryable(), retry_after) {
            self.limiter.hold_back(&url.origin(), wait.min(self.options.longest_wait));
        }
        error
    }

    /// Calls `attempt` until it succeeds, fails finally, or was made as often as the options say; waits in between.
    ///
    /// # Errors
    /// The last [`HttpError`] of `attempt`, or [`HttpError::Interrupted`].
    pub fn with_retries<T>(
        &self,
        stop: &AtomicBool,
        mut attempt: impl FnMut(u32) -> Result<T, HttpError>,
    ) -> Result<T, HttpError> {
        let mut number = 1;
        loop {
            let error = match attempt(number) {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let asked = match &error {
                HttpError::Status { retry_after, .. } => *retry_after,
                _ => None,
            };
            let hopeless = asked.is_some_and(|wait| wait > self.options.longest_wait);
            if !error.is_retryable() || hopeless || number >= self.options.attempts {
                return Err(error);
            }
            // A wait that the server asked for is kept by the limiter, for everybody who asks that host. It may be none at
            // all, or shorter than what a server that is in trouble should be spared.
            sleep(self.options.backoff * 2u32.saturating_pow(number - 1).min(64), stop)?;
            number += 1;
        }
    }

    /// Makes a request with retries and returns the whole body, which may have at most `limit` bytes.
    ///
    /// # Errors
    /// [`HttpError`]
    pub fn read(&self, request: &Request, limit: u64, stop: &AtomicBool) -> Result<Vec<u8>, HttpError> {
        self.with_retries(stop, |_| {
            let mut response = self.send(request, stop)?;
            let mut body = Vec::new();
            let mut block = vec![0; 16 * 1024];
            loop {
                match response.read(&mut block)? {
                    0 => return Ok(body),
                    read => body.extend_from_slice(&block[..read]),
                }
                if body.len() as u64 > limit {
                    let why = format!("the answer is longer than {limit} bytes");
                    return Err(HttpError::Protocol { url: response.url.to_string(), why });
                }
            }
        })
    }
}

/// A proxy that is not used for loopback and for what `exceptions` lists.
fn proxy(text: &str, exceptions: Option<&str>) -> Result<ureq::Proxy, String> {
    let parsed = ureq::Proxy::new(text).map_err(|error| error.to_string())?;
    let mut builder = ureq::Proxy::builder(parsed.protocol()).host(parsed.host()).port(parsed.port());
    if let Some(user) = parsed.username() {
        builder = builder.username(user);
    }
    if let Some(password) = parsed.password() {
        builder = builder.password(password);
    }
    let listed = exceptions.unwrap_or_default().split(',').map(str::trim).filter(|host| !host.is_empty());
    for host in ["localhost", "127.0.0.1", "::1"].into_iter().chain(listed) {
        builder = builder.no_proxy(host);
    }
    builder.build().map_err(|error| error.to_string())
}

fn sleep(wait: Duration, stop: &AtomicBool) -> Result<(), HttpError> {
    let until = Instant::now() + wait;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(HttpError::Interrupted);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

fn redirect(url: &HttpUrl, answer: &http::Response<Body>, is_post: bool) -> Result<HttpUrl, HttpError> {
    let refused = |why: String| HttpError::Protocol { url: url.to_string(), why };
    let location = answer.headers().get("location").and_then(|value| value.to_str().ok());
    let location = location.ok_or_else(|| refused(format!("{} without a location", answer.status())))?;
    if is_post && answer.status() == StatusCode::SEE_OTHER {
        return Err(refused("the server redirects a request to another method".to_owned()));
    }
    let next = url.join(location)?;
    if url.scheme() == Scheme::Https && next.scheme() == Scheme::Http {
        return Err(refused(format!("the server redirects from https to plain http ({next})")));
    }
    Ok(next)
}

/// What an error's body says: the `message` of a JSON object, else its first line if that is text.
fn message_of(body: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = json.as_ref().and_then(|json| json.get("message").or_else(|| json.get("error"))?.as_str());
    let text = String::from_utf8_lossy(body);
    let line = message
        .unwrap_or_else(|| text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default());
    let is_markup = line.starts_with('<') || line.starts_with('{');
    let printable: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
    if is_markup { String::new() } else { printable }
}

/// Turns the library's error into one of ours.
fn classify(url: &HttpUrl, error: ureq::Error, stall_timeout: Duration) -> HttpError {
    let url = url.to_string();
    let why = error.to_string();
    // TLS errors arrive under several wrappers; their debug form names the certificate's defect.
    let detail = format!("{error:?}");
    if detail.contains("NotValidYet") || detail.contains("Expired") {
        return HttpError::Clock { url, now: jiff::Timestamp::now().to_string(), why };
    }
    if detail.contains("InvalidCertificate") {
        return HttpError::Certificate { url, why };
    }
    match error {
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            HttpError::Network { url, why: "no connection within the time allowed".to_owned() }
        }
        ureq::Error::Timeout(_) => HttpError::Stalled { url, after: stall_timeout },
        ureq::Error::Http(_) | ureq::Error::BadUri(_) | ureq::Error::LargeResponseHeader(..) => {
            HttpError::Protocol { url, why }
        }
        _ => HttpError::Network { url, why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_out_of_errors() {
        assert_eq!(
            message_of(br#"{"message": "over its data quota", "request_id": 1}"#),
            "over its data quota"
        );
        assert_eq!(message_of(b"\n  not here\r\nmore"), "not here");
        assert_eq!(message_of(b"<html><body>502"), "");
        assert_eq!(message_of(b""), "");
    }
}
