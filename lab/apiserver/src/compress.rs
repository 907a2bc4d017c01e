//! Compression of answers, as kube-apiserver's feature APIResponseCompression does it.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// `defaultGzipThresholdBytes`: larger bodies are compressed.
const THRESHOLD: usize = 128 << 10;

/// Like kube-apiserver, reads no quality of `Accept-Encoding`.
pub(super) fn accepts_gzip(header: Option<&str>) -> bool {
    header.unwrap_or_default().split(',').any(|token| token.trim() == "gzip")
}

/// Compresses a large body at `defaultGzipContentEncodingLevel`; `None` for a small one.
pub(super) fn gzip(body: &[u8]) -> Option<Bytes> {
    let compressed = || -> io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body)?;
        encoder.finish()
    };
    (body.len() > THRESHOLD).then(compressed)?.ok().map(Bytes::from)
}
