//! What is wrong with a TOML file, for somebody who wrote it by hand.

/// What a reader of data says, and what a person would.
const WORDS: [(&str, &str); 11] = [
    ("unknown variant ", "there is no "),
    ("unknown field ", "there is no "),
    (", expected one of ", "; there are "),
    ("invalid type: ", ""),
    ("invalid value: ", ""),
    (", expected a tuple of size 2", ": there must be two, as in [\"1us\", 2]"),
    ("invalid length ", "not of length "),
    ("expected a sequence", "where a list in [ ] belongs"),
    (
        "wanted exactly 1 element, more than 1 element",
        "a step does one thing; write two as { … }, { … }",
    ),
    ("expected u32", "where a whole number from 0 on belongs"),
    ("expected i8", "where a whole number from -128 to 127 belongs"),
];

/// One line that says what is wrong with `text`, and in which line.
pub fn in_words(text: &str, error: &toml::de::Error) -> String {
    let why = error.message().trim().replace('\n', ": ");
    let mut why = WORDS.iter().fold(why, |why, (theirs, ours)| why.replace(theirs, ours));
    if let Some(field) = why.strip_prefix("missing field ") {
        why = format!("{field} is missing");
    }
    match error.span() {
        Some(span) => {
            let before = text.get(..span.start).unwrap_or(text);
            format!("line {}: {why}", before.matches('\n').count() + 1)
        }
        None => why,
    }
}
