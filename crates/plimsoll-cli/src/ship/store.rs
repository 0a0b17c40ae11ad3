//! Requests to object storage by the protocol of S3: PUT of one object, signed by Signature Version 4.
//! The bucket is in the path, which every store accepts.

use hmac_sha256::{HMAC, Hash};

use super::name;
use crate::plain_text::hexadecimal;

/// The bucket of an object store, with the keys for it.
pub(super) struct Store {
    /// The address without a slash at the end, such as `http://minio:9000`.
    endpoint: String,
    bucket: String,
    /// The beginning of all keys; empty, or with a slash at its end.
    prefix: String,
    region: String,
    access_key: String,
    secret_key: String,
    session_token: Option<String>,
}

/// A signed request. The headers include the host.
pub(super) struct Signed {
    pub(super) url: String,
    pub(super) headers: Vec<(&'static str, String)>,
}

impl Store {
    /// Returns the store of `BUCKET/PREFIX`, with the settings that `variable` returns. An empty variable
    /// counts as absent.
    ///
    /// # Errors
    /// The bucket or a variable is missing.
    pub(super) fn new(
        place: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let any = |names: &[&str]| {
            let found = names.iter().filter_map(|name| variable(name));
            found
                .map(|value| value.trim().to_owned())
                .find(|value| !value.is_empty())
        };
        let required =
            |name: &str| any(&[name]).ok_or_else(|| format!("the variable {name} is not set"));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return Err("the bucket is missing, as in s3://BUCKET/PREFIX".to_owned());
        }
        let prefix = prefix.trim_matches('/');
        let region = any(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = any(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        Ok(Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            bucket: bucket.to_owned(),
            prefix: match prefix {
                "" => String::new(),
                prefix => format!("{prefix}/"),
            },
            region,
            access_key: required("AWS_ACCESS_KEY_ID")?,
            secret_key: required("AWS_SECRET_ACCESS_KEY")?,
            session_token: any(&["AWS_SESSION_TOKEN"]),
        })
    }

    /// Returns the address of the store.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the request that stores `body` under a name at a time in nanoseconds since 1970.
    pub(super) fn put(&self, name: &str, body: &[u8], time_ns: i64) -> Signed {
        let (_, address) = self.endpoint.split_once("://").unwrap_or_default();
        let (host, base) = match address.find('/') {
            Some(at) => address.split_at(at),
            None => (address, ""),
        };
        let path = format!(
            "{base}/{}/{}",
            escaped(&self.bucket),
            escaped(&format!("{}{name}", self.prefix))
        );
        let mut headers = vec![
            ("host", host.to_owned()),
            ("x-amz-content-sha256", hexadecimal(&Hash::hash(body))),
            ("x-amz-date", format!("{}Z", name::seconds(time_ns))),
        ];
        if let Some(token) = &self.session_token {
            headers.push(("x-amz-security-token", token.clone()));
        }
        let authorization = self.authorization(&path, &headers);
        headers.push(("authorization", authorization));
        let url = match self.endpoint.strip_suffix(base) {
            Some(origin) => format!("{origin}{path}"),
            None => format!("{}{path}", self.endpoint),
        };
        Signed { url, headers }
    }

    /// Returns the header that signs a PUT of `path`. `headers` are sorted by name, and include
    /// `x-amz-content-sha256` and `x-amz-date`.
    fn authorization(&self, path: &str, headers: &[(&str, String)]) -> String {
        let value = |wanted: &str| {
            let found = headers.iter().find(|(name, _)| *name == wanted);
            found.map_or("", |(_, value)| value)
        };
        let lines: String = headers
            .iter()
            .map(|(name, value)| format!("{name}:{value}\n"))
            .collect();
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let hash = value("x-amz-content-sha256");
        // The empty line is the query.
        let request = format!("PUT\n{path}\n\n{lines}\n{names}\n{hash}");
        let time = value("x-amz-date");
        let day = time.split('T').next().unwrap_or_default();
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let signed = format!(
            "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
            hexadecimal(&Hash::hash(request.as_bytes()))
        );
        let mut key = format!("AWS4{}", self.secret_key).into_bytes();
        for part in [day, &self.region, "s3", "aws4_request"] {
            key = HMAC::mac(part, &key).to_vec();
        }
        let signature = hexadecimal(&HMAC::mac(signed, &key));
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}",
            self.access_key
        )
    }
}

/// Returns the path with all bytes escaped except unreserved characters and slashes.
fn escaped(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for &byte in path.as_bytes() {
        match byte {
            b'-' | b'_' | b'.' | b'~' | b'/' => escaped.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of the examples in the documentation of Signature Version 4 for S3.
    fn variable(name: &str) -> Option<String> {
        let value = match name {
            "AWS_ACCESS_KEY_ID" => "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY" => "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "AWS_ENDPOINT_URL" => "http://store:9000/",
            "AWS_REGION" => "",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn the_documented_example_has_the_documented_signature() {
        let store = Store::new("examplebucket", variable).unwrap();
        let headers = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT".to_owned()),
            ("host", "examplebucket.s3.amazonaws.com".to_owned()),
            (
                "x-amz-content-sha256",
                hexadecimal(&Hash::hash(b"Welcome to Amazon S3.")),
            ),
            ("x-amz-date", "20130524T000000Z".to_owned()),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY".to_owned()),
        ];
        let path = format!("/{}", escaped("test$file.text"));
        assert_eq!(
            store.authorization(&path, &headers),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,\
             Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
    }

    #[test]
    fn the_bucket_and_the_prefix_are_in_the_path() {
        for (place, base, expected) in [
            ("b", "", "http://store:9000/b/n"),
            ("b/", "", "http://store:9000/b/n"),
            ("b/p/q/", "/base", "http://store:9000/base/b/p/q/n"),
            ("b/a b%é", "", "http://store:9000/b/a%20b%25%C3%A9/n"),
        ] {
            let endpoint = format!("http://store:9000{base}");
            let variable = |name: &str| match name {
                "AWS_ENDPOINT_URL_S3" => Some(endpoint.clone()),
                "AWS_SESSION_TOKEN" => Some("session".to_owned()),
                name => variable(name),
            };
            let signed = Store::new(place, variable).unwrap().put("n", b"", 0);
            assert_eq!(signed.url, expected);
            assert_eq!(signed.headers[0].1, "store:9000");
            assert_eq!(signed.headers[2].1, "19700101T000000Z");
            assert_eq!(signed.headers[3].1, "session");
            let (_, authorization) = signed.headers.last().unwrap();
            assert!(authorization.contains("x-amz-date;x-amz-security-token,"));
        }
    }

    #[test]
    fn missing_settings_are_named() {
        let error = |place: &str, without: &str| {
            let variable = |name: &str| variable(name).filter(|_| name != without);
            Store::new(place, variable).err().unwrap()
        };
        assert!(error("/prefix", "").contains("bucket"));
        for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
            assert_eq!(error("b", name), format!("the variable {name} is not set"));
        }
        let variable = |name: &str| variable(name).filter(|_| name != "AWS_ENDPOINT_URL");
        let store = Store::new("b", variable).unwrap();
        assert_eq!(store.endpoint(), "https://s3.us-east-1.amazonaws.com");
    }
}
