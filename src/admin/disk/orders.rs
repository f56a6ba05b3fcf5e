//! `POST /store/…`: what people have the store on disk do.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_store::{CheckResult, Damage, Disk};

use crate::admin::{Context, admin_request::AdminRequest, json_response, message};

/// Where a copy of the store is to be.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupOrder {
    /// A folder on the machine of the proxy, which is empty or does not exist. It must be an
    /// absolute path.
    pub folder: String,
}

/// A copy of the store was made.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct BackupReport {
    /// The folder.
    pub folder: String,
    /// The counters in it.
    pub counters: u64,
}

/// What was found in the files of a store.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct CheckReport {
    /// Counters that can be read.
    pub counters: u64,
    /// Of these, those that are over.
    pub over: u64,
    /// Whether all were counted: not those behind the first damaged place of the tables.
    #[serde(default)]
    pub complete: bool,
    /// Files that are damaged.
    pub damaged: Vec<DamagedFile>,
}

/// A file that is damaged.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct DamagedFile {
    /// The file.
    pub file: String,
    /// What is wrong with it, and what is lost.
    pub problem: String,
    /// Whether the store goes on without it, after what can be read of it was kept.
    #[serde(default)]
    pub repaired: bool,
}

impl From<CheckResult> for CheckReport {
    fn from(checked: CheckResult) -> CheckReport {
        let damaged = |Damage { file, problem, is_repaired }: Damage| DamagedFile {
            file: file.display().to_string(),
            problem,
            repaired: is_repaired,
        };
        CheckReport {
            counters: checked.counters,
            over: checked.over,
            complete: checked.is_complete,
            damaged: checked.damaged.into_iter().map(damaged).collect(),
        }
    }
}

/// The answer to an order that the store got.
type Answer = Result<Response<Full<Bytes>>, (StatusCode, String)>;

impl Context {
    /// Copies the store to another folder.
    pub(in crate::admin) async fn back_up_store(
        &self,
        asked: &AdminRequest,
    ) -> Response<Full<Bytes>> {
        let order: BackupOrder = match serde_json::from_slice(&asked.body) {
            Ok(order) => order,
            Err(_) => {
                let text = "send JSON such as {\"folder\": \"/var/backups/tollgate\"}";
                return message(StatusCode::BAD_REQUEST, text);
            }
        };
        let folder = PathBuf::from(&order.folder);
        if !folder.is_absolute() {
            let text = "`folder` must be an absolute path on the machine of the proxy";
            return message(StatusCode::BAD_REQUEST, text);
        }
        let by = asked.peer.to_string();
        self.on_disk(move |disk| match disk.backup(&folder) {
            Ok(counters) => {
                tracing::info!(by, folder = %folder.display(), counters, "the store was copied");
                let report = BackupReport { folder: order.folder, counters };
                Ok(json_response(StatusCode::OK, &report))
            }
            Err(error) => Err((StatusCode::CONFLICT, error.to_string())),
        })
        .await
    }

    /// Merges all tables.
    pub(in crate::admin) async fn compact_store(&self) -> Response<Full<Bytes>> {
        self.on_disk(|disk| match disk.compact() {
            Ok(()) => Ok(message(StatusCode::OK, "all tables were merged")),
            Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error)),
        })
        .await
    }

    /// Reads all files of the store.
    pub(in crate::admin) async fn check_store(&self) -> Response<Full<Bytes>> {
        self.on_disk(|disk| match disk.check() {
            Ok(checked) => Ok(json_response(StatusCode::OK, &CheckReport::from(checked))),
            Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
        })
        .await
    }

    /// Does something that takes time with the disk of the store, if it has one.
    async fn on_disk(
        &self,
        work: impl FnOnce(&Arc<Disk>) -> Answer + Send + 'static,
    ) -> Response<Full<Bytes>> {
        let Some(disk) = self.shared.stores.disk().cloned() else {
            let text = "no store of this proxy keeps its counters on disk";
            return message(StatusCode::NOT_FOUND, text);
        };
        match tokio::task::spawn_blocking(move || work(&disk)).await {
            Ok(Ok(response)) => response,
            Ok(Err((status, text))) => message(status, &text),
            Err(_) => message(StatusCode::INTERNAL_SERVER_ERROR, "the store could not do that"),
        }
    }
}
