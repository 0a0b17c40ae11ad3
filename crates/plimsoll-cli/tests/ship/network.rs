//! HTTP servers and object storage.

use std::fs;

use hmac_sha256::{HMAC, Hash};

use crate::port::Port;
use crate::server::{Request, Server};
use crate::{Scene, end, kill, process, run, ship, signal, start};

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(bytes);
    std::io::Read::read_to_end(&mut decoder, &mut whole).unwrap();
    whole
}

#[test]
fn a_server_gets_each_file_by_put_with_the_token() {
    let scene = Scene::new("put");
    let from = scene.from();
    kill(process(&format!("{from}/file")));
    let left = fs::read(format!("{from}/file")).unwrap();
    let profile = scene.profile("heap.pb.gz", 3);
    let server = Server::new(|_| (201, Vec::new()));
    let to = format!("http://{}/profiles/", server.address);
    let mut command = ship(&[&from, "--to", &to, "--once"]);
    let command = command
        .env("PLIMSOLL_SHIP_TOKEN", "secret")
        .env("PLIMSOLL_TOKEN", "of pages");
    let (_, errors, status) = run(command);
    assert_eq!((&*errors, status), ("", Some(0)));
    let requests = server.requests();
    assert_eq!(requests.len(), 4);
    for request in &requests {
        assert_eq!(request.method, "PUT");
        assert!(request.path.starts_with("/profiles/") && !request.path.contains("//"));
        assert_eq!(request.header("authorization"), "Bearer secret");
    }
    let body = |end: &str| {
        let found = requests.iter().find(|request| request.path.ends_with(end));
        &found.unwrap_or_else(|| panic!("{end}")).body
    };
    let compressed = body(".postmortem.gz");
    assert!(compressed.len() < left.len() / 10, "{}", compressed.len());
    assert_eq!(gunzip(compressed), left);
    assert_eq!(body("_heap.pb.gz"), &profile);
    // A compressed post-mortem file is read as it is.
    let file = scene.directory.file("x.postmortem.gz", compressed);
    let text = crate::command::stdout_of(&["report", "--summary", &file]);
    assert!(text.contains("post-mortem file of ship-"), "{text}");
}

#[test]
fn a_server_that_is_away_is_tried_again_with_one_message() {
    let scene = Scene::new("away");
    let from = scene.from();
    scene.profile("heap.pb.gz", 3);
    let port = Port::new();
    let to = format!("http://{}", port.address());
    let child = start(&mut ship(&[&from, "--to", &to, "--every", "20ms"]));
    crate::wait_for("claim", || {
        fs::read_dir(format!("{from}/.plimsoll-ship")).is_ok() && !scene.waiting().is_empty()
    });
    // Others that come meanwhile cause no requests before their time, and no message.
    for value in 0..3 {
        scene.profile(&format!("{value}.pb.gz"), value);
    }
    crate::wait_for("claims", || scene.waiting().len() == 4);
    let server = Server::at(port.address(), |_| (200, Vec::new()));
    server.wait_for(4);
    crate::wait_for("deletion", || scene.waiting().is_empty());
    signal(&child, libc::SIGTERM);
    let (out, errors, status) = end(child);
    assert_eq!((out.lines().count(), status), (4, Some(0)), "{out}{errors}");
    assert!(errors.lines().count() <= 2, "{errors}");
    if let Some(first) = errors.lines().next() {
        assert!(first.contains("no server listens"), "{errors}");
        assert!(errors.ends_with("works again\n"), "{errors}");
    }
}

#[test]
fn a_refused_file_waits_and_others_are_shipped() {
    let scene = Scene::new("refused");
    let from = scene.from();
    for name in ["a.pb.gz", "b.pb.gz", "c.pb.gz"] {
        scene.profile(name, 3);
    }
    let server = Server::new(|request| match request.path.ends_with("_b.pb.gz") {
        true => (413, b"too large for this server\nsecond line".to_vec()),
        false => (200, Vec::new()),
    });
    let to = format!("http://{}/", server.address);
    let (out, errors, status) = run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!((out.lines().count(), status), (2, Some(1)));
    let expected = "the response has status 413: too large for this server;";
    assert!(errors.contains(expected), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert_eq!(scene.waiting().len(), 1);
    assert_eq!(server.requests().len(), 3);
}

/// A refused file delays no other one, and its refusal is printed once.
#[test]
fn files_after_a_refused_one_are_shipped_at_once() {
    let scene = Scene::new("after-refused");
    let from = scene.from();
    let server = Server::new(|request| match request.path.ends_with("_0.pb.gz") {
        true => (403, Vec::new()),
        false => (200, Vec::new()),
    });
    let to = format!("http://{}/", server.address);
    let child = start(&mut ship(&[&from, "--to", &to, "--every", "10ms"]));
    for (count, name) in ["0.pb.gz", "1.pb.gz", "2.pb.gz"].iter().enumerate() {
        scene.profile(name, 3);
        server.wait_for(count + 1);
    }
    crate::wait_for("deletion", || scene.waiting().len() == 1);
    signal(&child, libc::SIGTERM);
    let (out, errors, status) = end(child);
    assert_eq!((out.lines().count(), status), (2, Some(0)), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn an_error_of_the_server_is_tried_again() {
    let scene = Scene::new("error");
    let from = scene.from();
    scene.profile("a.pb.gz", 3);
    let mut count = 0;
    let server = Server::new(move |_| {
        count += 1;
        (if count == 1 { 503 } else { 200 }, Vec::new())
    });
    let to = format!("http://{}/", server.address);
    let (out, errors, status) = run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!((out.lines().count(), status), (1, Some(0)), "{errors}");
    assert!(errors.contains("status 503; it is tried again"), "{errors}");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn redirects_are_not_followed() {
    let scene = Scene::new("redirect");
    let from = scene.from();
    scene.profile("a.pb.gz", 3);
    let server = Server::new(|_| (307, Vec::new()));
    let to = format!("http://{}/", server.address);
    let (_, errors, status) = run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!(status, Some(1));
    assert!(errors.contains("status 307"), "{errors}");
    assert_eq!(scene.waiting().len(), 1);
}

const KEY: &str = "an access key";
const SECRET: &str = "a secret/key+";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks the signature of a request as the documentation of Signature Version 4 describes, from the
/// bytes that arrived. Returns the error code of S3.
fn verify(request: &Request, region: &str) -> Result<(), &'static str> {
    let authorization = request.header("authorization");
    let fields = authorization
        .strip_prefix("AWS4-HMAC-SHA256 ")
        .ok_or("AccessDenied")?;
    let field = |name: &str| {
        let mut fields = fields.split(',');
        fields.find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='))
    };
    let scope = field("Credential").and_then(|credential| credential.strip_prefix(KEY));
    let scope = scope.ok_or("InvalidAccessKeyId")?.trim_start_matches('/');
    let date = request.header("x-amz-date");
    let day = &date[..8];
    if scope != format!("{day}/{region}/s3/aws4_request") {
        return Err("AuthorizationHeaderMalformed");
    }
    let hash = request.header("x-amz-content-sha256");
    if hash != hex(&Hash::hash(&request.body)) {
        return Err("XAmzContentSHA256Mismatch");
    }
    let names = field("SignedHeaders").ok_or("AccessDenied")?;
    let signed: Vec<&str> = names.split(';').collect();
    assert!(signed.is_sorted() && signed.contains(&"host"));
    for (name, _) in &request.headers {
        assert!(
            !name.starts_with("x-amz-") || signed.contains(&&**name),
            "{name}"
        );
    }
    let headers: String = signed
        .iter()
        .map(|name| format!("{name}:{}\n", request.header(name)))
        .collect();
    let canonical = format!("PUT\n{}\n\n{headers}\n{names}\n{hash}", request.path);
    let text = format!(
        "AWS4-HMAC-SHA256\n{date}\n{scope}\n{}",
        hex(&Hash::hash(canonical.as_bytes()))
    );
    let day_key = HMAC::mac(day, format!("AWS4{SECRET}"));
    let region_key = HMAC::mac(region, day_key);
    let key = HMAC::mac("aws4_request", HMAC::mac("s3", region_key));
    match field("Signature") == Some(&hex(&HMAC::mac(text, key))) {
        true => Ok(()),
        false => Err("SignatureDoesNotMatch"),
    }
}

#[test]
fn object_storage_accepts_the_signature() {
    let scene = Scene::new("s3");
    let from = scene.from();
    let server = Server::new(|request| match verify(request, "eu-1") {
        Ok(()) => (200, Vec::new()),
        Err(code) => {
            let xml = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
            (403, xml.into_bytes())
        }
    });
    let endpoint = format!("http://{}", server.address);
    let once = |to: &str, secret: &str, token: &str| {
        let mut command = ship(&[&from, "--to", to, "--once"]);
        run(command
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", secret)
            .env("AWS_SESSION_TOKEN", token)
            .env("AWS_REGION", "eu-1")
            .env("AWS_ENDPOINT_URL", &endpoint))
    };
    scene.profile("first.pb.gz", 3);
    let (out, errors, status) = once("s3://bucket/a b/é", SECRET, "session");
    assert_eq!((&*errors, status), ("", Some(0)));
    assert_eq!(out.lines().count(), 1);
    let request = &server.requests()[0];
    assert!(
        request.path.starts_with("/bucket/a%20b/%C3%A9/"),
        "{}",
        request.path
    );
    assert_eq!(request.header("x-amz-security-token"), "session");

    kill(process(&format!("{from}/file")));
    let (_, errors, status) = once("s3://bucket", SECRET, "");
    assert_eq!((&*errors, status), ("", Some(0)));
    assert_eq!(server.requests().len(), 4);

    // A refusal shows its code and no secret.
    let left = scene.profile("last.pb.gz", 3);
    let (_, errors, status) = once("s3://bucket", "wrong", "");
    assert_eq!(status, Some(1));
    let expected = "plimsoll: s3://bucket: the response has status 403: SignatureDoesNotMatch; it is tried again\n";
    assert_eq!(errors, expected);
    let waiting = scene.waiting();
    let waiting = format!("{from}/.plimsoll-ship/{}", waiting[0]);
    assert_eq!(fs::read(waiting).unwrap(), left);
}
