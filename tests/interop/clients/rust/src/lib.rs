//! What contract.py describes, as far as it is the same for every client: arguments, records, and the report of a step.

use std::fmt::Display;

pub const SHARE: usize = 100;

/// The arguments of a program.
pub struct Task {
    pub bootstrap: String,
    pub topic: String,
    pub group: String,
    pub codecs: Vec<String>,
}

impl Task {
    pub fn new() -> Self {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        Self {
            bootstrap: arguments[0].clone(),
            topic: arguments[1].clone(),
            group: arguments[2].clone(),
            codecs: arguments[3].split(',').map(str::to_owned).collect(),
        }
    }

    /// The number of records of all codecs.
    pub fn first(&self) -> usize {
        SHARE * self.codecs.len()
    }
}

impl Default for Task {
    fn default() -> Self {
        Self::new()
    }
}

pub fn key(number: usize) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

pub fn value(number: usize) -> Option<Vec<u8>> {
    if number % 10 == 9 {
        return None;
    }
    let mut made = format!("value {number} ").into_bytes();
    made.extend((0..number % SHARE).map(|index| (number + 31 * index) as u8));
    Some(made)
}

/// An error unless a record is the one with this number.
pub fn check(
    number: usize,
    found: (Vec<u8>, Option<Vec<u8>>, i64),
    nulls: bool,
) -> Result<(), String> {
    let wanted = if nulls {
        value(number)
    } else {
        value(number).or(Some(Vec::new()))
    };
    if found != (key(number), wanted, number as i64) {
        return Err(format!("record {number} is {found:?}"));
    }
    Ok(())
}

pub fn equal<T: PartialEq + std::fmt::Debug>(found: T, wanted: T) -> Result<(), String> {
    if found != wanted {
        return Err(format!("{found:?}, not {wanted:?}"));
    }
    Ok(())
}

/// Report a step that has run.
pub fn told(step: &str, done: Result<(), String>) {
    let (result, why) = match done {
        Ok(()) => ("pass", String::new()),
        Err(why) => ("fail", why),
    };
    println!(
        "{}",
        serde_json::json!({"step": step, "result": result, "why": why})
    );
}

/// An error of a client as text.
pub fn text(error: impl Display) -> String {
    error.to_string()
}
