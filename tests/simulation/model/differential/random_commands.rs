//! Random commands on a few keys: most of them make sense, and some do not.

use super::real::command;
use crate::chance::Chance;

/// Names of commands, some more often than others.
const NAMES: &str = "DEL GET GETRANGE HDEL HGETALL HLEN HSET PEXPIRE SET SET SETRANGE STRLEN ZADD \
                     ZADD ZADD ZCOUNT ZRANGE ZRANGEBYSCORE ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE \
                     ZSCORE EVAL EVAL TYPO";

// What arguments are, one blank between two of them: the first one is empty.
const NUMBERS: &str = " 0 1 2 3 -1 -2 -3 7 12 300 -100 007 x";
const SCORES: &str =
    " 0 1 3 2.5 -1 1796083200000000 9007199254740993 1e21 0.1 1e-7 +inf -inf x nan";
const BOUNDS: &str = " -inf +inf 0 (0 1 (1 2.5 (1796083200000000 (x -";
const TEXTS: &str = " a bc another-text 10 12345678901234567890 \u{1F9FF}";

/// What scripts return, and how they fail.
const SCRIPTS: [&str; 34] = [
    "return {1, 2.9, -2.9, 'text', false, 3, nil, 4}",
    "return {true, {'a', {}}, 1e15}",
    "return nil",
    "return {ok = 'fine'}",
    "return {err = 'MINE it is'}",
    "return redis.call('SET', KEYS[1], ARGV[1])",
    "return redis.call('GET', KEYS[1])",
    "return redis.pcall('GET', KEYS[1])",
    "return #(redis.pcall('GET', KEYS[1]) or '')",
    "return redis.call('ZADD', KEYS[1], 1.1, 2^53)",
    "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')",
    "return redis.call('ZSCORE', KEYS[1], ARGV[1])",
    "return redis.call('HGETALL', KEYS[1])",
    "redis.call('SET', KEYS[1], 1)\nreturn redis.call('ZADD', KEYS[1], 1, 1)",
    "return redis.call('PEXPIRE', KEYS[1], 1e6)",
    "return redis.call('NONE')",
    "return redis.call('GET')",
    "return redis.call('HELLO')",
    "return redis.call()",
    "return redis.call('GET', {})",
    "return type(redis.call('GET', 'none')) .. type(redis.call('HLEN', 'none'))",
    "a = 1",
    "return a",
    "return tostring(print)",
    "\nreturn 1 + nil",
    "error('mine')",
    "error({err = 'MINE it is'})",
    "return struct.unpack('<d', ARGV[1])",
    "return struct.pack('<dxBI2I4', 1, 258, 65537, -1)",
    "return struct.pack('<dB', 1)",
    "return struct.pack('<d', {})",
    "return {struct.unpack('<BxI2', 'abcdef', 2)}",
    "return string.format('%.17g', 0.1) .. tostring(1e15) .. tostring(2^53)",
    "retur 1",
];

/// The next command.
pub(super) fn random_command(chance: &mut Chance) -> Vec<Vec<u8>> {
    let mut words = match one_of(NAMES, chance) {
        "EVAL" => eval(chance),
        name => {
            let mut words = vec![name.to_owned(), key_for(name, chance)];
            let arguments = arguments_of(name, chance);
            words.extend(arguments.into_iter().map(str::to_owned));
            words
        }
    };
    match chance.below(40) {
        0 => drop(words.pop()),
        1 => words.push(one_of(TEXTS, chance).to_owned()),
        2 => words[0] = words[0].to_ascii_lowercase(),
        _ => {}
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    command(&words)
}

fn one_of(words: &'static str, chance: &mut Chance) -> &'static str {
    let at = chance.below(words.split(' ').count());
    words.split(' ').nth(at).unwrap_or_default()
}

/// What follows a command's first key.
fn arguments_of(name: &str, chance: &mut Chance) -> Vec<&'static str> {
    let some = |words, least: usize, chance: &mut Chance| -> Vec<_> {
        (0..least + chance.below(2)).map(|_| one_of(words, chance)).collect()
    };
    let two = |words, chance: &mut Chance| vec![one_of(words, chance), one_of(words, chance)];
    match name {
        "DEL" => some("string0 zset1 none0", 0, chance),
        "GETRANGE" | "ZREMRANGEBYRANK" => two(NUMBERS, chance),
        "SETRANGE" => vec![one_of(NUMBERS, chance), one_of(TEXTS, chance)],
        "HDEL" | "ZREM" => some(TEXTS, 1, chance),
        "HSET" => [two(TEXTS, chance), some(TEXTS, 0, chance)].concat(),
        "PEXPIRE" => vec![one_of("0 -1 x 900000 9000000 99999999999999999999", chance)],
        "SET" => {
            let value = vec![one_of(TEXTS, chance)];
            let mode = some("NX nx ZZ", 0, chance);
            let expiry = ["PX", "px"].into_iter().filter(|_| chance.is_one_in(3)).collect();
            let millis = some("900000 800000 0 -5 x", 0, chance);
            [value, mode, expiry, millis].concat()
        }
        "ZADD" => {
            let mode = some("NX XX xx", 0, chance);
            let mut members = vec![one_of(SCORES, chance), one_of(TEXTS, chance)];
            if chance.is_one_in(2) {
                members.extend([one_of(SCORES, chance), one_of(TEXTS, chance)]);
            }
            [mode, members].concat()
        }
        "ZCOUNT" | "ZRANGEBYSCORE" | "ZREMRANGEBYSCORE" => two(BOUNDS, chance),
        "ZRANGE" => [two(NUMBERS, chance), some("WITHSCORES withscores", 0, chance)].concat(),
        "ZSCORE" => vec![one_of(TEXTS, chance)],
        _ => Vec::new(),
    }
}

/// A key that mostly holds what a command is for.
fn key_for(command: &str, chance: &mut Chance) -> String {
    let kind = match command.as_bytes()[0] {
        _ if chance.is_one_in(12) => one_of("string hash zset none", chance),
        b'H' => "hash",
        b'Z' => "zset",
        b'D' | b'P' => one_of("string hash zset", chance),
        _ => "string",
    };
    format!("{kind}{}", chance.below(2))
}

fn eval(chance: &mut Chance) -> Vec<String> {
    let script = *chance.pick(&SCRIPTS);
    let count = if chance.is_one_in(20) { one_of("x -1 9 0", chance) } else { "1" };
    let key = key_for(one_of("SET SET HSET ZADD", chance), chance);
    ["EVAL", script, count, &key, one_of(TEXTS, chance)].map(str::to_owned).to_vec()
}
