//! Errors of splitting, verifying and joining.

use camino::Utf8PathBuf;
use durable_fs::FsError;
use model_catalog::Sha256Digest;

/// Why a file was not split, or a set of parts not accepted.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    /// A file operation failed, or the source is not the expected file.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A chunk size outside the allowed range.
    #[error("a chunk size of {mib} MiB is not possible; 1 to 99 MiB are")]
    ChunkSize {
        /// The refused size.
        mib: u64,
    },
    /// A part limit outside the allowed range.
    #[error(
        "a part limit of {bytes} bytes is not possible; it may be lowered below 100 MiB, not raised, and not to 0"
    )]
    Limit {
        /// The refused limit.
        bytes: u64,
    },
    /// The file would need more than 100 parts.
    #[error("{name} ({size} bytes) would need {count} parts of {chunk} bytes; at most 100 are possible{}", smallest(*smallest_mib))]
    TooMany {
        /// The file.
        name: String,
        /// Its size in bytes.
        size: u64,
        /// The chunk size in bytes.
        chunk: u64,
        /// The number of parts.
        count: u64,
        /// The smallest chunk size that fits, where one does.
        smallest_mib: Option<u64>,
    },
    /// The name cannot be that of a file whose parts lie beside it.
    #[error("{name:?} cannot be the name of a split file: a plain file name is needed")]
    Name {
        /// The refused name.
        name: String,
    },
    /// The source grew or shrank while it was read.
    #[error(
        "{path} changed while it was read: {actual} bytes came, {expected} were there at the start; run again when nothing writes to it"
    )]
    SourceChanged {
        /// The source.
        path: Utf8PathBuf,
        /// Its size at the start.
        expected: u64,
        /// The bytes that were read.
        actual: u64,
    },
    /// Parts changed on disk: what was read back is not what was written.
    #[error(
        "{path} reads back as SHA-256 {actual} although {expected} was written; check the disk and run again"
    )]
    ReadBack {
        /// What was being written.
        path: Utf8PathBuf,
        /// The digest of what was written.
        expected: Sha256Digest,
        /// The digest of what is on disk.
        actual: Sha256Digest,
    },
    /// There are no parts of the name.
    #[error("there are no parts {name}.p00, .p01, ... in {dir}; check the name and the directory")]
    NoParts {
        /// The whole file's name.
        name: String,
        /// The directory that was searched.
        dir: Utf8PathBuf,
    },
    /// A part between others is missing.
    #[error("{missing} is missing in {dir} although {next} is there; fetch or split it again")]
    Gap {
        /// The first missing part.
        missing: String,
        /// The next part that is there.
        next: String,
        /// The directory.
        dir: Utf8PathBuf,
    },
    /// The parts end too early.
    #[error(
        "the parts of {name} in {dir} hold {actual} bytes of {expected}: the last ones are missing or cut short; fetch or split it again"
    )]
    Incomplete {
        /// The whole file's name.
        name: String,
        /// The directory.
        dir: Utf8PathBuf,
        /// Bytes that are there.
        actual: u64,
        /// Bytes of the whole file.
        expected: u64,
    },
    /// There is a part too many.
    #[error(
        "{part} in {dir} does not belong to the set: the file is whole without it; remove it if it is left of an earlier split"
    )]
    Surplus {
        /// The first part too many.
        part: String,
        /// The directory.
        dir: Utf8PathBuf,
    },
    /// A part has another size than its place in the set allows.
    #[error("{path} has {actual} bytes; {expected} were expected of it; fetch or split it again")]
    PartSize {
        /// The part.
        path: Utf8PathBuf,
        /// Its size.
        actual: u64,
        /// The size it should have.
        expected: u64,
    },
    /// A part's content is not the listed one.
    #[error("{path} is damaged: its SHA-256 is {actual}, {expected} is listed; fetch or split it again")]
    PartDigest {
        /// The part.
        path: Utf8PathBuf,
        /// The listed digest.
        expected: Sha256Digest,
        /// The digest of what is there.
        actual: Sha256Digest,
    },
    /// A part holds the content of another one.
    #[error(
        "{path} holds the content of {holds}: parts are in the wrong order; give them their names back or fetch them again"
    )]
    Misplaced {
        /// The part.
        path: Utf8PathBuf,
        /// The part whose listed content it has.
        holds: String,
    },
    /// There is no checksum beside the parts.
    #[error("{path} is missing: parts without their checksum are not a whole set; fetch or split it again")]
    ChecksumMissing {
        /// The checksum file.
        path: Utf8PathBuf,
    },
    /// The checksum file is none.
    #[error(
        "{path} is not a checksum file: {found:?} stands there instead of 64 hexadecimal digits, two spaces and a name"
    )]
    ChecksumMalformed {
        /// The checksum file.
        path: Utf8PathBuf,
        /// The beginning of its text.
        found: String,
    },
    /// The checksum is that of another file.
    #[error("{path} is the checksum of {names}, not of {name}; fetch or split it again")]
    ChecksumForeign {
        /// The checksum file.
        path: Utf8PathBuf,
        /// The name inside it.
        names: String,
        /// The name it should have.
        name: String,
    },
    /// The checksum and the caller disagree about the digest.
    #[error(
        "{path} states SHA-256 {stated}; {expected} is expected: the parts are of another build; fetch or split it again"
    )]
    ChecksumDisagrees {
        /// The checksum file.
        path: Utf8PathBuf,
        /// The digest in it.
        stated: Sha256Digest,
        /// The digest that the caller expects.
        expected: Sha256Digest,
    },
    /// The parts together are not the file.
    #[error(
        "the {count} parts of {name} in {dir} make up SHA-256 {actual}; {expected} was expected: a part is damaged, missing at the end, of another build or in the wrong place; fetch or split it again"
    )]
    WholeDigest {
        /// The whole file's name.
        name: String,
        /// The directory.
        dir: Utf8PathBuf,
        /// Number of parts.
        count: usize,
        /// The digest that was expected.
        expected: Sha256Digest,
        /// The digest of the parts together.
        actual: Sha256Digest,
    },
}

fn smallest(mib: Option<u64>) -> String {
    match mib {
        Some(mib) => format!("; the smallest chunk size that fits is {mib} MiB"),
        None => "; no allowed chunk size fits a file of this size".to_owned(),
    }
}
