//! As much of HTTP/1.1 as one request on one connection needs, with a limit on everything the receiver sends. Nothing
//! is followed, decompressed or kept open.
use std::io::{self, Read, Write};

use crate::url_guard::Target;

/// Most bytes of all response heads together, the interim ones included.
const MOST_HEAD_BYTES: usize = 32 * 1024;
const MOST_HEADERS: usize = 100;
/// Most bytes of a body that are read, and that are kept.
const MOST_BODY_READ: usize = 1024 * 1024;
pub const MOST_BODY_KEPT: usize = 64 * 1024;

/// The receiver's answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub retry_after: Option<String>,
    /// As many bytes as the caller keeps; fewer if the receiver stopped or dawdled.
    pub body: Vec<u8>,
}

#[derive(Debug)]
pub enum ReadError {
    Io(io::Error),
    /// The bytes that came are not an answer in HTTP/1.
    NotHttp(&'static str),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        ReadError::Io(error)
    }
}

/// Writes the whole request. The headers were checked before.
pub fn write_request(
    to: &mut impl Write,
    target: &Target,
    method: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> io::Result<()> {
    let mut head = format!("{method} {} HTTP/1.1\r\nHost: {}\r\n", target.resource, target.authority());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let bodyless = body.is_empty() && matches!(method, "GET" | "HEAD" | "DELETE" | "OPTIONS");
    if !bodyless {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("Accept-Encoding: identity\r\nConnection: close\r\n\r\n");
    let mut message = head.into_bytes();
    message.extend_from_slice(body);
    to.write_all(&message)?;
    to.flush()
}

/// How the end of the body is known.
enum Framing {
    Empty,
    Length(usize),
    Chunked,
    UntilClose,
}

struct Head {
    status: u16,
    retry_after: Option<String>,
    framing: Framing,
    /// Bytes of the buffer that the head takes.
    length: usize,
}

/// Reads the answer. Once its head is there the outcome is known: the way in which the receiver then sends the body, or
/// does not, changes only how much of it is kept: at most `kept` bytes.
pub fn read_response(from: &mut impl Read, method: &str, kept: usize) -> Result<Response, ReadError> {
    let mut reader = Reader { from, buffer: Vec::new(), ended: false };
    let mut heads = 0;
    let head = loop {
        let head = read_head(&mut reader, MOST_HEAD_BYTES.saturating_sub(heads), method)?;
        reader.buffer.drain(..head.length);
        heads += head.length;
        match head.status {
            // Interim answers; the final one follows. We asked for no other protocol.
            101 => return Err(ReadError::NotHttp("the receiver changed the protocol")),
            100..200 => {}
            _ => break head,
        }
    };
    let mut body = Vec::new();
    // An error ends the body, not the answer.
    let _ = read_body(&mut reader, &head.framing, kept, &mut body);
    body.truncate(kept);
    Ok(Response { status: head.status, retry_after: head.retry_after, body })
}

struct Reader<'a, R> {
    from: &'a mut R,
    buffer: Vec<u8>,
    ended: bool,
}

impl<R: Read> Reader<'_, R> {
    /// Reads a little more; false at the end.
    fn more(&mut self) -> io::Result<bool> {
        let mut piece = [0; 8192];
        let read = loop {
            match self.from.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.buffer.extend_from_slice(&piece[..read]);
        self.ended = read == 0;
        Ok(read > 0)
    }

    /// The next line without its end, if it comes within the limit.
    fn line(&mut self, limit: usize) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok((line.len() <= limit).then_some(line));
            }
            if self.buffer.len() > limit || !self.more()? {
                return Ok(None);
            }
        }
    }
}

fn read_head<R: Read>(reader: &mut Reader<'_, R>, limit: usize, method: &str) -> Result<Head, ReadError> {
    loop {
        if !reader.buffer.is_empty()
            && let Some(head) = parse_head(&reader.buffer, method)?
        {
            return Ok(head);
        }
        if reader.buffer.len() >= limit {
            return Err(ReadError::NotHttp("the answer's headers are too long"));
        }
        if !reader.more()? {
            return Err(ReadError::NotHttp("the receiver closed the connection before it had answered"));
        }
    }
}

fn parse_head(bytes: &[u8], method: &str) -> Result<Option<Head>, ReadError> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(ReadError::NotHttp("the answer has too many headers")),
        Err(_) => return Err(ReadError::NotHttp("the answer is not HTTP")),
    };
    let status = response.code.unwrap_or(0);
    if !(100..600).contains(&status) {
        return Err(ReadError::NotHttp("the answer's status is not one of HTTP's"));
    }
    let value = |name: &str| {
        let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok().map(|text| text.trim().to_owned())
    };
    let framing = if method == "HEAD" || status < 200 || status == 204 || status == 304 {
        Framing::Empty
    } else if let Some(coding) = value("transfer-encoding") {
        if coding.eq_ignore_ascii_case("chunked") { Framing::Chunked } else { Framing::UntilClose }
    } else {
        match value("content-length").map(|text| text.parse()) {
            Some(Ok(length)) => Framing::Length(length),
            _ => Framing::UntilClose,
        }
    };
    Ok(Some(Head { status, retry_after: value("retry-after"), framing, length }))
}

fn read_body<R: Read>(
    reader: &mut Reader<'_, R>,
    framing: &Framing,
    kept: usize,
    body: &mut Vec<u8>,
) -> io::Result<()> {
    match framing {
        Framing::Empty => Ok(()),
        Framing::Length(length) => take(reader, *length, &mut 0, kept, body).map(|_| ()),
        Framing::UntilClose => take(reader, usize::MAX, &mut 0, kept, body).map(|_| ()),
        Framing::Chunked => read_chunks(reader, kept, body),
    }
}

/// Moves so many bytes into the body. False if the body is over, or longer than we care to read.
fn take<R: Read>(
    reader: &mut Reader<'_, R>,
    mut length: usize,
    seen: &mut usize,
    kept: usize,
    body: &mut Vec<u8>,
) -> io::Result<bool> {
    while length > 0 {
        if reader.buffer.is_empty() && !reader.more()? {
            return Ok(false);
        }
        let piece = reader.buffer.len().min(length);
        let keep = piece.min(kept.saturating_sub(body.len()));
        body.extend_from_slice(&reader.buffer[..keep]);
        reader.buffer.drain(..piece);
        length -= piece;
        *seen += piece;
        if *seen > MOST_BODY_READ {
            return Ok(false);
        }
    }
    Ok(true)
}

fn read_chunks<R: Read>(reader: &mut Reader<'_, R>, kept: usize, body: &mut Vec<u8>) -> io::Result<()> {
    let mut seen = 0;
    loop {
        let Some(line) = reader.line(256)? else { return Ok(()) };
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let length = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let length = length.and_then(|text| usize::from_str_radix(text, 16).ok());
        match length {
            None | Some(0) => return Ok(()),
            Some(length) => {
                // A chunk costs its line too, so that empty promises do not go on for ever.
                seen += line.len();
                if !take(reader, length, &mut seen, kept, body)? {
                    return Ok(());
                }
            }
        }
        match reader.line(0)? {
            Some(_) => {}
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Response, ReadError> {
        read_response(&mut text.as_bytes(), "POST", MOST_BODY_KEPT)
    }

    fn body(text: &str) -> String {
        String::from_utf8(read(text).expect(text).body).expect("text")
    }

    #[test]
    fn the_body_ends_where_it_is_said_to_end() {
        assert_eq!(body("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef"), "abc");
        assert_eq!(body("HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nabc"), "abc");
        assert_eq!(body("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc"), "abc");
        assert_eq!(body("HTTP/1.0 200 OK\r\n\r\nabc"), "abc");
        assert_eq!(body("HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\nabc"), "");
        assert_eq!(
            body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n"),
            "abc"
        );
        assert_eq!(body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\nc"), "ab");
        assert_eq!(body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nc"), "");
        assert_eq!(body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\nc\r\n0\r\n\r\n"), "");
    }

    #[test]
    fn interim_answers_are_passed_over_but_not_for_ever() {
        let answer =
            read("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Made\r\n\r\n");
        assert_eq!(answer.expect("an answer").status, 201);
        let flood = "HTTP/1.1 100 Continue\r\n\r\n".repeat(10_000);
        assert!(matches!(read(&flood), Err(ReadError::NotHttp(_))));
        let large = format!("HTTP/1.1 103 Hints\r\nLink: {}\r\n\r\n", "x".repeat(36_000)).repeat(2);
        assert!(matches!(read(&large), Err(ReadError::NotHttp(_)) | Ok(_)));
        assert!(matches!(read("HTTP/1.1 101 Up\r\n\r\n"), Err(ReadError::NotHttp(_))));
    }

    #[test]
    fn what_is_not_http_is_said_to_be_so() {
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(40_000));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(101));
        for text in
            ["", "HTTP/1.1 200", "SSH-2.0-x\r\n", "HTTP/1.1 999 X\r\n\r\n", "HTTP/1.1 2 X\r\n\r\n", &long, &many]
        {
            assert!(matches!(read(text), Err(ReadError::NotHttp(_))), "{text:.40}");
        }
    }

    #[test]
    fn little_of_a_long_body_is_kept() {
        let long = format!("HTTP/1.1 200 OK\r\n\r\n{}", "a".repeat(3_000_000));
        let mut rest = long.as_bytes();
        let answer = read_response(&mut rest, "POST", MOST_BODY_KEPT).expect("an answer");
        assert_eq!(answer.body.len(), MOST_BODY_KEPT);
        assert!(rest.len() > 1_900_000, "read on: {} left", rest.len());
    }

    #[test]
    fn the_request_is_one_message_with_its_length() {
        let target = Target { tls: true, host: url::Host::Domain("a.org".into()), port: 8443, resource: "/x?y".into() };
        let mut written = Vec::new();
        let headers = [("X-A".to_owned(), "b".to_owned())];
        write_request(&mut written, &target, "POST", &headers, b"hi").expect("written");
        let text = String::from_utf8(written).expect("text");
        assert_eq!(
            text,
            "POST /x?y HTTP/1.1\r\nHost: a.org:8443\r\nX-A: b\r\nContent-Length: 2\r\n\
             Accept-Encoding: identity\r\nConnection: close\r\n\r\nhi"
        );
    }
}
