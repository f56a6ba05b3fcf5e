//! Panics: each is logged once, by the code that knows most about it.
//!
//! A panic hook runs before anything is unwound. It knows where the panic is and what it says, and
//! not which request it is about; the code that catches it knows the request, and not the location.
//! So inside [`catch`] the hook keeps the panic for that code, and elsewhere the hook logs it.

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
    /// The panic's message.
    pub message: String,
    /// File, line and column; empty without the hook.
    pub location: String,
    /// The backtrace, if `RUST_BACKTRACE` enables it.
    pub backtrace: Option<String>,
}

thread_local! {
    /// How many [`catch`] there are around what this thread does.
    static CATCHING: Cell<usize> = const { Cell::new(0) };
    /// The latest panic that the hook has seen inside [`catch`].
    static LATEST: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// How long the process's end waits for the line about a panic in its main thread.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Logs each uncaught panic through `dispatch`: the thread's own one may log nothing, as while a
/// policy's tests run.
pub fn log_through(dispatch: Dispatch, pipe: Pipe) {
    panic::set_hook(Box::new(move |info| {
        let panic = Panic::of(info);
        if CATCHING.try_with(Cell::get).unwrap_or(0) > 0 {
            LATEST.with(|latest| latest.replace(Some(panic)));
            return;
        }
        let thread = thread::current();
        let Panic { message, location, backtrace } = panic;
        let backtrace = backtrace.as_deref();
        dispatcher::with_default(&dispatch, || {
            tracing::error!(
                thread = thread.name().unwrap_or("?"),
                panic = message,
                place = location,
                backtrace,
                "a thread has panicked"
            );
        });
        if thread.name() == Some("main") {
            // The process ends with this thread, and lines are written by another.
            pipe.flush(FLUSH_TIMEOUT);
        }
    }));
}

/// Runs `work` and returns its panic, which the caller must log. Code inside must not catch panics
/// without logging them.
///
/// # Errors
/// It has panicked.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    CATCHING.with(|catching| catching.set(catching.get() + 1));
    let result = catch_unwind(AssertUnwindSafe(work));
    CATCHING.with(|catching| catching.set(catching.get() - 1));
    result.map_err(|payload| {
        let kept = LATEST.with(|latest| latest.take());
        kept.unwrap_or_else(|| Panic { message: message_of(&*payload), ..Panic::default() })
    })
}

impl Panic {
    fn of(info: &PanicHookInfo<'_>) -> Panic {
        let backtrace = Backtrace::capture();
        let has_backtrace = backtrace.status() == BacktraceStatus::Captured;
        Panic {
            message: message_of(info.payload()),
            location: info.location().map(ToString::to_string).unwrap_or_default(),
            backtrace: has_backtrace.then(|| backtrace.to_string()),
        }
    }
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caught_panic_keeps_its_message() {
        assert_eq!(catch(|| 1).unwrap(), 1);
        let panic = catch(|| panic!("no {}", 7)).unwrap_err();
        assert_eq!(panic.message, "no 7");
        let outer = catch(|| catch(|| panic!("inner")).unwrap_err().message).unwrap();
        assert_eq!(outer, "inner");
        assert_eq!(CATCHING.with(Cell::get), 0);
    }
}
