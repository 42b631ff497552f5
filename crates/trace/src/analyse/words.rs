//! Numbers as a person writes them.

/// A count, with a comma between the thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// "1 time", "2 times".
pub fn of(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// A length of time in nanoseconds, to two or three digits, in the unit that suits it.
pub fn length(ns: u64) -> String {
    const UNITS: [(&str, u64); 4] =
        [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
    let (unit, size) = UNITS
        .into_iter()
        // 999.6 us is 1.0 ms.
        .find(|&(_, size)| ns as f64 >= size as f64 * 0.9995)
        .unwrap_or(("ns", 1));
    let number = ns as f64 / size as f64;
    // Two digits at least; of seconds, tenths up to 99.9.
    let tenths_below = if unit == "s" { 99.95 } else { 9.95 };
    if size > 1 && number < tenths_below {
        format!("{number:.1} {unit}")
    } else {
        format!("{number:.0} {unit}")
    }
}

/// "a", "a and b", "a, b and 3 more".
pub fn list(names: &[String]) -> String {
    const MOST: usize = 3;
    match names {
        [] => "nobody".to_owned(),
        [one] => one.clone(),
        [first @ .., last] if names.len() <= MOST => format!("{} and {last}", first.join(", ")),
        _ => format!(
            "{} and {} more",
            names.get(..MOST - 1).unwrap_or(&[]).join(", "),
            names.len() - (MOST - 1)
        ),
    }
}

/// A command as it can be typed again.
pub fn command(arguments: &[String]) -> String {
    const PLAIN: &str = "-_./:=+,@%";
    /// A line that is longer says less.
    const MOST_CHARS: usize = 120;
    let quoted: Vec<String> = arguments
        .iter()
        .map(|argument| {
            let plain = |c: char| c.is_ascii_alphanumeric() || PLAIN.contains(c);
            if !argument.is_empty() && argument.chars().all(plain) {
                argument.clone()
            } else {
                format!("'{}'", argument.replace('\'', "'\\''"))
            }
        })
        .collect();
    let line = quoted.join(" ");
    if line.is_empty() || line.chars().count() > MOST_CHARS || line.contains('\n') {
        "COMMAND".to_owned()
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(4_003), "4,003");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(of(1, "time", "times"), "1 time");
        assert_eq!(length(850), "850 ns");
        assert_eq!(length(12_000), "12 us");
        assert_eq!(length(5_000_000), "5.0 ms");
        assert_eq!(length(999_900), "1.0 ms");
        assert_eq!(length(20_100_000_000), "20.1 s");
        assert_eq!(length(120_000_000_000), "120 s");
    }

    #[test]
    fn lists_are_short() {
        let names = |count: usize| (0..count).map(|n| format!("t{n}")).collect::<Vec<_>>();
        assert_eq!(list(&names(1)), "t0");
        assert_eq!(list(&names(2)), "t0 and t1");
        assert_eq!(list(&names(3)), "t0, t1 and t2");
        assert_eq!(list(&names(5)), "t0, t1 and 3 more");
    }

    #[test]
    fn a_command_can_be_typed_again() {
        let arguments = ["python3", "-c", "print('a b')"].map(str::to_owned);
        assert_eq!(command(&arguments), r"python3 -c 'print('\''a b'\'')'");
        assert_eq!(command(&[]), "COMMAND");
    }
}
