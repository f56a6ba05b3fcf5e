//! Which settings file a command reads: the one that it is given, or the first of the usual places.

use std::path::{Path, PathBuf};

use tollgate_yaml::Sources;

use super::Failure;

/// The settings of a proxy.
#[derive(clap::Args)]
pub(super) struct SettingsFile {
    /// The settings of the proxy. Left out: the file that the variable TOLLGATE_CONFIG names, or
    /// the first that exists of tollgate.yaml, config/tollgate.yaml and /etc/tollgate/tollgate.yaml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What names the settings file, where no option does.
const VARIABLE: &str = "TOLLGATE_CONFIG";
/// Where a settings file is looked for then, in this order.
const PLACES: [&str; 3] = ["tollgate.yaml", "config/tollgate.yaml", "/etc/tollgate/tollgate.yaml"];

impl SettingsFile {
    /// Its path.
    ///
    /// # Errors
    /// No option names it, and none of the usual places has one.
    pub(super) fn find(&self) -> Result<PathBuf, Failure> {
        find_settings(self.config.as_deref())
    }

    /// The path that the option has.
    pub(super) fn given(&self) -> Option<&Path> {
        self.config.as_deref()
    }
}

/// The path that is `given`, or that of the settings in the first usual place that has them.
///
/// # Errors
/// There are none.
pub(super) fn find_settings(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let text = || {
        format!(
            "no settings file: there is none of {}; name one by --config or {VARIABLE}\n",
            PLACES.join(", ")
        )
    };
    given.map(Path::to_owned).or_else(usual_settings).ok_or_else(|| Failure::Usage(text()))
}

/// The settings in the first usual place that has them. A file that the variable names need not
/// exist: the reader reports that.
pub(super) fn usual_settings() -> Option<PathBuf> {
    let named = Sources::system().variable(VARIABLE).map(PathBuf::from);
    named.or_else(|| PLACES.iter().map(PathBuf::from).find(|file| file.is_file()))
}
