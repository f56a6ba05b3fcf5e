//! What is logged about a configuration that is put in force, at the start and with each reload:
//! what is wrong, and which callers have rates of their own.

use tollgate_clock::Timestamp;
use tollgate_keyword::Keyword;
use tollgate_policy::Policies;
use tollgate_settings::Settings;
use tollgate_yaml::warning::{Rule, Warning};

/// Logs a configuration that is put in force at `now`.
pub fn announce(settings: &Settings, policies: &Policies, now: Timestamp) {
    let of_policies = policies.iter().flat_map(|policy| &policy.warnings);
    // Overrides have lines of their own, whether they are over or not.
    let is_new = |warning: &&Warning| {
        warning.rule != Rule::EndedOverride
            && warning.holds(now, |condition| settings.meet(condition))
    };
    for warning in settings.warnings.iter().chain(of_policies).filter(is_new) {
        let rule = warning.rule.keyword();
        let problem = &warning.problem;
        let place = problem.place();
        let help = problem.help();
        tracing::warn!(rule, place, problem = problem.message(), help, "configuration warning");
    }
    log_overrides(policies, now);
}

/// The callers with a rate of their own, and why: exceptions that are not logged are never removed.
fn log_overrides(policies: &Policies, now: Timestamp) {
    for policy in policies.iter() {
        for limit in &policy.limits {
            for own in &limit.overrides.0 {
                let policy = &*policy.name;
                let limit = &*limit.name;
                let why = &own.why;
                let until = own.until.map_or_else(|| "-".to_owned(), |until| until.to_string());
                match own.is_in_force(now) {
                    true => tracing::info!(policy, limit, of = %own, %until, %why, "override"),
                    false => {
                        tracing::warn!(policy, limit, of = %own, %until, %why, "override ended");
                    }
                }
            }
        }
    }
}
