//! Credentials for NATS: a token, a password, or a file with a JWT and the seed of its key.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio_rustls::rustls::SignatureScheme;
use tokio_rustls::rustls::crypto::aws_lc_rs::sign::any_eddsa_type;

use super::error::NatsError;

/// The identity of the client.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::frontends::events) enum Login {
    Anonymous,
    Token(String),
    Password {
        user: String,
        password: String,
    },
    /// A file, which each connection reads again, since a JWT expires.
    Credentials(PathBuf),
}

impl fmt::Debug for Login {
    /// Hides the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Login::Anonymous => "Anonymous",
            Login::Token(_) => "Token",
            Login::Password { .. } => "Password",
            Login::Credentials(_) => "Credentials",
        })
    }
}

impl Login {
    /// Checks a file with credentials, if there is one.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub(in crate::frontends::events) async fn check(&self) -> Result<(), String> {
        let options = self.options("nonce").await;
        options.map(drop).map_err(|error| error.to_string())
    }

    /// The options of CONNECT that prove the identity to a server that sent `nonce`.
    pub(super) async fn options(&self, nonce: &str) -> Result<Value, NatsError> {
        Ok(match self {
            Login::Anonymous => json!({}),
            Login::Token(token) => json!({ "auth_token": token }),
            Login::Password { user, password } => json!({ "user": user, "pass": password }),
            Login::Credentials(file) => {
                let proof = proof(file, nonce).await.map_err(NatsError::Credentials);
                let (jwt, signature) = proof?;
                json!({ "jwt": jwt, "sig": signature })
            }
        })
    }
}

/// The JWT in a file, and a signature of `nonce` with the key there.
async fn proof(file: &Path, nonce: &str) -> Result<(String, String), String> {
    let read = tokio::fs::read_to_string(file).await;
    let text = read.map_err(|error| format!("{}: {error}", file.display()))?;
    let part =
        |name: &str| block(&text, name).ok_or_else(|| format!("{} has no {name}", file.display()));
    let jwt = part("NATS USER JWT")?.to_owned();
    let seed = seed(part("USER NKEY SEED")?);
    let seed = seed.ok_or_else(|| format!("{} has a damaged seed", file.display()))?;
    let signature = sign(&seed, nonce.as_bytes())?;
    Ok((jwt, BASE64_URL_SAFE_NO_PAD.encode(signature)))
}

/// The line after that with `-BEGIN name-`.
fn block<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let begin = format!("-BEGIN {name}-");
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.contains(&begin))?;
    lines.find(|line| !line.is_empty())
}

/// The key in the seed of a user: `SU`, 32 bytes and a checksum, in base 32.
fn seed(text: &str) -> Option<[u8; 32]> {
    // In base 32 the digits S and U, 18 and 20, and zeros.
    const USER_SEED: [u8; 2] = [18 << 3 | 20 >> 2, 0];
    let bytes = decode_base32(text)?;
    let (bytes, checksum) = bytes.split_last_chunk::<2>()?;
    let (prefix, key) = bytes.split_first_chunk::<2>()?;
    let is_whole = *prefix == USER_SEED && crc16(bytes) == u16::from_le_bytes(*checksum);
    is_whole.then(|| key.try_into().ok())?
}

fn decode_base32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut value) = (Vec::new(), 0, 0u32);
    for digit in text.bytes() {
        let digit = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'2'..=b'7' => digit - b'2' + 26,
            _ => return None,
        };
        value = value << 5 & 0xffff | u32::from(digit);
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((value >> bits & 0xff) as u8);
        }
    }
    Some(bytes)
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let shift = |crc: u16, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        };
        (0..8).fold(crc ^ u16::from(*byte) << 8, shift)
    })
}

/// The signature of `message` with the Ed25519 key of `seed`.
fn sign(seed: &[u8; 32], message: &[u8]) -> Result<Vec<u8>, String> {
    let key = any_eddsa_type(&pkcs8(seed).as_slice().into());
    let signed = key.map(|key| {
        let signer = key.choose_scheme(&[SignatureScheme::ED25519]);
        signer.map(|signer| signer.sign(message))
    });
    match signed {
        Ok(Some(Ok(signature))) => Ok(signature),
        Ok(None) => Err("the key cannot sign".into()),
        Ok(Some(Err(error))) | Err(error) => Err(error.to_string()),
    }
}

/// An Ed25519 key in the form of PKCS #8 (RFC 8410).
fn pkcs8(seed: &[u8; 32]) -> Vec<u8> {
    const HEAD: [u8; 16] = [
        0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04,
        0x20,
    ];
    [&HEAD[..], seed].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    const PUBLIC_KEY: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

    #[test]
    fn a_seed_is_that_of_its_public_key() {
        let key = any_eddsa_type(&pkcs8(&seed(SEED).unwrap()).as_slice().into()).unwrap();
        let public = key.public_key().unwrap();
        let expected = decode_base32(PUBLIC_KEY).unwrap();
        assert_eq!(public[public.len() - 32..], expected[1..33]);
        assert_eq!(seed(&SEED.replace("L3UA", "L3UB")), None);
        assert_eq!(seed("SUAC"), None);
        assert_eq!(seed("SU-"), None);
        assert_eq!(sign(&seed(SEED).unwrap(), b"nonce").unwrap().len(), 64);
    }

    #[tokio::test]
    async fn files_with_credentials_prove_the_identity() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("floe.creds");
        let login = Login::Credentials(file.clone());
        let whole = format!(
            "-----BEGIN NATS USER JWT-----\na.jwt\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
        );
        for (text, cause) in [
            (None, "No such file"),
            (Some(whole.replace("JWT", "JOT")), "no NATS USER JWT"),
            (Some(whole.replace("SUAC", "SUAB")), "damaged seed"),
        ] {
            if let Some(text) = text {
                std::fs::write(&file, text).unwrap();
            }
            let error = login.check().await.unwrap_err();
            assert!(error.contains(cause), "{error}");
        }
        std::fs::write(&file, whole).unwrap();
        let options = login.options("a nonce").await.unwrap();
        assert_eq!(options["jwt"], "a.jwt");
        assert_eq!(options["sig"].as_str().unwrap().len(), 86);
    }
}
