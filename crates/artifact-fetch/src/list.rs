//! The part list of a release, verified where a key is configured.

use artifact_parts::PartList;
use minisign_verify::{PublicKey, Signature};
use model_catalog::ManifestVersion;
use verified_download::{HttpError, HttpErrorClass, HttpUrl, Request};

use crate::{FetchContext, FetchError};

/// A list of a hundred artifacts with a hundred parts each is below two megabytes.
const LONGEST: u64 = 16 << 20;

/// A signature file has four lines.
const LONGEST_SIGNATURE: u64 = 16 << 10;

/// The part list from the first host that has it; `None` where none has. With a key, minisign's public key in base64, a list
/// must be there and be signed by it. A host that does not answer is passed over, and so is one whose list is not valid or not
/// signed by the key: `on_rejected` is told of it.
///
/// # Errors
/// [`FetchError`] where the hosts' lists were rejected, and where no host answers; with a key also where one failed and no
/// other has a list.
pub fn fetch_list(
    context: &FetchContext<'_>,
    bases: &[HttpUrl],
    version: ManifestVersion,
    public_key: Option<&str>,
    on_rejected: &mut dyn FnMut(&FetchError),
) -> Result<Option<PartList>, FetchError> {
    let key = public_key
        .map(|key| PublicKey::from_base64(key).map_err(|error| FetchError::Key { why: error.to_string() }))
        .transpose()?;
    let name = PartList::file_name(version);
    let (mut failure, mut rejected, mut answered) = (None, None, false);
    for base in bases {
        let url = base.with_suffix(&name);
        let text = match read(context, &url, LONGEST) {
            Ok(Some(text)) => text,
            Ok(None) => {
                answered = true;
                continue;
            }
            Err(error) if error.class() == HttpErrorClass::Interrupted => return Err(error.into()),
            Err(error) => {
                failure.get_or_insert(error);
                continue;
            }
        };
        let signature = match &key {
            None => None,
            Some(_) => {
                let url = base.with_suffix(&PartList::signature_name(version));
                match read(context, &url, LONGEST_SIGNATURE) {
                    Err(error) if error.class() == HttpErrorClass::Interrupted => return Err(error.into()),
                    Err(error) => {
                        failure.get_or_insert(error);
                        continue;
                    }
                    Ok(signature) => signature,
                }
            }
        };
        match accept(key.as_ref(), &url, &text, signature.as_deref()) {
            Ok(list) => return Ok(Some(list)),
            Err(error) => {
                on_rejected(&error);
                rejected.get_or_insert(error);
            }
        }
    }
    if let Some(error) = rejected {
        return Err(error);
    }
    match failure {
        Some(error) if key.is_some() || !answered => Err(error.into()),
        None if key.is_some() => Err(FetchError::NoList { name }),
        _ => Ok(None),
    }
}

/// The list, where it is signed as it must be and valid.
fn accept(
    key: Option<&PublicKey>,
    url: &HttpUrl,
    text: &[u8],
    signature: Option<&[u8]>,
) -> Result<PartList, FetchError> {
    if let Some(key) = key {
        verify(key, text, signature).map_err(|why| FetchError::Signature { url: url.to_string(), why })?;
    }
    PartList::from_json(&String::from_utf8_lossy(text))
        .map_err(|source| FetchError::List { url: url.to_string(), source })
}

fn verify(key: &PublicKey, text: &[u8], signature: Option<&[u8]>) -> Result<(), String> {
    let signature = signature.ok_or("there is no signature beside it")?;
    let signature = std::str::from_utf8(signature).map_err(|_| "the signature is no text")?;
    let signature = Signature::decode(signature).map_err(|error| error.to_string())?;
    key.verify(text, &signature, false).map_err(|error| error.to_string())
}

/// A small file; `None` where the host does not have it.
pub(crate) fn read(
    context: &FetchContext<'_>,
    url: &HttpUrl,
    limit: u64,
) -> Result<Option<Vec<u8>>, HttpError> {
    match context.client.read(&Request::get(url.clone()), limit, context.stop) {
        Ok(body) => Ok(Some(body)),
        Err(error) if error.class() == HttpErrorClass::Gone => Ok(None),
        Err(error) => Err(error),
    }
}
