//! Panics: each is one line in the log, from whoever knows most about it.
//!
//! A panic hook runs before anything is unwound. It knows where the panic is and what it says, and not
//! which request it is about; whoever catches the panic knows the request, and not the place. So
//! inside of [`catch`] the hook keeps what it knows for the one who catches, and elsewhere it tells it.

use std::{
    any::Any,
    backtrace::{Backtrace, BacktraceStatus},
    cell::{Cell, RefCell},
    panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind},
    thread,
    time::Duration,
};

use tracing::{Dispatch, dispatcher};

use crate::pipe::Pipe;

/// A panic that was caught.
#[derive(Clone, Debug, Default)]
pub struct Panic {
    /// What it says.
    pub message: String,
    /// File, line and column; empty without the hook.
    pub place: String,
    /// How it came there, if `RUST_BACKTRACE` asks for that.
    pub backtrace: Option<String>,
}

thread_local! {
    /// How many [`catch`] there are around what this thread does.
    static CATCHING: Cell<usize> = const { Cell::new(0) };
    /// What the hook knew of the latest panic.
    static LATEST: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// How long the process's end waits for the line about a panic in its main thread.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Has each panic told as an event, by `dispatch`: the thread may have another one of its own, that
/// tells nothing, as while a policy's tests run.
pub fn tell_by(dispatch: Dispatch, pipe: Pipe) {
    panic::set_hook(Box::new(move |info| {
        let panic = Panic::of(info);
        if CATCHING.try_with(Cell::get).unwrap_or(0) > 0 {
            LATEST.with(|latest| latest.replace(Some(panic)));
            return;
        }
        let thread = thread::current();
        let Panic { message, place, backtrace } = panic;
        let backtrace = backtrace.as_deref();
        dispatcher::with_default(&dispatch, || {
            tracing::error!(
                thread = thread.name().unwrap_or("?"),
                panic = message,
                place,
                backtrace,
                "a thread has panicked"
            );
        });
        if thread.name() == Some("main") {
            // The process ends with this thread, and lines are written by another.
            pipe.flush(LAST_WORDS);
        }
    }));
}

/// Does something that may panic, and returns that panic to be told. Nothing inside may catch panics
/// and say nothing of them.
///
/// # Errors
/// It has panicked.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    CATCHING.with(|catching| catching.set(catching.get() + 1));
    let result = catch_unwind(AssertUnwindSafe(work));
    CATCHING.with(|catching| catching.set(catching.get() - 1));
    result.map_err(|payload| {
        let kept = LATEST.with(|latest| latest.take());
        kept.unwrap_or_else(|| Panic { message: words(&*payload), ..Panic::default() })
    })
}

impl Panic {
    fn of(info: &PanicHookInfo<'_>) -> Panic {
        let backtrace = Backtrace::capture();
        let has_backtrace = backtrace.status() == BacktraceStatus::Captured;
        Panic {
            message: words(info.payload()),
            place: info.location().map(ToString::to_string).unwrap_or_default(),
            backtrace: has_backtrace.then(|| backtrace.to_string()),
        }
    }
}

fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it does not say why").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caught_panic_says_what_it_says() {
        assert_eq!(catch(|| 1).unwrap(), 1);
        let panic = catch(|| panic!("no {}", 7)).unwrap_err();
        assert_eq!(panic.message, "no 7");
        let outer = catch(|| catch(|| panic!("inner")).unwrap_err().message).unwrap();
        assert_eq!(outer, "inner");
        assert_eq!(CATCHING.with(Cell::get), 0);
    }
}
