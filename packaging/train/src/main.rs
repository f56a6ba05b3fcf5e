//! Sends a Tollgate the requests that its profile-guided build is made for: `packaging/dist.sh`
//! builds and runs it.
//!
//! `tollgate-train TOLLGATE FOLDER` starts that program before a server of its own, once for each
//! workload, with one worker, asks it always the same, and ends it with SIGTERM, at which it writes
//! its profile to the folder. Counters in Redis are left out where there is no `redis-server`.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a tool of the build: it stops if it cannot go on"
)]

mod client;
mod program;
mod server;
mod workload;

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use tokio::runtime;

use self::{
    program::{Program, Redis},
    workload::{Store, WORKLOADS, Workload},
};

fn main() -> anyhow::Result<()> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let (Some(tollgate), Some(profiles)) = (arguments.next(), arguments.next()) else {
        bail!("name the program and a folder: tollgate-train TOLLGATE FOLDER")
    };
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = server::start().await?;
        for workload in WORKLOADS {
            train(&tollgate, &profiles, workload, server).await.with_context(|| workload.name)?;
        }
        Ok(())
    })
}

/// Has a Tollgate serve the requests of a workload.
async fn train(
    tollgate: &Path,
    profiles: &Path,
    workload: &Workload,
    server: SocketAddr,
) -> anyhow::Result<()> {
    let redis = match workload.store {
        Store::Memory => None,
        Store::Redis => match Redis::start()? {
            Some(redis) => Some(redis),
            None => {
                eprintln!("{}: left out, since there is no redis-server", workload.name);
                return Ok(());
            }
        },
    };
    let program = Program::start(tollgate, profiles, workload, server, redis.as_ref())?;
    client::send_all(&program, workload).await?;
    program.stop()?;
    eprintln!("{}: {} requests", workload.name, workload.requests);
    Ok(())
}
