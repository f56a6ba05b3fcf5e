//! `tollgate store`: counts, checks, copies and merges the counters on disk. While a proxy has them
//! open, it is asked to; else the files are opened here.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use clap::Subcommand;
use http::Method;
use serde::de::DeserializeOwned;
use tollgate_clock::Clock;
use tollgate_settings::{Permission, Settings, read_text};
use tollgate_store::{OfflineStore, OpenError, check};
use tollgate_yaml::Sources;

use super::{
    Exit, Failure,
    call::{CALL_TIMEOUT, Where},
};
use crate::admin::{
    BackupOrder, BackupReport, CheckReport, DamagedFile, DiskStatus, Message, Status,
};

/// Count, check, copy or merge the counters on disk
///
/// A store with `disk` in the settings. While a proxy has it open, the proxy is asked by its admin
/// listener; else its files are read here.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    order: Order,
}

#[derive(Subcommand)]
enum Order {
    /// Show how many counters there are, and what they take
    Stat(Place),
    /// Read all files, and show which are damaged; exits with 1 if one is
    Check {
        #[command(flatten)]
        place: Place,
        /// Put damaged journals aside, and keep what can be read of them. No proxy may run
        #[arg(long)]
        repair: bool,
    },
    /// Copy all counters to a folder that is empty or does not exist
    Backup {
        /// The folder, on the machine of the proxy
        folder: PathBuf,
        #[command(flatten)]
        place: Place,
    },
    /// Merge the files, which gives back the room of what is over
    Compact(Place),
}

/// Which store.
#[derive(clap::Args)]
struct Place {
    /// The folder of the store, which no proxy has open; the settings are not read
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["config", "admin", "token_file"])]
    path: Option<PathBuf>,
    #[command(flatten)]
    proxy: Where,
}

/// How long a proxy may take to read or write all of a store.
const LONG_CALL: Duration = Duration::from_secs(6 * 3600);

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    match &arguments.order {
        Order::Stat(place) => stat(place, output),
        Order::Check { place, repair } => run_check(place, *repair, output),
        Order::Backup { folder, place } => backup(place, folder, output),
        Order::Compact(place) => compact(place, output),
    }
}

impl Place {
    /// The folder.
    fn folder(&self) -> Result<PathBuf, Failure> {
        match &self.path {
            Some(path) => Ok(path.clone()),
            None => Ok(folder_of(&self.proxy.settings.find()?)?),
        }
    }

    /// Opens the store; none: a proxy has it open.
    fn open(&self) -> Result<Option<OfflineStore>, Failure> {
        if self.path.is_none() && self.proxy.names_admin() {
            return Ok(None);
        }
        match OfflineStore::open(&self.folder()?, Clock::System) {
            Ok(store) => Ok(Some(store)),
            Err(OpenError::InUse { .. }) if self.path.is_none() => Ok(None),
            Err(error) => Err(anyhow!(error).into()),
        }
    }

    /// Asks the proxy that has the store open.
    fn ask<T: DeserializeOwned>(&self, call: (&Method, &str), body: Bytes) -> Result<T, Failure> {
        let (method, path) = call;
        let permission = if method == Method::GET { Permission::Read } else { Permission::Write };
        let time_limit = if method == Method::GET { CALL_TIMEOUT } else { LONG_CALL };
        Ok(self.proxy.target(permission)?.report(method, path, body, time_limit)?)
    }
}

fn stat(place: &Place, output: &mut dyn Write) -> Result<(), Failure> {
    let Some(store) = place.open()? else {
        let status: Status = place.ask((&Method::GET, "/status"), Bytes::new())?;
        let disk = status.store.disk.context("the proxy keeps no counters on disk")?;
        return Ok(write_running(output, &disk)?);
    };
    let (survey, tables, journals) = store.stat().map_err(|error| anyhow!(error))?;
    writeln!(output, "counters on disk: {}, and {} that are over", survey.live, survey.over)?;
    writeln!(output, "tables: {tables} bytes")?;
    writeln!(output, "journals: {journals} bytes")?;
    if let Some(each) = tables.checked_div(survey.live) {
        writeln!(output, "bytes in tables for each counter: {each}")?;
    }
    Ok(())
}

fn write_running(output: &mut dyn Write, disk: &DiskStatus) -> std::io::Result<()> {
    writeln!(output, "a proxy has {} open", disk.path)?;
    writeln!(output, "counters on disk: about {}", disk.keys_on_disk)?;
    writeln!(output, "counters that are over, when last counted: {}", disk.keys_over)?;
    writeln!(output, "counters in memory: {}", disk.keys_in_memory)?;
    writeln!(output, "memory: {} of {} bytes", disk.memory_bytes, disk.memory_limit_bytes)?;
    let known = if disk.filter_ready { "" } else { ", which does not know all keys yet" };
    writeln!(output, "filter: {} bytes{known}", disk.filter_bytes)?;
    writeln!(output, "tables: {} bytes in {} files", disk.tables_bytes, disk.tables)?;
    writeln!(output, "journal: {} bytes", disk.journal_bytes)?;
    writeln!(output, "reads: {}, {} failed", disk.reads, disk.failed_reads)?;
    writeln!(output, "failed writes: {}", disk.failed_writes)?;
    writeln!(output, "last flush: {:.1} s ago", disk.flush_lag_seconds)?;
    match &disk.failure {
        Some(failure) => writeln!(output, "counters cannot be written: {failure}"),
        None => Ok(()),
    }
}

fn run_check(place: &Place, repairs: bool, output: &mut dyn Write) -> Result<(), Failure> {
    let asks = place.path.is_none() && place.proxy.names_admin();
    let checked = match asks {
        true => None,
        false => match check(&place.folder()?, repairs, &Clock::System) {
            Ok(checked) => Some(CheckReport::from(checked)),
            Err(OpenError::InUse { .. }) if place.path.is_none() && !repairs => None,
            Err(error) => return Err(anyhow!(error).into()),
        },
    };
    let report = match checked {
        Some(report) => report,
        None if repairs => {
            return Err(anyhow!("a store is repaired while no proxy has it open").into());
        }
        None => place.ask((&Method::POST, "/store/check"), Bytes::new())?,
    };
    for DamagedFile { file, problem, .. } in &report.damaged {
        writeln!(output, "{file}: {problem}")?;
    }
    let more = if report.complete { "" } else { "; there may be more behind what is damaged" };
    let CheckReport { counters, over, .. } = &report;
    writeln!(output, "counters that can be read: {counters}, of which {over} are over{more}")?;
    if report.damaged.is_empty() {
        return Ok(writeln!(output, "no file is damaged")?);
    }
    if report.damaged.iter().any(|damaged| damaged.repaired) {
        writeln!(
            output,
            "the store goes on without what was lost; damaged journals are put aside"
        )?;
    }
    match report.damaged.iter().all(|damaged| damaged.repaired) {
        true => Ok(()),
        false => Err(Failure::Reported(Exit::Failure)),
    }
}

fn backup(place: &Place, folder: &Path, output: &mut dyn Write) -> Result<(), Failure> {
    let counters = match place.open()? {
        Some(store) => store.backup(folder).map_err(|error| anyhow!(error))?,
        None => {
            let folder = std::path::absolute(folder)?.display().to_string();
            let order =
                serde_json::to_vec(&BackupOrder { folder }).map_err(|error| anyhow!(error))?;
            let report: BackupReport = place.ask((&Method::POST, "/store/backup"), order.into())?;
            report.counters
        }
    };
    Ok(writeln!(output, "{} has {counters} counters", folder.display())?)
}

fn compact(place: &Place, output: &mut dyn Write) -> Result<(), Failure> {
    match place.open()? {
        Some(store) => store.compact().map_err(|error| anyhow!(error))?,
        None => {
            let _: Message = place.ask((&Method::POST, "/store/compact"), Bytes::new())?;
        }
    }
    Ok(writeln!(output, "all tables were merged")?)
}

/// The folder of the store that settings describe.
fn folder_of(file: &Path) -> Result<PathBuf, Failure> {
    let sources = Sources::system();
    let text = read_text(file, &sources)?;
    let settings = Settings::parse(file, &text, &sources)?;
    let disk = settings.store.disk().map(|disk| disk.path.clone());
    let missing = || {
        let file = file.display();
        Failure::Usage(format!(
            "{file} keeps no counters on disk: add `store: {{ disk: {{ path: counters }} }}`, or name \
             a folder by --path\n"
        ))
    };
    disk.ok_or_else(missing)
}
