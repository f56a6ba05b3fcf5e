//! What other proxies ask, whichever of them asks: what they forward is what was judged.

mod addresses;
mod identity;
mod pages;
mod preflights;
mod targets;
