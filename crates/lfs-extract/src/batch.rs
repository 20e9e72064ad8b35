//! The LFS Batch API: which address serves which object.

use std::collections::BTreeMap;

use model_catalog::Sha256Digest;
use serde::{Deserialize, Serialize};

use crate::Pointer;

/// The media type of requests and answers.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.git-lfs+json";

/// Longest answer that is read, in bytes: a batch has few objects.
pub(crate) const MAX_ANSWER: u64 = 4 * 1024 * 1024;

#[derive(Debug, Serialize)]
struct Question {
    operation: &'static str,
    transfers: [&'static str; 1],
    objects: Vec<Asked>,
    hash_algo: &'static str,
}

#[derive(Debug, Serialize)]
struct Asked {
    oid: Sha256Digest,
    size: u64,
}

/// The body of a batch request for downloads.
pub(crate) fn question(pointers: &[Pointer]) -> Vec<u8> {
    let objects = pointers.iter().map(|pointer| Asked { oid: pointer.oid, size: pointer.size }).collect();
    let question = Question { operation: "download", transfers: ["basic"], objects, hash_algo: "sha256" };
    serde_json::to_vec(&question).unwrap_or_else(|_| unreachable!("strings and numbers are always JSON"))
}

#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    transfer: Option<String>,
    objects: Vec<Object>,
    #[serde(default)]
    hash_algo: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Object {
    oid: String,
    #[serde(default)]
    actions: Option<Actions>,
    #[serde(default)]
    error: Option<ObjectError>,
}

#[derive(Debug, Deserialize)]
struct Actions {
    #[serde(default)]
    download: Option<Action>,
}

/// Where an object is and which headers it takes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Action {
    /// The object's address.
    pub href: String,
    /// Headers that the server wants to see.
    #[serde(default)]
    pub header: BTreeMap<String, String>,
}

/// Why the server does not serve an object.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ObjectError {
    /// An HTTP status.
    pub code: u16,
    /// The server's words.
    #[serde(default)]
    pub message: String,
}

/// What a server says of the objects that it was asked for; one that it does not mention is missing from the map.
pub type BatchAnswer = BTreeMap<Sha256Digest, Result<Action, ObjectError>>;

/// Parses the body of a batch answer.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_batch_answer(body: &[u8]) -> Result<BatchAnswer, String> {
    let answer: Answer =
        serde_json::from_slice(body).map_err(|error| format!("the batch answer is not valid: {error}"))?;
    if let Some(transfer) = answer.transfer.filter(|transfer| transfer != "basic") {
        return Err(format!("the server wants to transfer with {transfer:?}, which was not offered"));
    }
    if let Some(algorithm) = answer.hash_algo.filter(|algorithm| algorithm != "sha256") {
        return Err(format!("the server names objects by {algorithm:?}, which was not offered"));
    }
    let mut answers = BatchAnswer::new();
    for object in answer.objects {
        let oid: Sha256Digest =
            object.oid.parse().map_err(|error| format!("the batch answer names no object: {error}"))?;
        let outcome = match (object.error, object.actions.and_then(|actions| actions.download)) {
            (Some(error), _) => Err(error),
            (None, Some(action)) => Ok(action),
            (None, None) => {
                Err(ObjectError { code: 404, message: "the server offers no download".to_owned() })
            }
        };
        answers.insert(oid, outcome);
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OID: &str = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393";

    #[test]
    fn the_question_is_the_published_one() {
        let pointer = Pointer { oid: OID.parse().unwrap(), size: 5 };
        let expected = format!(
            r#"{{"operation":"download","transfers":["basic"],"objects":[{{"oid":"{OID}","size":5}}],"hash_algo":"sha256"}}"#
        );
        assert_eq!(String::from_utf8(question(&[pointer])).unwrap(), expected);
    }

    #[test]
    fn actions_and_errors_are_told_apart() {
        let one = |object: &str| parse_batch_answer(format!(r#"{{"objects":[{object}]}}"#).as_bytes());
        let oid = OID.parse().unwrap();
        let action = one(&format!(
            r#"{{"oid":"{OID}","size":5,"actions":{{"download":{{"href":"https://h/x","header":{{"A":"b"}},"expires_in":9}}}}}}"#
        ));
        assert_eq!(action.unwrap()[&oid].as_ref().unwrap().href, "https://h/x");
        let error = one(&format!(r#"{{"oid":"{OID}","error":{{"code":410,"message":"gone"}}}}"#));
        assert_eq!(error.unwrap()[&oid].as_ref().unwrap_err().code, 410);
        let nothing = one(&format!(r#"{{"oid":"{OID}"}}"#));
        assert_eq!(nothing.unwrap()[&oid].as_ref().unwrap_err().code, 404);
        assert!(one(r#"{"oid":"../../x"}"#).is_err());
        assert!(parse_batch_answer(br#"{"transfer":"tus","objects":[]}"#).is_err());
        assert!(parse_batch_answer(b"<html>").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_batch_answer(&body);
        }
    }
}
