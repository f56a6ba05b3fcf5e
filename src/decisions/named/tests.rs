//! Which commands may run at once.

use tollgate_wire::resp::{Decoded, decode};

use super::*;
use crate::decisions::engine::BOUNDS;

fn read(command: &str) -> NamedCommand {
    let words: Vec<&str> = command.split(' ').collect();
    let parts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let sent = format!("*{}\r\n{}", words.len(), parts.collect::<String>());
    match decode(sent.as_bytes(), &BOUNDS) {
        Ok(Decoded::Command(arguments, _)) => NamedCommand::read(&arguments),
        other => panic!("{command}: {other:?}"),
    }
}

#[test]
fn only_commands_whose_order_makes_no_difference_run_together() {
    let together = |commands: &[&str]| {
        let commands: Vec<NamedCommand> = commands.iter().map(|command| read(command)).collect();
        NamedCommand::may_run_together(&commands)
    };
    assert!(together(&["tg.charge mail a", "tg.charge mail b AT 1000000000"]));
    assert!(together(&["tg.standing mail a", "tg.standing mail b"]));
    for other in ["tg.reset mail a", "tg.standing mail a", "tg.charge mail a WAIT 10"] {
        assert!(!together(&["tg.charge mail a", other]), "{other}");
    }
}
