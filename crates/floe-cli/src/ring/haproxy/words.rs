//! Splits a line of an HAProxy configuration into words, by the rules of chapter 2.2 of its manual.

use std::iter::Peekable;
use std::str::Chars;

/// The words of a line without its comment. Environment variables stay as they are written.
///
/// # Errors
/// A quote is not closed.
pub(super) fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        match (char, quote) {
            ('#', None) => break,
            ('\'' | '"', None) => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (_, Some(open)) if char == open => quote = None,
            ('\\', None | Some('"')) => escaped(&mut chars, word.get_or_insert_default()),
            (_, None) if char.is_ascii_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(char),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed");
    }
    words.extend(word);
    Ok(words)
}

/// Reads what follows a backslash. An unknown sequence keeps its backslash.
fn escaped(chars: &mut Peekable<Chars<'_>>, word: &mut String) {
    let Some(&next) = chars.peek() else {
        word.push('\\');
        return;
    };
    let meaning = match next {
        ' ' | '\\' | '#' | '\'' | '"' | '$' => next,
        't' => '\t',
        'n' => '\n',
        'r' => '\r',
        'x' => {
            hex(chars, word);
            return;
        }
        _ => {
            word.push('\\');
            return;
        }
    };
    chars.next();
    word.push(meaning);
}

/// Reads `xNN`. HAProxy rejects other digits; here they stay.
fn hex(chars: &mut Peekable<Chars<'_>>, word: &mut String) {
    let mut ahead = chars.clone();
    ahead.next();
    let digits = (ahead.next(), ahead.next());
    let value = |digit: Option<char>| digit.and_then(|digit| digit.to_digit(16));
    let (Some(high), Some(low)) = (value(digits.0), value(digits.1)) else {
        word.push('\\');
        return;
    };
    *chars = ahead;
    word.extend(char::from_u32(high * 16 + low));
}

#[cfg(test)]
mod tests {
    use super::words;

    #[track_caller]
    fn split(line: &str, expected: &[&str]) {
        assert_eq!(words(line).unwrap(), expected, "{line}");
    }

    #[test]
    fn words_are_split_at_blanks() {
        split("  mode\t http  ", &["mode", "http"]);
        split("", &[]);
        split("global#comment", &["global"]);
        split("   # only a comment", &[]);
    }

    #[test]
    fn quotes_protect_blanks_and_hashes() {
        split(r#"a "b c # d" e"#, &["a", "b c # d", "e"]);
        split("a 'b \\ \"c' d", &["a", "b \\ \"c", "d"]);
        split(r#"x"y"'z' """#, &["xyz", ""]);
        split(r#""it's""#, &["it's"]);
    }

    #[test]
    fn backslashes_escape() {
        split(
            r"a\ b \#c \\ \'d \x41\x2z",
            &["a b", "#c", "\\", "'d", "A\\x2z"],
        );
        split(r#""\"q\"" \d"#, &["\"q\"", "\\d"]);
        split("end\\", &["end\\"]);
    }

    #[test]
    fn an_open_quote_is_an_error() {
        assert!(words("server 'a").is_err());
        assert!(words("server \"a\\\"").is_err());
    }
}
