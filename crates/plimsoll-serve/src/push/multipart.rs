//! Bodies of the type `multipart/form-data`.

/// A file of a form.
pub(super) struct File<'a> {
    pub(super) field: &'a str,
    pub(super) name: &'a str,
    pub(super) content: &'a [u8],
}

/// Returns the boundary and the body of a form. The boundary does not occur in the files.
pub(super) fn encode(files: &[File<'_>]) -> (String, Vec<u8>) {
    let occurs = |boundary: &str| {
        let contains = |content: &[u8]| {
            let mut windows = content.windows(boundary.len());
            windows.any(|window| window == boundary.as_bytes())
        };
        files.iter().any(|file| contains(file.content))
    };
    let boundary = (0_u64..)
        .map(|number| format!("plimsoll-boundary-{number}"))
        .find(|boundary| !occurs(boundary))
        .expect("a file does not contain all numbers");
    let mut body = Vec::new();
    for file in files {
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"; filename=\"{}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n",
            file.field, file.name
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(file.content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    (boundary, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boundary_does_not_occur_in_a_file() {
        let file = |content| File {
            field: "a",
            name: "b",
            content,
        };
        let (boundary, body) = encode(&[file(b"--plimsoll-boundary-0\r\n"), file(b"")]);
        assert_eq!(boundary, "plimsoll-boundary-1");
        let head = "--plimsoll-boundary-1\r\nContent-Disposition: form-data; name=\"a\"; filename=\"b\"\r\n\
                    Content-Type: application/octet-stream\r\n\r\n";
        let expected =
            format!("{head}--plimsoll-boundary-0\r\n\r\n{head}\r\n--plimsoll-boundary-1--\r\n");
        assert_eq!(String::from_utf8(body).unwrap(), expected);
    }
}
